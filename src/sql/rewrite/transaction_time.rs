//! The time of a transaction in a statement that runs on another shard than the one where the transaction began.
//!
//! It stands in place of the clocks in the text, and of those that columns have as defaults which an INSERT leaves out. What cannot be
//! replaced is refused. Not seen, as by [`clock`]: clocks in the definitions of views, functions and triggers.

use super::clock;
use super::clock_literals::typed;
use super::staging::{clock_defaults, spliced};
use crate::error::PgError;
use crate::sql::analysis::Splice;
use crate::sql::context::Context;

/// The text with `time`, an expression; `None`: it reads no clock.
pub fn with_time(text: &str, context: &Context, time: &str) -> Result<Option<String>, PgError> {
    let defaults = clock_defaults(text, context)?;
    let of_default = |default: &str| clock::of_transaction(default, None, time).map(|told| told.unwrap_or(default.to_owned()));
    let mut splices = Vec::new();
    for (range, query) in defaults.given {
        splices.push(Splice { start: range.start, end: range.end, text: format!("({})", of_default(&query)?) });
    }
    if let Some(left_out) = &defaults.left_out {
        let values: Vec<String> = left_out.values().iter().map(|default| of_default(default)).collect::<Result<_, _>>()?;
        splices.push(left_out.names_put());
        let values = values.join(", ");
        splices.extend(left_out.row_ends.iter().map(|end| Splice { start: *end, end: *end, text: format!(", {values}") }));
    }
    let filled = (!splices.is_empty()).then(|| spliced(text, &splices));
    let typed = typed(filled.as_deref().unwrap_or(text), context)?.or(filled);
    let timed = clock::of_transaction(typed.as_deref().unwrap_or(text), Some(context), time)?;
    Ok(timed.or(typed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::testing::Fixture;

    fn context() -> Context {
        let mut fixture = Fixture::default();
        let table = fixture.table("stamps", "id int8, at timestamptz, note text");
        let relation = fixture.catalog.relations.get_mut(&table).expect("made");
        relation.columns[1].default = Some("now()".to_owned());
        relation.columns[2].default = Some("nextval('messages_id_seq'::regclass)".to_owned());
        fixture.table("plain", "id int8");
        fixture.context(&["public"], &[])
    }

    #[test]
    fn defaults_and_clocks_become_the_time() {
        let context = context();
        let text = |sql: &str| with_time(sql, &context, "$9").expect("replaced");
        let now = "(SELECT $9 AS now)";
        for (sql, wanted) in [
            ("INSERT INTO stamps (id) VALUES (1), (2)", format!("INSERT INTO stamps (id, at) VALUES (1, {now}), (2, {now})")),
            ("INSERT INTO stamps VALUES (1)", format!("INSERT INTO stamps (id, at) VALUES (1, {now})")),
            ("INSERT INTO stamps VALUES (1, DEFAULT, 'x')", format!("INSERT INTO stamps VALUES (1, (SELECT {now}), 'x')")),
            ("INSERT INTO stamps (at, id) VALUES (now(), 1)", format!("INSERT INTO stamps (at, id) VALUES ({now}, 1)")),
            ("SELECT id FROM stamps WHERE at = now()", format!("SELECT id FROM stamps WHERE at = {now}")),
        ] {
            assert_eq!(text(sql).map(|text| text.replace('"', "")), Some(wanted), "{sql}");
        }
        for same in ["INSERT INTO plain VALUES (1)", "UPDATE stamps SET note = DEFAULT", "SELECT id FROM stamps"] {
            assert_eq!(text(same), None, "{same}");
        }
    }

    #[test]
    fn what_cannot_be_given_the_time_is_refused() {
        let context = context();
        for sql in [
            "UPDATE stamps SET at = DEFAULT",
            "INSERT INTO stamps DEFAULT VALUES",
            "INSERT INTO stamps (id) SELECT id FROM plain",
            "COPY stamps (id) FROM STDIN",
            "WITH w AS (INSERT INTO stamps (id) VALUES (1) RETURNING id) SELECT * FROM w",
            "SELECT * FROM now() n",
        ] {
            assert!(with_time(sql, &context, "$9").is_err(), "{sql}");
        }
    }
}
