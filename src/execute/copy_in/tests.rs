//! Whatever the pieces in which the data comes, the rows are the same.

use super::*;

fn copy(format: CopyFormat, has_header: bool) -> CopyIn {
    CopyIn {
        table: "t".to_owned(),
        qualified: "t".to_owned(),
        format,
        has_header,
        encoding: None,
        key: Vec::new(),
        column_count: 0,
        added: Vec::new(),
        fires_per_statement: false,
        skips_bad_rows: false,
    }
}

fn text() -> CopyIn {
    copy(CopyFormat::Text { delimiter: b'\t', null: b"\\N".to_vec() }, false)
}

fn csv(escape: u8) -> CopyIn {
    copy(CopyFormat::Csv { delimiter: b',', quote: b'"', escape, null: Vec::new() }, false)
}

/// Each piece: its bytes, the values among them (`None`: goes everywhere), its last line.
type Pieces = Vec<(Vec<u8>, Option<usize>, u64)>;

fn split(copy: &CopyIn, data: &[u8], step: usize) -> Result<Pieces, String> {
    let mut splitter = Splitter::new(copy, 1 << 20);
    let mut found = Vec::new();
    for chunk in data.chunks(step).map(Some).chain([None]) {
        match chunk {
            Some(chunk) => splitter.feed(chunk),
            None => {
                splitter.feed(b"");
                splitter.complete();
            }
        }
        while let Some(piece) = splitter.next_piece().map_err(|error| error.message)? {
            let values = match piece.kind {
                PieceKind::Everywhere => None,
                PieceKind::Row { values } => Some(values),
                PieceKind::Broken => Some(usize::MAX),
            };
            found.push((piece.bytes.to_vec(), values, piece.last_line));
        }
    }
    Ok(found)
}

/// Split in pieces of every size up to the whole.
fn rows(copy: &CopyIn, data: &[u8]) -> Result<Vec<(String, u64)>, String> {
    let whole = split(copy, data, data.len().max(1));
    for step in 1..data.len() {
        assert_eq!(split(copy, data, step), whole, "in pieces of {step}");
    }
    let values = |(bytes, values, line): (Vec<u8>, Option<usize>, u64)| {
        let values = values.map_or(bytes.len(), |values| values.min(bytes.len()));
        (String::from_utf8_lossy(&bytes[..values]).into_owned(), line)
    };
    whole.map(|pieces| pieces.into_iter().map(values).collect())
}

fn listed(rows: &[(&str, u64)]) -> Result<Vec<(String, u64)>, String> {
    Ok(rows.iter().map(|(row, line)| ((*row).to_owned(), *line)).collect())
}

#[test]
fn lines_of_text_end_as_the_first_one_does() {
    assert_eq!(rows(&text(), b"a\tb\nc\\\nd\ne"), listed(&[("a\tb", 1), ("c\\\nd", 2), ("e", 3)]));
    assert_eq!(rows(&text(), b"a\r\nb\r\n"), listed(&[("a", 1), ("b", 2)]));
    assert_eq!(rows(&text(), b"a\rb\r"), listed(&[("a", 1), ("b", 2)]));
    assert_eq!(rows(&text(), b"\n\n"), listed(&[("", 1), ("", 2)]));
    assert_eq!(rows(&text(), b"a\nb\rc\n"), Err("literal carriage return found in data".to_owned()));
    assert_eq!(rows(&text(), b"a\r\nb\n"), Err("literal newline found in data".to_owned()));
    assert_eq!(rows(&text(), b"a\r\nb\rc"), Err("literal carriage return found in data".to_owned()));
}

#[test]
fn the_end_marker_ends_the_data() {
    assert_eq!(rows(&text(), b"a\n\\.\nignored\n"), listed(&[("a", 1)]));
    assert_eq!(rows(&text(), b"a\nb\\.\nignored\n"), listed(&[("a", 1), ("b", 2)]));
    assert_eq!(rows(&text(), b"a\\\\.b\n"), listed(&[("a\\\\.b", 1)]));
    assert_eq!(rows(&text(), b"a\n\\.b\n"), Err("end-of-copy marker corrupt".to_owned()));
    assert_eq!(rows(&text(), b"a\r\n\\.\n"), Err("end-of-copy marker does not match previous newline style".to_owned()));
    assert_eq!(rows(&text(), b"a\n\\."), Err("end-of-copy marker corrupt".to_owned()));
    assert_eq!(rows(&csv(b'"'), b"a\n\\.\nb\n"), listed(&[("a", 1)]));
    assert_eq!(rows(&csv(b'"'), b"a\n\\.x,b\n"), listed(&[("a", 1), ("\\.x,b", 2)]));
}

