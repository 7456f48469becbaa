//! Values that are equal and do not look alike, in groups and below conditions that tell them apart; and conditions that guard what
//! may fail.
//!
//! PostgreSQL evaluates such a condition for rows, so that what is left of a group is of one spelling: the answer is determined. The
//! tables are apart from the others, over which any statement may be drawn, also those that show one of several equal values.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::query::{Generator, Statement};
use super::tree::{Tree, all};
use crate::parity::answer::RowOrder;

/// What is shown of a value, by column, and what tells equal ones apart.
const COLUMNS: [(&str, &[&str], &[&str]); 4] = [
    (
        "w",
        &["0", "0.0", "1", "1.0", "1.00", "2.5", "2.50", "-3.0"],
        &["scale(@) = 0", "scale(@) = 1", "scale(@) = 2", "@::text = '1.0'", "length(@::text) = 4"],
    ),
    (
        "v",
        &["1 mon", "30 days", "720:00:00", "1 day", "24:00:00"],
        &["@::text = '1 mon'", "extract(day FROM @) = 30", "date_part('hour', @) = 24", "@::text LIKE '7%'"],
    ),
    ("q", &["1.0", "1.00", "{\"a\": 1.0}", "{\"a\": 1.00}", "null"], &["@::text = '1.0'", "@::text LIKE '%1.00%'"]),
    ("f", &["0", "-0", "1"], &["@::text = '-0'", "@::text = '0'"]),
];
const TABLES: [&str; 3] = ["eq_many", "eq_other", "eq_home"];

/// Tables and their rows.
pub fn tables(random: &mut StdRng) -> (String, String) {
    let (mut schema, mut rows) = (String::new(), String::new());
    for table in TABLES {
        schema.push_str(&format!(
            "CREATE TABLE {table} (k int, n int, i int, w numeric, v interval, q jsonb, f float8, PRIMARY KEY (k, n));\n"
        ));
        for row in 0..30 {
            let (key, number) = (random.random_range(0..12), random.random_range(0..4));
            let values = COLUMNS.map(|(_, values, _)| match random.random_ratio(1, 12) {
                true => "NULL".to_owned(),
                false => format!("'{}'", values.choose(random).expect("values")),
            });
            rows.push_str(&format!("INSERT INTO {table} VALUES ({key}, {row}, {number}, {});\n", values.join(", ")));
        }
    }
    (schema, rows)
}

pub const DECLARE: &str = "SELECT shardgate.distribute_table('eq_many', 'k', partitions => 6);\n\
     SELECT shardgate.distribute_table('eq_other', 'k', partitions => 5);\n";

