//! Definitions of constraints and unique indexes with more columns in them.
//!
//! Works on the texts that PostgreSQL prints with `search_path = pg_catalog`, in which only identifiers, literals and the expressions of
//! indexes may hold anything: everything else is PostgreSQL's own wording. What does not read as expected is `None`, never a guess.

use crate::catalog::quoted_identifier;

/// `PRIMARY KEY (id)`, `UNIQUE NULLS NOT DISTINCT (email) INCLUDE (name) DEFERRABLE`, `CREATE UNIQUE INDEX … (lower(email)) WHERE …`,
/// with these columns too. At the end: what was found by the first columns of the index is found by them afterwards. An index of a
/// partitioned table, which is printed without those of its partitions, is made on them as well.
pub(in crate::declare) fn unique_with(definition: &str, columns: &[&str]) -> Option<String> {
    let list = list_after(definition, 0)?;
    let added: Vec<String> = columns.iter().map(|column| quoted_identifier(column)).collect();
    let text = with_items(definition, list, &added);
    Some(match place_of(&text, ONLY).and_then(|place| Some((text.get(..place)?, text.get(place + ONLY.len()..)?))) {
        Some((before, after)) => format!("{before} ON {after}"),
        None => text,
    })
}

const ONLY: &str = " ON ONLY ";

/// `EXCLUDE USING gist (span WITH &&)`, with these columns compared by `=`.
pub(super) fn exclusion_with(definition: &str, columns: &[&str]) -> Option<String> {
    let list = list_after(definition, 0)?;
    let added: Vec<String> = columns.iter().map(|column| format!("{} WITH =", quoted_identifier(column))).collect();
    Some(with_items(definition, list, &added))
}

/// A foreign key's definition in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::declare) struct ForeignKeyText {
    /// `FOREIGN KEY (a) REFERENCES public.t(b)`, with the columns that were added.
    head: String,
    /// MATCH, ON UPDATE, ON DELETE, DEFERRABLE, NOT VALID.
    options: String,
}

impl ForeignKeyText {
    /// `FOREIGN KEY (a) REFERENCES public.t(b) ON DELETE CASCADE`, with these pairs of columns too.
    pub(in crate::declare) fn read(definition: &str, pairs: &[(&str, &str)]) -> Option<Self> {
        let own = list_after(definition, 0)?;
        let referred = list_after(definition, own.1 + 1)?;
        let (head, options) = definition.split_at_checked(referred.1 + 1)?;
        let list = |column: fn(&(&str, &str)) -> String| pairs.iter().map(column).collect::<Vec<String>>();
        // From behind, so that the places before stay right.
        let head = with_items(head, referred, &list(|(_, referred)| quoted_identifier(referred)));
        let head = with_items(&head, own, &list(|(column, _)| quoted_identifier(column)));
        Some(Self { head, options: options.to_owned() })
    }

    /// Deleting what it refers to changes these columns only, where it would change all.
    pub(in crate::declare) fn setting_only(mut self, columns: &[&str]) -> Self {
        let list: Vec<String> = columns.iter().map(|column| quoted_identifier(column)).collect();
        for action in ["ON DELETE SET NULL", "ON DELETE SET DEFAULT"] {
            if let Some((before, after)) = self.options.split_once(action) {
                let after = match after.strip_prefix(" (") {
                    Some(_) => list_after(after, 0).and_then(|(_, end)| after.get(end + 1..)).unwrap_or_default(),
                    None => after,
                };
                self.options = format!("{before}{action} ({}){after}", list.join(", "));
                break;
            }
        }
        self
    }

    /// MATCH FULL refuses a row in which some columns are NULL and others are not, as all are where only the key is set.
    pub(super) fn without_match_full(mut self) -> Self {
        self.options = self.options.replacen(" MATCH FULL", "", 1);
        self
    }

    /// Changes of what it refers to are not followed.
    pub(super) fn without_following(mut self) -> Self {
        for action in [" ON UPDATE CASCADE", " ON UPDATE SET NULL", " ON UPDATE SET DEFAULT"] {
            self.options = self.options.replacen(action, "", 1);
        }
        self
    }

    pub(super) fn has_match_full(&self) -> bool {
        self.options.starts_with(" MATCH FULL")
    }

    pub(super) fn is_not_valid(&self) -> bool {
        self.options.ends_with(" NOT VALID")
    }
}

impl std::fmt::Display for ForeignKeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.head, self.options)
    }
}

/// Options of storage stand before the condition of an index, and before DEFERRABLE.
pub(super) fn stored(definition: &str, storage: &str) -> String {
    let place = [" WHERE ", " DEFERRABLE"].iter().filter_map(|word| place_of(definition, word)).min();
    let (before, after) = definition.split_at_checked(place.unwrap_or(definition.len())).unwrap_or((definition, ""));
    format!("{before}{storage}{after}")
}

/// Bytes that are in no quotes, each with its place.
fn bare(text: &str, from: usize) -> impl Iterator<Item = (usize, u8)> {
    let mut quote: Option<u8> = None;
    text.bytes().enumerate().skip(from).filter(move |(_, byte)| match quote {
        // A doubled quote ends it and begins it again.
        Some(end) => {
            quote = quote.filter(|_| *byte != end);
            false
        }
        None => {
            quote = matches!(byte, b'"' | b'\'').then_some(*byte);
            quote.is_none()
        }
    })
}

/// The places of the next parentheses at or behind this place.
fn list_after(text: &str, from: usize) -> Option<(usize, usize)> {
    let (mut open, mut depth) = (None, 0_usize);
    for (place, byte) in bare(text, from) {
        match byte {
            b'(' => {
                depth += 1;
                open = open.or(Some(place));
            }
            b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((open?, place));
                }
            }
            _ => {}
        }
    }
    None
}

