//! Prepared statements: one name for each text and parameter types in the whole proxy, and what a connection has of them.
//!
//! Clients' names live in their session. On a connection a statement is called `sg_<id>`, so that a connection that has once
//! parsed a text serves every client that prepares the same text. The texts that a connection holds are bounded: the one
//! that was prepared first is closed to make room.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use moka::sync::Cache;
use smallvec::SmallVec;

use crate::wire::{FieldDescription, row_description};

/// Number of a text in this proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatementId(u32);

impl StatementId {
    /// The name on connections, in a buffer on the stack.
    pub fn with_name<R>(self, with: impl FnOnce(&[u8]) -> R) -> R {
        // Three letters and ten digits, written from the end.
        let mut buffer = [0_u8; 13];
        let (mut start, mut rest) = (buffer.len(), self.0);
        loop {
            start -= 1;
            buffer[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        buffer[start - 3..start].copy_from_slice(b"sg_");
        with(&buffer[start - 3..])
    }
}

/// What makes two prepared statements the same: text, declared types, and what names in it mean: the catalogue version and the
/// search path they were prepared under. A plan from before a schema change, or for a table of the same name in another schema,
/// would fail with "cached plan must not change result type". Constants are read when a text is parsed, by some of the settings and
/// sometimes by the clock: one session's `'2020-01-01'::timestamptz` is not another's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatementText {
    pub text: Bytes,
    pub types: Box<[u32]>,
    pub catalog_version: u64,
    /// The schemas in order, parted by zeros.
    pub search_path: Arc<str>,
    /// The settings that its constants are read by; empty where it has none.
    pub constants: Arc<str>,
    /// 0, unless constants like 'now' make each Parse another one.
    pub parsed: u64,
}

/// The columns that a statement gives, as far as PostgreSQL holds a prepared statement to them: names, types by the home shard's
/// oids, modifiers of tables' columns. Collations too, but no message tells these; and the modifier of what is computed may be another
/// one in the plan for given parameters than in the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnsDigest(u64);

impl ColumnsDigest {
    /// `rows`: the body of a RowDescription; `None`: no rows.
    pub fn of(rows: Option<&[u8]>) -> Self {
        match rows.map(row_description) {
            Some(Ok(columns)) => Self::of_columns(&columns),
            None | Some(Err(_)) => Self::by(|hasher| (NO_COLUMNS, rows).hash(hasher)),
        }
    }

    pub fn of_columns(columns: &[FieldDescription]) -> Self {
        let modifier = |column: &FieldDescription| if column.table_oid == 0 { -1 } else { column.typmod };
        Self::by(|hasher| columns.iter().for_each(|column| (&column.name, column.type_oid, modifier(column)).hash(hasher)))
    }

