//! The script: rows in the order in which they are run, as a table and as a text for psql.

use serde::Serialize;

use crate::declare::checks::Obstacle;

/// One row of `plan_tables()`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it is about: see [`Kind`].
    pub kind: &'static str,
    pub table_name: Option<String>,
    /// What to run; of an obstacle there is nothing.
    pub statement: Option<String>,
    pub reason: String,
    /// What is weaker or different afterwards.
    pub warning: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Obstacle,
    Candidate,
    ReferenceTable,
    Transaction,
    Views,
    DropForeignKeys,
    AddColumn,
    FillColumn,
    Keys,
    AddForeignKeys,
    Comment,
    Distribute,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Obstacle => "obstacle",
            Kind::Candidate => "candidate",
            Kind::ReferenceTable => "reference table",
            Kind::Transaction => "transaction",
            Kind::Views => "views",
            Kind::DropForeignKeys => "drop foreign keys",
            Kind::AddColumn => "add column",
            Kind::FillColumn => "fill column",
            Kind::Keys => "keys",
            Kind::AddForeignKeys => "add foreign keys",
            Kind::Comment => "comment",
            Kind::Distribute => "distribute",
        }
    }
}

impl Row {
    pub(super) fn statement(kind: Kind, table: Option<String>, statement: String, reason: impl Into<String>) -> Self {
        Self { kind: kind.word(), table_name: table, statement: Some(statement), reason: reason.into(), warning: None }
    }

    pub(super) fn obstacle(obstacle: &Obstacle) -> Self {
        let reason = format!("{} {}", obstacle.what, obstacle.remedy);
        Self { kind: Kind::Obstacle.word(), table_name: None, statement: None, reason, warning: None }
    }

    pub(super) fn with_warnings(self, warnings: &[String]) -> Self {
        Self { warning: (!warnings.is_empty()).then(|| warnings.join(" ")), ..self }
    }
}

/// The columns of `plan_tables()`.
pub(super) fn values(rows: &[Row]) -> Vec<Vec<Option<String>>> {
    let values = |(index, row): (usize, &Row)| {
        vec![
            Some((index + 1).to_string()),
            Some(row.kind.to_owned()),
            row.table_name.clone(),
            row.statement.clone(),
            Some(row.reason.clone()),
            row.warning.clone(),
        ]
    };
    rows.iter().enumerate().map(values).collect()
}

/// For psql: reasons and warnings are comments.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let kind = if row.statement.is_some() { "" } else { "Obstacle: " };
        // A name may hold the end of a line, and with it the end of a comment.
        text.push_str(&format!("-- {kind}{}\n", on_one_line(&row.reason)));
        if let Some(warning) = &row.warning {
            text.push_str(&format!("-- Warning: {}\n", on_one_line(warning)));
        }
        match &row.statement {
            // A call that gives a script is not part of one.
            Some(statement) if row.kind == Kind::Candidate.word() => text.push_str(&format!("-- {}\n", on_one_line(statement))),
            Some(statement) => text.push_str(&format!("{statement}\n")),
            None => {}
        }
        text.push('\n');
    }
    text
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_ends_where_its_line_ends() {
        let hostile = Obstacle { what: "Table \"a\nDROP TABLE b; --\r\" is odd.".to_owned(), remedy: "Rename it.".to_owned() };
        let rows = [Row::obstacle(&hostile), Row::statement(Kind::Transaction, None, "COMMIT;".to_owned(), "End.")];
        assert_eq!(text(&rows), "-- Obstacle: Table \"a DROP TABLE b; -- \" is odd. Rename it.\n\n-- End.\nCOMMIT;\n\n");
    }
}