/// Where this word first stands in no quotes and no parentheses.
fn place_of(text: &str, word: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, byte) in bare(text, 0) {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            _ if depth == 0 && text.get(place..).is_some_and(|rest| rest.starts_with(word)) => return Some(place),
            _ => {}
        }
    }
    None
}

/// What PostgreSQL wants at the end of a key stays there.
fn with_items(text: &str, (open, close): (usize, usize), added: &[String]) -> String {
    let (Some(before), Some(list), Some(after)) = (text.get(..=open), text.get(open + 1..close), text.get(close..)) else {
        return text.to_owned();
    };
    let added = added.join(", ");
    let stays_last = list.ends_with(" WITHOUT OVERLAPS") || list.contains("PERIOD ");
    match (added.is_empty(), stays_last) {
        (true, _) => text.to_owned(),
        (false, true) => format!("{before}{added}, {list}{after}"),
        (false, false) => format!("{before}{list}, {added}{after}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_get_the_columns_and_keep_their_options() {
        for (definition, expected) in [
            ("PRIMARY KEY (id)", r#"PRIMARY KEY (id, "t")"#),
            (
                r#"UNIQUE NULLS NOT DISTINCT ("a)b", c) INCLUDE (d) DEFERRABLE INITIALLY DEFERRED"#,
                r#"UNIQUE NULLS NOT DISTINCT ("a)b", c, "t") INCLUDE (d) DEFERRABLE INITIALLY DEFERRED"#,
            ),
            (
                "CREATE UNIQUE INDEX i ON public.u USING btree (lower((email)::text), ((data ->> 'a)'::text))) WHERE (NOT is_sso)",
                "CREATE UNIQUE INDEX i ON public.u USING btree (lower((email)::text), ((data ->> 'a)'::text)), \"t\") WHERE (NOT is_sso)",
            ),
            ("PRIMARY KEY (id, at WITHOUT OVERLAPS)", r#"PRIMARY KEY ("t", id, at WITHOUT OVERLAPS)"#),
        ] {
            assert_eq!(unique_with(definition, &["t"]).as_deref(), Some(expected));
        }
        let exclusion = exclusion_with("EXCLUDE USING gist (span WITH &&) WHERE ((room > 0))", &["T"]);
        assert_eq!(exclusion.as_deref(), Some("EXCLUDE USING gist (span WITH &&, \"T\" WITH =) WHERE ((room > 0))"));
        assert_eq!(unique_with("UNIQUE", &["t"]), None);
        let partitioned = "CREATE UNIQUE INDEX \"a ON ONLY b\" ON ONLY public.e USING btree (id)";
        let whole = "CREATE UNIQUE INDEX \"a ON ONLY b\" ON public.e USING btree (id, \"t\")";
        assert_eq!(unique_with(partitioned, &["t"]).as_deref(), Some(whole));
    }

    #[test]
    fn storage_stands_before_conditions_and_deferrable() {
        for (definition, expected) in [
            ("PRIMARY KEY (id)", "PRIMARY KEY (id) [x]"),
            ("UNIQUE (a) DEFERRABLE INITIALLY DEFERRED", "UNIQUE (a) [x] DEFERRABLE INITIALLY DEFERRED"),
            (
                "EXCLUDE USING gist (a WITH =) WHERE ((b > 0)) DEFERRABLE",
                "EXCLUDE USING gist (a WITH =) [x] WHERE ((b > 0)) DEFERRABLE",
            ),
            (
                "CREATE UNIQUE INDEX \"a WHERE b\" ON t USING btree (((c || ' WHERE '::text))) WITH (fillfactor='70') WHERE d",
                "CREATE UNIQUE INDEX \"a WHERE b\" ON t USING btree (((c || ' WHERE '::text))) WITH (fillfactor='70') [x] WHERE d",
            ),
        ] {
            assert_eq!(stored(definition, " [x]"), expected);
        }
    }

    #[test]
    fn foreign_keys_follow_no_changes() {
        let read =
            ForeignKeyText::read("FOREIGN KEY (a) REFERENCES t(id) ON UPDATE SET NULL ON DELETE CASCADE", &[]).expect("read");
        assert_eq!(read.without_following().to_string(), "FOREIGN KEY (a) REFERENCES t(id) ON DELETE CASCADE");
    }

    #[test]
    fn foreign_keys_get_pairs_of_columns_and_keep_their_options() {
        let printed =
            "FOREIGN KEY (a) REFERENCES \"My\".\"t (1)\"(id) MATCH FULL ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE NOT VALID";
        let read = ForeignKeyText::read(printed, &[("k", "K")]).expect("read");
        assert!(read.has_match_full() && read.is_not_valid());
        let text = read.without_match_full().setting_only(&["a"]).to_string();
        let expected = "FOREIGN KEY (a, \"k\") REFERENCES \"My\".\"t (1)\"(id, \"K\") ON UPDATE CASCADE ON DELETE SET NULL (\"a\") DEFERRABLE NOT VALID";
        assert_eq!(text, expected);
        let listed =
            ForeignKeyText::read("FOREIGN KEY (k, a) REFERENCES t(k, id) ON DELETE SET DEFAULT (k, a)", &[]).expect("read");
        assert_eq!(listed.setting_only(&["a"]).to_string(), "FOREIGN KEY (k, a) REFERENCES t(k, id) ON DELETE SET DEFAULT (\"a\")");
    }
}
