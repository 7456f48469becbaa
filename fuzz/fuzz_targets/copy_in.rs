//! The data of a COPY FROM STDIN, as any bytes in chunks of any size: the same rows as from one piece, and no byte of them another.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shardgate::execute::copy_in::{PieceKind, Splitter, values};
use shardgate::shard_key::KeyType;
use shardgate::sql::utility::copy_in::{CopyFormat, CopyIn, CopyKey, KeySource};

const ROW_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|input: (u8, bool, bool, u8, &[u8])| {
    let (format, has_header, is_strict, chunk_bytes, data) = input;
    let copy = copy(format, has_header);
    let whole = split(&copy, is_strict, data, data.len());
    assert_eq!(split(&copy, is_strict, data, usize::from(chunk_bytes)), whole);
    let together: Vec<u8> = whole.pieces.iter().flat_map(|piece| &piece.bytes).copied().collect();
    assert!(data.starts_with(&together));
    for Piece { bytes, values: in_row } in &whole.pieces {
        if let Some(row) = in_row.and_then(|length| bytes.get(..length)) {
            assert_eq!(values(&copy, row, &[]).len(), copy.key.len());
        }
    }
});

#[derive(Debug, PartialEq, Eq)]
struct Split {
    pieces: Vec<Piece>,
    /// PostgreSQL is certain to refuse what follows.
    is_broken: bool,
    error: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Piece {
    bytes: Vec<u8>,
    /// How many of them are a row's values; `None`: it goes everywhere.
    values: Option<usize>,
}

fn split(copy: &CopyIn, is_strict: bool, data: &[u8], chunk_bytes: usize) -> Split {
    let mut splitter = Splitter::new(copy, ROW_BYTES_MAX);
    if is_strict {
        splitter.be_strict();
    }
    let mut split = Split { pieces: Vec::new(), is_broken: false, error: None };
    for chunk in data.chunks(chunk_bytes.max(1)).map(Some).chain([None]) {
        splitter.feed(chunk.unwrap_or_default());
        if chunk.is_none() {
            splitter.complete();
        }
        loop {
            let piece = match splitter.next_piece() {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => return Split { error: Some(error.message), ..split },
            };
            match (piece.kind, split.pieces.last_mut()) {
                (PieceKind::Row { values }, _) => {
                    assert!(values <= piece.bytes.len());
                    split.pieces.push(Piece { bytes: piece.bytes.to_vec(), values: Some(values) });
                }
                // What goes everywhere is handed on as it comes.
                (PieceKind::Everywhere, Some(Piece { bytes, values: None })) => bytes.extend_from_slice(piece.bytes),
                (PieceKind::Everywhere, _) => split.pieces.push(Piece { bytes: piece.bytes.to_vec(), values: None }),
                (PieceKind::Broken, _) => return Split { is_broken: true, ..split },
            }
        }
    }
    split
}

fn copy(format: u8, has_header: bool) -> CopyIn {
    let null = b"\\N".to_vec();
    let format = match format % 4 {
        0 => CopyFormat::Text { delimiter: b'\t', null },
        1 => CopyFormat::Csv { delimiter: b',', quote: b'"', escape: b'"', null },
        2 => CopyFormat::Csv { delimiter: b',', quote: b'"', escape: b'\\', null },
        _ => CopyFormat::Binary,
    };
    let key = |position| CopyKey {
        source: KeySource::Row(position),
        column_type: KeyType::Text,
        function: None,
        typmod: -1,
        is_not_null: false,
        is_forced_not_null: false,
        is_forced_null: false,
    };
    CopyIn {
        table: "t".to_owned(),
        qualified: "t".to_owned(),
        format,
        has_header,
        encoding: None,
        key: vec![key(0), key(2)],
        column_count: 3,
        added: Vec::new(),
        fires_per_statement: false,
    }
}
