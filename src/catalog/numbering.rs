//! How a column numbers its rows: by a sequence of the shard, as PostgreSQL does, or by one of the whole cluster.

use super::{Catalog, Column, Relation, RelationKind};

/// (schema, name), folded and unquoted.
pub type SequenceName = (String, String);

/// Where a column's numbers come from when none is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// `nextval` of this sequence, and nothing else.
    Local(SequenceName),
    /// An identity column.
    Identity,
    /// A sequence of the whole cluster: the default is `shardgate.next_id`.
    Cluster(SequenceName),
    /// An expression with `nextval` in it.
    Computed,
}

impl Column {
    /// `None`: its default draws from no sequence.
    pub fn numbering(&self) -> Option<Numbering> {
        let default = self.default.as_deref().unwrap_or_default();
        if let Some(sequence) = call_argument(default, "shardgate.next_id(") {
            return Some(Numbering::Cluster(sequence));
        }
        if self.identity.is_some() {
            return Some(Numbering::Identity);
        }
        if !default.contains("nextval(") {
            return None;
        }
        let alone =
            call_argument(default, "nextval(").filter(|_| default.ends_with("'::regclass)") && default.matches('(').count() == 1);
        Some(alone.map_or(Numbering::Computed, Numbering::Local))
    }

    /// The sequence of the whole cluster that the column draws from.
    pub fn cluster_sequence(&self) -> Option<SequenceName> {
        match self.numbering() {
            Some(Numbering::Cluster(sequence)) => Some(sequence),
            Some(Numbering::Local(_) | Numbering::Identity | Numbering::Computed) | None => None,
        }
    }

    /// The proxy gives its value to each row that has none.
    pub fn is_drawn_by_proxy(&self) -> bool {
        self.is_unique_id() || self.cluster_sequence().is_some()
    }

    /// By default it is a `shardgate.unique_id()`.
    pub fn is_unique_id(&self) -> bool {
        self.default.as_deref() == Some("shardgate.unique_id()") && !self.is_generated
    }

    /// Every shard would number by itself.
    pub fn is_numbered_by_shard(&self) -> bool {
        matches!(self.numbering(), Some(Numbering::Local(_) | Numbering::Identity | Numbering::Computed))
    }
}

impl Catalog {
    /// The sequence that `nextval('text')` means under this search path.
    pub fn sequence(&self, text: &str, search_path: &[String]) -> Option<SequenceName> {
        let found = self.relation_named(text, search_path)?;
        (found.kind == RelationKind::Sequence).then(|| (found.schema.clone(), found.name.clone()))
    }

    /// The relation that a text means, as the input of regclass has it: by its name, or by its oid on the home shard.
    pub fn relation_named(&self, text: &str, search_path: &[String]) -> Option<&Relation> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.relations.get(&text.parse().ok()?);
        }
        let (schema, name) = qualified_name(text)?;
        self.resolve(schema.as_deref(), &name, search_path)
    }
}

/// `a`lways or by `d`efault, of a column that was an identity column before it was numbered by the cluster.
pub fn identity_in_default(default: &str) -> Option<char> {
    let rest = default.strip_prefix("shardgate.next_id(")?.strip_suffix("::\"char\")")?;
    let kind = rest.strip_suffix('\'')?.rsplit('\'').next()?;
    kind.chars().next().filter(|kind| matches!(kind, 'a' | 'd'))
}

/// The sequence that a call's first argument names: `nextval('public.s'::regclass)`.
fn call_argument(expression: &str, call: &str) -> Option<SequenceName> {
    let quoted = expression.strip_prefix(call)?.strip_prefix('\'')?;
    let end = quoted.find("'::regclass")?;
    let (schema, name) = qualified_name(&quoted.get(..end)?.replace("''", "'"))?;
    // Printed with its schema, but for those of pg_catalog.
    Some((schema.unwrap_or_else(|| "pg_catalog".to_owned()), name))
}

/// A name as the input of regclass has it.
pub fn qualified_name(text: &str) -> Option<(Option<String>, String)> {
    let (first, rest) = identifier(text.trim())?;
    let rest = rest.trim_start();
    if rest.is_empty() {
        return Some((None, first));
    }
    let (second, rest) = identifier(rest.strip_prefix('.')?.trim_start())?;
    rest.trim().is_empty().then_some((Some(first), second))
}

fn identifier(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|character: char| character == '.' || character.is_whitespace()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        return (!name.is_empty()).then(|| (name.to_lowercase(), rest));
    };
    let mut name = String::new();
    let mut rest = quoted;
    loop {
        let (before, after) = rest.split_once('"')?;
        name.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(default: &str, identity: Option<char>) -> Column {
        Column {
            name: "id".into(),
            attnum: 1,
            type_oid: 20,
            type_name: "bigint".into(),
            typmod: -1,
            is_not_null: true,
            is_deterministic: true,
            is_collation_c: false,
            collation: None,
            default: (!default.is_empty()).then(|| default.to_owned()),
            is_generated: false,
            identity,
        }
    }

    #[test]
    fn a_default_says_where_numbers_come_from() {
        let named = |schema: &str, name: &str| (schema.to_owned(), name.to_owned());
        for (default, identity, expected) in [
            ("", None, None),
            ("5", None, None),
            ("", Some('a'), Some(Numbering::Identity)),
            ("nextval('public.t_id_seq'::regclass)", None, Some(Numbering::Local(named("public", "t_id_seq")))),
            ("nextval('\"My App\".\"It''s \"\"it\"\"\"'::regclass)", None, Some(Numbering::Local(named("My App", "It's \"it\"")))),
            ("(nextval('public.s'::regclass) * 2)", None, Some(Numbering::Computed)),
            ("'N' || nextval('public.s'::regclass)", None, Some(Numbering::Computed)),
            ("shardgate.next_id('public.s'::regclass)", None, Some(Numbering::Cluster(named("public", "s")))),
            ("shardgate.next_id('public.s'::regclass, 'a'::\"char\")", Some('a'), Some(Numbering::Cluster(named("public", "s")))),
        ] {
            assert_eq!(column(default, identity).numbering(), expected, "{default}");
        }
    }

    #[test]
    fn what_was_an_identity_column_is_known_by_its_default() {
        assert_eq!(identity_in_default("shardgate.next_id('public.s'::regclass, 'a'::\"char\")"), Some('a'));
        assert_eq!(identity_in_default("shardgate.next_id('public.s'::regclass, 'd'::\"char\")"), Some('d'));
        assert_eq!(identity_in_default("shardgate.next_id('public.s'::regclass)"), None);
        assert_eq!(identity_in_default("nextval('public.s'::regclass)"), None);
    }

    #[test]
    fn names_are_read_as_regclass_reads_them() {
        let read = |text: &str| qualified_name(text);
        assert_eq!(read("T_Id_Seq"), Some((None, "t_id_seq".into())));
        assert_eq!(read(" app . \"S\" "), Some((Some("app".into()), "S".into())));
        for wrong in ["", "a.b.c", "\"open", "a b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