#[test]
fn from_version_18_on_the_end_marker_stands_alone_and_not_in_csv() {
    let strict = |copy: &CopyIn, data: &[u8]| {
        let mut splitter = Splitter::new(copy, 1 << 20);
        splitter.be_strict();
        splitter.feed(data);
        splitter.complete();
        let mut rows = Vec::new();
        while let Some(piece) = splitter.next_piece().map_err(|error| error.message)? {
            rows.push(String::from_utf8_lossy(piece.bytes).into_owned());
        }
        Ok::<_, String>(rows)
    };
    let listed = |rows: &[&str]| Ok(rows.iter().map(|row| (*row).to_owned()).collect());
    assert_eq!(strict(&csv(b'"'), b"a\n\\.\nb\n"), listed(&["a\n", "\\.\n", "b\n"]));
    assert_eq!(strict(&csv(b'"'), b"a\r\n\\.\r\nb"), listed(&["a\r\n", "\\.\r\n", "b"]));
    assert_eq!(strict(&text(), b"a\n\\.\nignored\n"), listed(&["a\n"]));
    assert_eq!(strict(&text(), b"a\nb\\.\nignored\n"), Err("end-of-copy marker is not alone on its line".to_owned()));
}

#[test]
fn lines_of_csv_go_on_between_quotes() {
    assert_eq!(rows(&csv(b'"'), b"x\n\"a\nb\",c\nd\n"), listed(&[("x", 1), ("\"a\nb\",c", 3), ("d", 4)]));
    assert_eq!(rows(&csv(b'"'), b"x\n\"a\"\"\n\"\ny"), listed(&[("x", 1), ("\"a\"\"\n\"", 3), ("y", 4)]));
    assert_eq!(rows(&csv(b'\\'), b"x\n\"a\\\"\n\",b\ny\n"), listed(&[("x", 1), ("\"a\\\"\n\",b", 3), ("y", 4)]));
    assert_eq!(rows(&csv(b'"'), b"a\nb\rc\n"), Err("unquoted carriage return found in data".to_owned()));
    assert_eq!(rows(&csv(b'"'), b"a\n\"b"), listed(&[("a", 1), ("\"b", 2)]));
}

#[test]
fn a_header_goes_everywhere() {
    let with_header = CopyIn { has_header: true, ..csv(b'"') };
    let pieces = split(&with_header, b"a,b\n1,2\n", 3).unwrap();
    assert_eq!(pieces, [(b"a,b\n".to_vec(), None, 1), (b"1,2\n".to_vec(), Some(3), 2)]);
}

#[test]
fn tuples_of_the_binary_format_are_told_apart() {
    let binary = copy(CopyFormat::Binary, false);
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    let row = [&[0, 2][..], &[0, 0, 0, 4, 0, 0, 0, 9], &[0xff, 0xff, 0xff, 0xff]].concat();
    let data = [header.clone(), row.clone(), row.clone(), vec![0xff, 0xff]].concat();
    for step in 1..data.len() {
        let pieces = split(&binary, &data, step).unwrap();
        let expected = vec![
            (header.clone(), None, 0),
            (row.clone(), Some(row.len()), 1),
            (row.clone(), Some(row.len()), 2),
            (vec![0xff, 0xff], None, 2),
        ];
        assert_eq!(pieces, expected);
    }
    let broken = [header.clone(), row.get(..5).unwrap().to_vec()].concat();
    assert_eq!(split(&binary, &broken, 4).unwrap().last().unwrap().1, Some(usize::MAX));
    let nonsense = split(&binary, b"hello", 2).unwrap();
    assert!(nonsense.iter().all(|(_, values, _)| values.is_none()), "every shard refuses it");
    assert_eq!(tuples::field(&row, 0), Some(Some(&[0, 0, 0, 9][..])));
    assert_eq!(tuples::field(&row, 1), Some(None));
    assert_eq!(tuples::field(&row, 2), None);
}

#[test]
fn a_row_has_a_bound() {
    let mut splitter = Splitter::new(&text(), 10);
    splitter.feed(b"0123456789");
    assert!(splitter.next_piece().unwrap().is_none());
    splitter.feed(b"0");
    assert_eq!(splitter.next_piece().unwrap_err().code, SqlState::CONFIGURATION_LIMIT_EXCEEDED);
}

proptest::proptest! {
    #[test]
    fn no_byte_is_lost_or_doubled(data in proptest::collection::vec(proptest::sample::select(b"ab\n\r\\.\",".to_vec()), 0..40), step in 1..7_usize) {
        for copy in [text(), csv(b'"'), csv(b'\\')] {
            let whole = split(&copy, &data, 1000);
            proptest::prop_assert_eq!(&split(&copy, &data, step), &whole);
            if let Ok(pieces) = whole {
                let joined: Vec<u8> = pieces.into_iter().flat_map(|(bytes, ..)| bytes).collect();
                proptest::prop_assert!(data.starts_with(&joined));
            }
        }
    }
}
