//! What psql shows of the schema: its own queries to the catalogue, as it prints them.

use super::runner::Tally;
use super::world::World;
use crate::support::psql_output;

pub fn run(world: &World, tally: &mut Tally) {
    for command in COMMANDS {
        tally.statements += 1;
        tally.checks += 1;
        let shown = |conninfo: &str| {
            let output = psql_output(conninfo, &["-c", command]);
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            if command.starts_with("\\dt+") { without_sizes(&text) } else { text }
        };
        let (plain, proxy) = (shown(&world.plain_conninfo()), shown(&world.proxy.conninfo()));
        if plain != proxy {
            tally.differences.push(format!("psql {command}: answers differ\n    PostgreSQL:\n{plain}\n    Shardgate:\n{proxy}"));
        }
    }
}

/// Tables grow by what autovacuum adds to them, when it comes by.
fn without_sizes(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.contains("--")).collect();
    let is_size = |index: usize| matches!(words.get(index), Some(&("kB" | "bytes")));
    let kept = (0..words.len()).filter(|index| !is_size(*index) && !is_size(index + 1));
    kept.map(|index| words[index]).collect::<Vec<_>>().join(" ")
}

const COMMANDS: &[&str] = &[
    "\\dt",
    "\\dt+ public.languages",
    "\\dt (public|sales).accounts",
    "\\d",
    "\\d accounts",
    "\\d entries",
    "\\d \"Mixed Case\"",
    "\\d sales.invoices",
    "\\d+ accounts",
    "\\d active_accounts",
    "\\d+ account_sums",
    "\\d audit",
    "\\d nothing",
    "\\dv",
    "\\di",
    "\\ds",
    "\\df",
    "\\df twice",
    "\\sf twice",
    "\\sv active_accounts",
    "\\dT",
    "\\dT+ mood",
    "\\dn (public|sales)",
    "\\du",
    "\\dd accounts",
    "\\dp accounts",
    "\\dx",
    "\\l shard9",
    "\\dC int4",
    "\\do +",
    "\\da sum",
    "\\encoding",
    "SELECT name, balance FROM accounts WHERE id = 3",
    "SELECT id, name FROM accounts ORDER BY id LIMIT 3",
    "COPY languages TO STDOUT",
    "\\copy languages TO STDOUT",
    "\\copy (SELECT id FROM audit ORDER BY id) TO STDOUT WITH CSV HEADER",
    "SELECT 1 \\gdesc",
    "SELECT id, balance, opened FROM accounts WHERE id = 3 \\gdesc",
    "\\crosstabview",
    "SELECT nothing FROM accounts WHERE id = 1",
];