    fn by(hash: impl FnOnce(&mut DefaultHasher)) -> Self {
        let mut hasher = DefaultHasher::new();
        hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Gives every statement text its id. Bounded in bytes: a text that fell out gets a new id when it is prepared again.
pub struct StatementRegistry {
    ids: Cache<Arc<StatementText>, StatementId>,
    next: AtomicU32,
}

impl StatementRegistry {
    pub fn new(bytes_max: u64) -> Self {
        let weight = |statement: &Arc<StatementText>, _: &StatementId| {
            u32::try_from(TEXT_BYTES + statement.text.len() + 4 * statement.types.len()).unwrap_or(u32::MAX)
        };
        Self { ids: Cache::builder().max_capacity(bytes_max).weigher(weight).build(), next: AtomicU32::new(1) }
    }

    pub fn id(&self, statement: &Arc<StatementText>) -> StatementId {
        self.ids.get_with(Arc::clone(statement), || StatementId(self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

/// What one connection has prepared.
#[derive(Default)]
pub struct PreparedStatements {
    /// With the columns that it gives here; `None`: it was not asked for them.
    known: HashMap<StatementId, Option<ColumnsDigest>, std::hash::BuildHasherDefault<IdHasher>>,
    order: VecDeque<StatementId>,
    /// May be there or not. At most [`DOUBTFUL_MAX`] and one for each Parse that is under way.
    doubtful: VecDeque<StatementId>,
}

impl PreparedStatements {
    /// Statements that the connection certainly has.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    #[inline]
    pub fn has(&self, id: StatementId) -> bool {
        self.known.contains_key(&id)
    }

    /// What the statement gives, as the connection has it.
    #[inline]
    pub fn columns(&self, id: StatementId) -> Option<ColumnsDigest> {
        self.known.get(&id).copied().flatten()
    }

    pub fn note_columns(&mut self, id: StatementId, columns: ColumnsDigest) {
        if let Some(known) = self.known.get_mut(&id) {
            *known = Some(columns);
        }
    }

    /// Remembers that a Parse is sent. Returns the statements to close before it, so that at most `max` are held and the name
    /// is free.
    pub fn insert(&mut self, id: StatementId, max: usize) -> SmallVec<[StatementId; 2]> {
        let mut to_close = SmallVec::new();
        if self.known.contains_key(&id) {
            return to_close;
        }
        self.known.insert(id, None);
        if let Some(place) = self.doubtful.iter().position(|doubtful| *doubtful == id) {
            self.doubtful.remove(place);
            to_close.push(id);
        }
        if self.doubtful.len() > DOUBTFUL_MAX {
            to_close.extend(self.doubtful.pop_front());
        }
        self.order.push_back(id);
        if self.order.len() > max.max(1)
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
            to_close.push(oldest);
        }
        to_close
    }

    /// Something failed between Parse and the end: whether the connection has the statement is not known. To close one that it
    /// does not have is no error, to parse one that it has is.
    pub fn doubt(&mut self, id: StatementId) {
        if self.known.remove(&id).is_some() {
            self.order.retain(|known| *known != id);
            self.doubtful.push_back(id);
        }
    }

    /// The same of all of them.
    pub fn doubt_all(&mut self) {
        self.known.clear();
        self.doubtful.extend(self.order.drain(..));
    }

    /// The shard has skipped the Close: the connection has it still.
    pub fn doubt_closed(&mut self, id: StatementId) {
        if !self.known.contains_key(&id) && !self.doubtful.contains(&id) {
            self.doubtful.push_back(id);
        }
    }

    pub fn clear(&mut self) {
        self.known.clear();
        self.order.clear();
        self.doubtful.clear();
    }
}

/// Ids are small numbers given by us: they need no protection from collisions made on purpose.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// What a text takes beside itself.
const TEXT_BYTES: usize = 512;
const DOUBTFUL_MAX: usize = 16;
/// Before what is hashed where there are none.
const NO_COLUMNS: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modifier_of_what_is_computed_makes_no_other_columns() {
        let column = |table_oid, typmod| {
            let name = b"n".to_vec();
            ColumnsDigest::of_columns(&[FieldDescription {
                name,
                table_oid,
                attnum: 1,
                type_oid: 1700,
                type_size: -1,
                typmod,
                format: 0,
            }])
        };
        assert_eq!(column(0, -1), column(0, 786_438));
        assert_ne!(column(5, -1), column(5, 786_438));
    }

    #[test]
    fn the_same_text_and_types_share_a_name() {
        let registry = StatementRegistry::new(100);
        let text = |text: &'static str, types: &[u32], catalog_version| {
            let text = Bytes::from_static(text.as_bytes());
            Arc::new(StatementText {
                text,
                types: types.into(),
                catalog_version,
                search_path: Arc::default(),
                constants: Arc::default(),
                parsed: 0,
            })
        };
        let first = registry.id(&text("select $1", &[23], 1));
        assert_eq!(first, registry.id(&text("select $1", &[23], 1)));
        assert_ne!(first, registry.id(&text("select $1", &[20], 1)));
        assert_ne!(first, registry.id(&text("select $1", &[23], 2)));
        first.with_name(|name| assert_eq!(name, b"sg_1"));
        StatementId(u32::MAX).with_name(|name| assert_eq!(name, b"sg_4294967295"));
    }

    #[test]
    fn the_oldest_is_closed_when_a_connection_is_full() {
        let mut prepared = PreparedStatements::default();
        assert!(prepared.insert(StatementId(1), 2).is_empty());
        assert!(prepared.insert(StatementId(2), 2).is_empty());
        assert!(prepared.insert(StatementId(1), 2).is_empty());
        assert_eq!(prepared.insert(StatementId(3), 2).to_vec(), [StatementId(1)]);
        assert!(!prepared.has(StatementId(1)) && prepared.has(StatementId(3)));
    }

    #[test]
    fn one_in_doubt_is_closed_before_it_is_parsed_again() {
        let mut prepared = PreparedStatements::default();
        assert!(prepared.insert(StatementId(1), 100).is_empty());
        prepared.doubt(StatementId(1));
        assert!(!prepared.has(StatementId(1)));
        assert_eq!(prepared.insert(StatementId(1), 100).to_vec(), [StatementId(1)]);
        for id in 2..=50 {
            prepared.insert(StatementId(id), 100);
            prepared.doubt(StatementId(id));
        }
        assert!(prepared.doubtful.len() <= DOUBTFUL_MAX + 1);
    }
}
