//! Tables of every kind, with columns and rows drawn from a seed.

use std::collections::BTreeSet;
use std::fmt::Write;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::values::Kind;
use crate::parity::world::Scene;

#[derive(Clone, Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: Vec<(String, Kind)>,
}

#[derive(Clone, Debug)]
pub struct Schema {
    pub tables: Vec<Table>,
    pub schema: String,
    pub rows: String,
    declare: String,
}

impl Schema {
    pub fn new(random: &mut StdRng) -> Self {
        let keys: Vec<Kind> = (0..2).map(|_| *Kind::KEYS.choose(random).expect("kinds")).collect();
        let mut made = Schema { tables: Vec::new(), schema: MOOD.to_owned(), rows: String::new(), declare: String::new() };
        // A table with one row a key, and one with several, that are sharded alike.
        made.table(random, "one", keys[0], false, 24);
        made.table(random, "many", keys[0], true, 40);
        made.table(random, "other", keys[1], true, 30);
        made.table(random, "r_int4", Kind::Int4, false, 20);
        made.table(random, "nil", Kind::Int4, false, 0);
        made.table(random, "ref", Kind::Int4, false, 6);
        made.table(random, "home", Kind::Int4, false, 6);
        let shown: Vec<(String, Kind)> = made.tables[0].columns.iter().take(4).cloned().collect();
        let names: Vec<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(made.schema, "CREATE VIEW shown AS SELECT {} FROM one WHERE k IS NOT NULL;", names.join(", ")).expect("text");
        made.tables.push(Table { name: "shown", columns: shown });
        let (schema, rows) = super::equals::tables(random);
        made.schema.push_str(&schema);
        made.rows.push_str(&rows);
        let partitions = random.random_range(3..9);
        made.declare = format!(
            "SELECT shardgate.distribute_table('one', 'k', partitions => {partitions});\n\
             SELECT shardgate.distribute_table('many', 'k', colocate_with => 'one');\n\
             SELECT shardgate.distribute_table('other', 'k', partitions => 5);\n\
             SELECT shardgate.distribute_table('r_int4', 'k', 'range');\n\
             SELECT shardgate.distribute_table('nil', 'k', partitions => 3);\n\
             SELECT shardgate.reference_table('ref');\n"
        );
        made.declare.push_str(super::equals::DECLARE);
        made
    }

    fn table(&mut self, random: &mut StdRng, name: &'static str, key: Kind, has_number: bool, rows: usize) {
        let mut columns = vec![("k".to_owned(), key)];
        columns.extend(has_number.then(|| ("n".to_owned(), Kind::Int4)));
        let mut kinds = Kind::ALL.to_vec();
        kinds.shuffle(random);
        let count = random.random_range(3..9);
        columns.extend(kinds.into_iter().take(count).map(|kind| (kind.column().to_owned(), kind)));
        let collation = |kind: Kind| if kind == Kind::Code { " COLLATE \"C\"" } else { "" };
        let mut default = |name: &str, kind: Kind| match name != "k" && name != "n" && random.random_ratio(1, 4) {
            true => format!(" DEFAULT {}", quoted(&kind.value(random))),
            false => String::new(),
        };
        let list = columns.iter().map(|(name, kind)| {
            let (of_type, default) = (kind.type_name(), default(name, *kind));
            format!("{name} {of_type}{}{default}", collation(*kind))
        });
        let list: Vec<String> = list.collect();
        let primary = if has_number { "k, n" } else { "k" };
        writeln!(self.schema, "CREATE TABLE {name} ({}, PRIMARY KEY ({primary}));", list.join(", ")).expect("text");
        // Few keys have most rows.
        let favourite = key.key(random);
        let mut keys = BTreeSet::new();
        for number in 0..rows {
            let key = match has_number && random.random_ratio(1, 3) {
                true => favourite.clone(),
                false => key.key(random),
            };
            let number = if has_number { number.to_string() } else { String::new() };
            if keys.insert((key.clone(), number.clone())) {
                let others = columns.iter().skip(if has_number { 2 } else { 1 });
                let others = others.map(|(_, kind)| match random.random_ratio(1, 6) {
                    true => "NULL".to_owned(),
                    false => quoted(&kind.value(random)),
                });
                let others: Vec<String> = others.collect();
                let first = if has_number { format!("{}, {number}", quoted(&key)) } else { quoted(&key) };
                writeln!(self.rows, "INSERT INTO {name} VALUES ({first}, {});", others.join(", ")).expect("text");
            }
        }
        self.tables.push(Table { name, columns });
    }

    /// Lives as long as the test's process.
    pub fn scene(&self) -> Scene {
        let kept = |text: &String| -> &'static str { Box::leak(text.clone().into_boxed_str()) };
        Scene {
            schema: kept(&self.schema),
            rows: kept(&self.rows),
            declare: kept(&self.declare),
            locate: "SELECT shardgate.locate('nil', '1')",
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

const MOOD: &str = "CREATE TYPE mood AS ENUM ('sad', 'fair', 'glad');\n";