impl Generator<'_> {
    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list.choose(&mut self.random).expect("some")
    }

    /// A condition on a query that groups, drops duplicates or has windows, by values that are equal.
    pub fn equals(&mut self) -> Statement {
        let (column, _, conditions) = *COLUMNS.choose(&mut self.random).expect("columns");
        let (table, other) = (self.pick(&TABLES), self.pick(&TABLES));
        let condition = self.pick(conditions);
        let (own, outer) = (condition.replace('@', column), condition.replace('@', &format!("x.{column}")));
        let filter = Tree::from(self.pick(&["", " WHERE i < 3", " WHERE i > 0"]));
        if self.chance(25) {
            return self.written_equals(column, (table, other), &own, &outer);
        }
        let query = match self.random.random_range(0..8) {
            0..=2 => {
                let more = Tree::from(self.pick(&[
                    "",
                    " AND count(*) > 1",
                    " AND sum(i) IS NOT NULL",
                    " AND count(*) < 9 AND i IS NOT NULL",
                ]));
                let tree = all![
                    format!("SELECT {column}, i, count(*), sum(n) FROM {table}"),
                    filter.optional(),
                    format!(" GROUP BY {column}, i HAVING {own}"),
                    more.optional()
                ];
                return Statement { tree, order: RowOrder::Free, writes: false };
            }
            3 => all![format!("SELECT DISTINCT {column} FROM {table}"), filter.optional()],
            4 => all![format!("SELECT {column}, count(*) AS n FROM {table}"), filter.optional(), format!(" GROUP BY {column}")],
            5 => {
                let word = self.pick(&["UNION", "INTERSECT", "UNION ALL"]);
                all![
                    format!("SELECT {column} FROM {table}"),
                    filter.optional(),
                    format!(" {word} SELECT DISTINCT {column} FROM {other}")
                ]
            }
            6 => all![format!("SELECT {column}, n, k, count(*) OVER (PARTITION BY {column}) AS c FROM {table}"), filter.optional()],
            _ => all![
                format!("SELECT DISTINCT ON ({column}) {column}, k, n FROM {table}"),
                filter.optional(),
                format!(" ORDER BY {column}, k, n")
            ],
        };
        let tree = match self.random.random_range(0..4) {
            0 => all!["WITH x AS (", query, format!(") SELECT * FROM x WHERE {outer}")],
            1 => all![
                "SELECT x.*, y.k AS yk, y.n AS yn FROM (",
                query,
                format!(") x JOIN {other} y ON y.{column} = x.{column} WHERE {outer}")
            ],
            _ => all!["SELECT * FROM (", query, format!(") x WHERE {outer}")],
        };
        Statement { tree, order: RowOrder::Free, writes: false }
    }

    fn written_equals(&mut self, column: &str, (table, other): (&str, &str), own: &str, outer: &str) -> Statement {
        let tree = match self.random.random_range(0..4) {
            0 => format!("DELETE FROM {other} WHERE {column} IN (SELECT {column} FROM {table} GROUP BY {column} HAVING {own})"),
            1 => format!(
                "UPDATE {other} SET i = 77 FROM (SELECT DISTINCT {column} FROM {table}) x WHERE {other}.{column} = x.{column} AND {outer}"
            ),
            2 => format!(
                "WITH x AS (SELECT {column} FROM {table} GROUP BY {column}) \
                 DELETE FROM {other} USING x WHERE {other}.{column} = x.{column} AND {outer}"
            ),
            _ => format!(
                "INSERT INTO eq_home SELECT 99, 99, count(*) FROM (SELECT DISTINCT {column}, k FROM {table}) x WHERE {outer}"
            ),
        };
        Statement { tree: Tree::from(tree), order: RowOrder::Free, writes: true }
    }

    /// What fails where a condition is not evaluated first.
    pub fn guards(&mut self) -> Statement {
        let (table, other) = (self.pick(&TABLES), self.pick(&TABLES));
        let few = self.random.random_range(0..4);
        let filter = self.pick(&["", " WHERE i > 50", " WHERE i = 0", " WHERE i > 1"]);
        let (text, writes) = match self.random.random_range(0..14) {
            0 => (format!("SELECT 100 / count(*), max(i) FROM {table}{filter} HAVING count(*) > {few}"), false),
            1 => (format!("SELECT avg(i) / sum(i) FROM {table}{filter} HAVING sum(i) <> 0"), false),
            2 => (format!("SELECT i, 100 / i FROM {table}{filter} GROUP BY i HAVING i <> 0 AND count(*) > {few}"), false),
            3 => (format!("SELECT i, sum(100 / i) FROM {table}{filter} GROUP BY i HAVING i <> 0 AND count(*) > {few}"), false),
            4 => (format!("SELECT i, count(*) FROM {table} GROUP BY i HAVING 100 / sum(i) > {few} AND i <> 0"), false),
            5 => (format!("SELECT 100 / i, count(*) FROM {table} GROUP BY i HAVING count(*) > 1000"), false),
            6 => (format!("SELECT i, count(*) FROM {table} GROUP BY i HAVING count(*) > 1000 ORDER BY 100 / i"), false),
            7 => (format!("SELECT 100 / count(*) FROM {table}{filter} LIMIT 0"), false),
            8 => (format!("SELECT CASE WHEN sum(i) <> 0 THEN 100 / sum(i) ELSE -1 END FROM {table}{filter}"), false),
            9 => (
                format!(
                    "SELECT * FROM (SELECT n % 4 AS n, sum(i) AS m FROM {table} GROUP BY 1 HAVING sum(i) <> 0) x WHERE 100 / m > {few}"
                ),
                false,
            ),
            10 => (
                format!(
                    "UPDATE {other} SET i = CASE WHEN i > 50 THEN 100 / (SELECT count(*)::int FROM {table} WHERE i > 50) ELSE {few} END"
                ),
                true,
            ),
            11 => (format!("DELETE FROM {other} WHERE i > 50 AND 100 / (SELECT sum(i) FROM {table} WHERE i = 0) > {few}"), true),
            12 => (
                format!("INSERT INTO eq_home (k, n, w) SELECT 99, {few}, avg(i) / sum(i) FROM {table}{filter} HAVING sum(i) <> 0"),
                true,
            ),
            _ => (
                format!(
                    "UPDATE {other} SET i = 100 / s.c FROM (SELECT count(*)::int AS c FROM {table}{filter}) s WHERE s.c > {few}"
                ),
                true,
            ),
        };
        Statement { tree: Tree::from(text), order: RowOrder::Free, writes }
    }
}
