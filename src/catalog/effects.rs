//! What a statement may leave in the session in which it runs, besides data: settings, locks, temporary objects.
//!
//! A pooled connection serves one client after another. What a statement changes by its own words the proxy sees; what a function,
//! trigger or default changes it does not see, so that the next client would meet it. The walk of `closure` finds what may
//! happen, as one of these:
//!
//! * nothing, which is proven: the connection is what it was, at no cost;
//! * settings whose names are constants: they are read back after the statement;
//! * something that lives on the connection and cannot be undone or moved: the connection is kept, and closed in the end;
//! * not known: the connection is reset before another client has it.
//!
//! Errs on the side of too much: a reset costs a little, a leak everything.

use std::collections::BTreeSet;

/// What a statement, a function or a part of a table may leave behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionEffects {
    pub settings: ChangedSettings,
    /// Not proven to leave nothing else behind.
    pub is_unproven: bool,
    /// What keeps the connection.
    pub kept: BTreeSet<Kept>,
    /// The like of it, where it is not known whether the statement comes to it: the connection is closed, and keeps nobody.
    pub is_closed: bool,
    /// A schema change evaluates functions that leave something in the session.
    pub is_of_schema_change: bool,
    /// Settings that the statement's own calls name: a refusal of one of them is a refusal of the statement.
    pub named: BTreeSet<String>,
    /// What a text that is not read may name a custom setting. They are not listed by the server, and are asked for one by one.
    pub custom_names: BTreeSet<String>,
    /// Settings of the transaction alone. They end with it by themselves; its statements on other shards have to know of them.
    pub settings_of_transaction: ChangedSettings,
    /// Custom settings of the transaction, or of a function's SET clause, that need not be read back. Their names stay on the connection.
    pub names_left: BTreeSet<String>,
    /// The same, of names that no body says.
    pub unnamed_left: UnnamedLeft,
}

/// How the names of custom settings come about that are left on the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnnamedLeft {
    #[default]
    Nothing,
    /// The functions are given them, perhaps as constants or parameters of the statement.
    Given,
    Made,
}

/// Settings of the session, not of the transaction alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChangedSettings {
    #[default]
    Nothing,
    /// In lower case.
    Named(BTreeSet<String>),
    /// Whichever the text names when it runs.
    Any,
}

/// State of one connection that no other can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// What a text does that a function is given to run, by an argument or in a row. It keeps nobody: what it is nobody knows, and a
    /// session that keeps its connection for it would keep it for ever. The connection is closed when it is given back.
    GivenText,
    /// A setting whose name is known when the function runs: the server does not list those that users name.
    UnnamedSetting,
    /// The same, of a name that the function makes: no constant of the statement is the name.
    MadeSetting,
    TemporaryObject,
    AdvisoryLock,
    Listen,
    HeldCursor,
    /// A body makes or drops some, which the proxy answers EXECUTE without.
    PreparedStatement,
    /// A text that is made when it runs may.
    PreparedByText,
    /// What `random()` gives next.
    Seed,
    Library,
    /// Connections of dblink and of foreign tables.
    RemoteConnection,
    Replication,
    Backup,
}

impl Kept {
    /// What `shardgate.clients` shows as the reason.
    pub fn reason(self) -> &'static str {
        match self {
            Kept::GivenText => "text run by a function",
            Kept::UnnamedSetting | Kept::MadeSetting => "setting",
            Kept::TemporaryObject => "temporary table",
            Kept::AdvisoryLock => "advisory lock",
            Kept::Listen => "LISTEN",
            Kept::HeldCursor => "cursor WITH HOLD",
            Kept::PreparedStatement | Kept::PreparedByText => "prepared statement",
            Kept::Seed => "seed",
            Kept::Library => "library",
            Kept::RemoteConnection => "remote connection",
            Kept::Replication => "replication",
            Kept::Backup => "backup",
        }
    }
}

impl ChangedSettings {
    pub fn is_nothing(&self) -> bool {
        *self == ChangedSettings::Nothing
    }

    fn named(name: &str) -> Self {
        ChangedSettings::Named(BTreeSet::from([name.to_ascii_lowercase()]))
    }

    fn add(&mut self, other: &Self) {
        match (&mut *self, other) {
            (_, ChangedSettings::Nothing) | (ChangedSettings::Any, _) => {}
            (ChangedSettings::Named(names), ChangedSettings::Named(more)) => names.extend(more.iter().cloned()),
            (_, other) => self.clone_from(other),
        }
    }
}

impl SessionEffects {
    pub fn is_nothing(&self) -> bool {
        self.names_left.is_empty() && self.unnamed_left == UnnamedLeft::Nothing && self.leaves_only_names()
    }

    /// The connection is what it was, but for settings that have a name there and no value.
    pub fn leaves_only_names(&self) -> bool {
        self.settings.is_nothing()
            && !self.is_unproven
            && self.kept.is_empty()
            && !self.is_closed
            && !self.is_of_schema_change
            && self.settings_of_transaction.is_nothing()
    }

    /// What is left when the transaction has ended.
    pub fn without_transaction(mut self) -> Self {
        let settings = std::mem::take(&mut self.settings_of_transaction);
        self.names_left.extend(custom_settings(&settings).map(str::to_owned));
        self
    }

    /// Where statements on other shards may follow in the transaction: its settings are read back like those of the session.
    pub fn with_transaction(mut self) -> Self {
        let settings = std::mem::take(&mut self.settings_of_transaction);
        self.settings.add(&settings);
        self
    }

    /// One of both may happen, or both.
    pub fn add(&mut self, other: &Self) {
        self.settings.add(&other.settings);
        self.is_unproven |= other.is_unproven;
        self.kept.extend(&other.kept);
        self.is_closed |= other.is_closed;
        self.is_of_schema_change |= other.is_of_schema_change;
        self.named.extend(other.named.iter().cloned());
        self.custom_names.extend(other.custom_names.iter().cloned());
        self.settings_of_transaction.add(&other.settings_of_transaction);
        self.names_left.extend(other.names_left.iter().cloned());
        self.unnamed_left = self.unnamed_left.max(other.unnamed_left);
    }

    pub fn sets(&mut self, name: &str) {
        self.named.insert(name.to_ascii_lowercase());
        self.settings.add(&ChangedSettings::named(name));
    }

    /// `None`: a name that is not known.
    pub fn sets_for_transaction(&mut self, name: Option<&str>) {
        self.names_left.extend(name.filter(|name| name.contains('.')).map(str::to_ascii_lowercase));
        self.settings_of_transaction.add(&name.map_or(ChangedSettings::Any, ChangedSettings::named));
    }

    /// The same, of a name that the text does not say. `is_given`: it is a parameter or variable as it is.
    pub fn sets_unnamed_for_transaction(&mut self, is_given: bool) {
        self.sets_for_transaction(None);
        self.unnamed_left = self.unnamed_left.max(if is_given { UnnamedLeft::Given } else { UnnamedLeft::Made });
    }

    pub fn sets_any(&mut self) {
        self.settings = ChangedSettings::Any;
    }

    /// One whose name the text does not say. `is_given`: it is a parameter or variable as it is.
    pub fn sets_unnamed(&mut self, is_given: bool) {
        self.may_do_anything();
        self.keeps(if is_given { Kept::UnnamedSetting } else { Kept::MadeSetting });
    }

    /// What has to stay on its connection as long as the session lasts.
    pub fn keeping(&self) -> impl Iterator<Item = Kept> {
        let is_given = self.kept.contains(&Kept::GivenText);
        self.kept.iter().copied().filter(move |kept| !(*kept == Kept::GivenText || (is_given && *kept == Kept::PreparedByText)))
    }

    /// The setting whose name no body says has one of these names, each a whole constant or parameter. Where a name is left that is
    /// none of them, nobody else may have the connection.
    pub fn with_names(&self, constants: impl Iterator<Item = String>) -> Self {
        let names = constants.filter(|constant| is_custom_name(constant)).map(|name| name.to_ascii_lowercase());
        let names: BTreeSet<String> = names.collect();
        let mut all = self.clone();
        if !names.is_empty() {
            all.kept.remove(&Kept::UnnamedSetting);
        }
        match std::mem::take(&mut all.unnamed_left) {
            UnnamedLeft::Nothing => {}
            UnnamedLeft::Given if !names.is_empty() => all.names_left.extend(names.iter().cloned()),
            UnnamedLeft::Given | UnnamedLeft::Made => all.is_closed = true,
        }
        all.custom_names.extend(names);
        all
    }

    /// Are there names that only the statement's values may say?
    pub fn is_to_be_named(&self) -> bool {
        self.kept.contains(&Kept::UnnamedSetting) || self.unnamed_left != UnnamedLeft::Nothing
    }

    /// Custom settings that may be set, for the session or for the transaction: their names stay on the connection, whatever ends it.
    pub fn custom_settings(&self) -> impl Iterator<Item = &str> {
        let of_session =
            custom_settings(&self.settings).chain(self.named.iter().map(String::as_str).filter(|name| name.contains('.')));
        of_session.chain(self.custom_settings_of_transaction())
    }

    pub fn custom_settings_of_transaction(&self) -> impl Iterator<Item = &str> {
        custom_settings(&self.settings_of_transaction).chain(self.names_left.iter().map(String::as_str))
    }

    pub fn keeps(&mut self, what: Kept) {
        self.kept.insert(what);
    }

    /// The same of what every statement may come to and hardly any does: it refuses none and pins no connection.
    pub fn of_anything(mut self) -> Self {
        self.is_closed |= !std::mem::take(&mut self.kept).is_empty();
        self.custom_names.append(&mut self.named);
        self.settings_of_transaction = ChangedSettings::Nothing;
        self.names_left = BTreeSet::new();
        self.unnamed_left = UnnamedLeft::Nothing;
        self
    }

    /// Of a text that is not understood, or runs others that it makes itself: by the words in it.
    pub fn of_unread(text: &str) -> Self {
        let mut effects = SessionEffects { is_unproven: true, ..SessionEffects::default() };
        let text = text.to_ascii_lowercase();
        let words: Vec<&str> = words(&text).collect();
        let has = |word: &str| words.contains(&word);
        let has_pair = |first: &str, second: &str| words.windows(2).any(|pair| pair == [first, second]);
        let has_part = |part: &str| words.iter().any(|word| word.contains(part));
        if has("set_config") || has("reset") || has("discard") || has("pg_settings") || begins_with(&text, "set") {
            effects.sets_any();
            effects.custom_names = custom_names(&text);
        }
        effects.is_closed = calls_made_name(&text) || names_setting_of_object(&text, &words);
        let is_dropped_at_commit = has_pair("commit", "drop");
        let makes_temporary =
            ["create", "local", "global", "into"].iter().any(|before| has_pair(before, "temp") || has_pair(before, "temporary"));
        for (what, is_there) in [
            (Kept::UnnamedSetting, sets_unnamed(&text)),
            (Kept::TemporaryObject, (makes_temporary || has("pg_temp")) && !is_dropped_at_commit),
            (Kept::AdvisoryLock, words.iter().any(|word| is_session_lock(word))),
            (Kept::Listen, has("listen")),
            (Kept::HeldCursor, has_pair("with", "hold")),
            (Kept::PreparedByText, has("prepare") || has("deallocate") || has("discard")),
            (Kept::Seed, has("setseed") || (has("seed") && begins_with(&text, "set"))),
            (Kept::Library, begins_with(&text, "load")),
            (Kept::RemoteConnection, has_part("dblink_connect")),
            (Kept::Replication, has_part("replication_origin") || has_part("_replication_slot")),
            (Kept::Backup, has("pg_backup_start") || has("pg_start_backup")),
        ] {
            if is_there {
                effects.keeps(what);
            }
        }
        effects
    }

    /// Of a body in another language: these keep values from call to call, which no reset takes away. Where it may run statements, nobody
    /// knows how it makes their text, or from which of the values that it is given.
    pub fn of_other_language(language: &str, body: &str) -> Self {
        let mut effects = Self::of_unread(body);
        let body = body.to_ascii_lowercase();
        if may_run_statements(language, &body) {
            effects.may_do_anything();
            effects.custom_names.extend(custom_names(&body));
        }
        let has_globals = words(&body).any(|word| matches!(word, "_shared" | "gd" | "sd" | "global" | "globalthis"));
        Self { is_closed: effects.is_closed || has_globals, ..effects }
    }

    /// Something is left that outlives a reset.
    pub fn outlives_reset(&self) -> bool {
        let is_kept = |kept: &Kept| {
            matches!(kept, Kept::Library | Kept::RemoteConnection | Kept::Replication | Kept::Backup | Kept::UnnamedSetting)
        };
        self.is_closed || self.kept.iter().any(is_kept) || !self.custom_names.is_empty()
    }

    /// Of a call of a function of PostgreSQL itself, or of an extension, by its name alone. `set_config` is told by its arguments.
    pub fn of_function(name: &str) -> Self {
        let mut effects = SessionEffects::default();
        match name {
            "setseed" => effects.keeps(Kept::Seed),
            "set_limit" => effects.sets("pg_trgm.similarity_threshold"),
            "pg_backup_start" | "pg_start_backup" => effects.keeps(Kept::Backup),
            "dblink_connect" | "dblink_connect_u" => effects.keeps(Kept::RemoteConnection),
            _ if name.starts_with("pg_replication_origin_") || name.ends_with("_replication_slot") => {
                effects.keeps(Kept::Replication);
            }
            _ if is_session_lock(name) => effects.keeps(Kept::AdvisoryLock),
            _ if READS_BY_ARGUMENT.contains(&name) => effects.may_do_anything(),
            _ => {}
        }
        effects
    }

    /// It runs SQL that is not in any text that could be read.
    pub fn may_do_anything(&mut self) {
        self.is_unproven = true;
        self.sets_any();
    }

    /// Of a function that is written in C: what it keeps in the session's memory no reset takes away.
    pub fn of_c_function(name: &str, volatility: char) -> Self {
        let known = Self::of_function(name);
        let is_harmless = volatility != 'v' || HARMLESS_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let is_known = is_harmless || !known.is_nothing();
        let (is_unproven, is_closed) = (known.is_unproven || !is_known, known.is_closed || !is_known);
        SessionEffects { is_unproven, is_closed, ..known }
    }

    /// A definition, as PostgreSQL prints it, names something of PostgreSQL's own that leaves something behind: pg_depend does not
    /// know of it.
    pub fn is_mentioned(definition: &str) -> bool {
        // Whole schemas are looked through, and hardly any definition has one of these.
        let may_be =
            || ["set_", "setseed", "pg_", "dblink_", "_slot", "_to_xml", "ts_"].iter().any(|part| definition.contains(part));
        let leaves = |word: &str| matches!(word, "set_config" | "pg_settings") || !Self::of_function(word).is_nothing();
        may_be() && words(definition).any(leaves)
    }
}

/// Takes, tries to take or asks for a lock that outlives the transaction. Giving one back leaves nothing.
fn is_session_lock(name: &str) -> bool {
    (name.starts_with("pg_advisory_lock") || name.starts_with("pg_try_advisory_lock")) && !name.contains("xact")
}

/// Functions of pg_catalog that run SQL, or look at tables that their arguments name, which may be views.
pub(super) const READS_BY_ARGUMENT: [&str; 16] = [
    "query_to_xml",
    "query_to_xmlschema",
    "query_to_xml_and_xmlschema",
    "cursor_to_xml",
    "cursor_to_xmlschema",
    "table_to_xml",
    "table_to_xmlschema",
    "table_to_xml_and_xmlschema",
    "schema_to_xml",
    "schema_to_xmlschema",
    "schema_to_xml_and_xmlschema",
    "database_to_xml",
    "database_to_xmlschema",
    "database_to_xml_and_xmlschema",
    "ts_stat",
    "ts_rewrite",
];

/// Functions of pg_catalog that make values of types that their arguments name, which may be domains with checks.
pub(super) const CONVERTS_BY_ARGUMENT: [&str; 2] = ["pg_input_is_valid", "pg_input_error_info"];

/// Volatile functions of known extensions that keep no state in the session.
const HARMLESS_PREFIXES: [&str; 20] = [
    "uuid_",
    "gen_",
    "normal_rand",
    "moddatetime",
    "triggered_change_notification",
    "lo_manage",
    "autoinc",
    "insert_username",
    "check_primary_key",
    "check_foreign_key",
    "pg_stat_",
    "pgrowlocks",
    "pgstat",
    "pg_buffercache",
    "pg_prewarm",
    "heap_",
    "dblink",
    "hypopg_hide",
    "pgp_",
    "crypt",
];

/// A body in lower case. One of an unknown language may be nothing but the name of what runs.
fn may_run_statements(language: &str, body: &str) -> bool {
    let language = language.to_ascii_lowercase();
    let is_known = LANGUAGES_READ_BY_WORDS.iter().any(|known| language.starts_with(known));
    let runs = |word: &str| word.starts_with("spi_") || word.starts_with("dbi_") || RUNNING_WORDS.contains(&word);
    !is_known || words(body).any(runs)
}

/// PL/Python, PL/Perl, PL/Tcl, PL/v8 and their kind, with or without trust, and in their versions.
const LANGUAGES_READ_BY_WORDS: [&str; 6] = ["plpython", "plperl", "pltcl", "plv8", "plcoffee", "plls"];
/// What runs a statement in these languages, or a text of their own that may.
const RUNNING_WORDS: [&str; 8] = ["execute", "prepare", "cursor", "find_function", "exec", "eval", "spi", "subst"];

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).filter(|word| !word.is_empty())
}

fn custom_settings(settings: &ChangedSettings) -> impl Iterator<Item = &str> {
    let names = match settings {
        ChangedSettings::Named(names) => Some(names),
        ChangedSettings::Nothing | ChangedSettings::Any => None,
    };
    names.into_iter().flatten().map(String::as_str).filter(|name| name.contains('.'))
}

/// Words with a dot in them: asking for a setting that is none does no harm.
fn custom_names(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | '$');
    let names = text.split(|letter: char| !is_part(letter)).filter(|word| is_custom_name(word));
    names.map(str::to_owned).collect()
}

/// A name as PostgreSQL takes one for a custom setting.
pub fn is_custom_name(word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    let is_name =
        |part: &str| part.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') && part.chars().all(is_part);
    word.contains('.') && word.len() <= NAME_BYTES_MAX && word.split('.').all(is_name)
}

/// Longer than any name of a setting.
const NAME_BYTES_MAX: usize = 256;

/// A text that is made when it runs sets something whose name does not stand in it: `'SET ' || name`, `set_config(name, …)`.
fn sets_unnamed(text: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let has_unnamed_set = statements_with(text, "set").any(|after| {
        let mut rest = after.trim_start();
        for word in ["session", "local"] {
            rest = rest.strip_prefix(word).map_or(rest, str::trim_start);
        }
        !rest.trim_start_matches('"').starts_with(is_part)
    });
    // The name is a constant.
    let is_named = |arguments: &str| {
        let name = arguments.trim_start();
        name.trim_start_matches('\'').starts_with(is_part) && name.starts_with('\'')
    };
    let calls = text.split("set_config").skip(1).filter_map(|after| after.trim_start().strip_prefix('('));
    has_unnamed_set || calls.into_iter().any(|arguments| !is_named(arguments))
}

/// A text that is made when it runs calls a function whose name is put into it: `format('SELECT %I(1)', f)`, `'SELECT ' || f || '(1)'`.
/// What that leaves no body says.
fn calls_made_name(text: &str) -> bool {
    let calls = |before: &str| {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        // The schema of the name.
        let before = ["%i.", "%s."].iter().find_map(|schema| before.strip_suffix(schema)).unwrap_or(before);
        let last = before.trim_end().rsplit(|letter: char| !is_part(letter)).next().unwrap_or_default();
        !NO_CALL_AFTER.contains(&last)
    };
    let by_format = ["%i(", "%s("].iter().flat_map(|made| text.match_indices(made)).any(|(at, _)| calls(text.split_at(at).0));
    let by_appending = text.match_indices("||").any(|(at, _)| {
        let (before, after) = text.split_at(at);
        let next = after.trim_start_matches('|').trim_start().strip_prefix('\'');
        let is_open = next.is_some_and(|constant| constant.trim_start().starts_with('('));
        is_open && before.rsplit_once('\'').is_some_and(|(constant, _)| calls(constant))
    });
    by_format || by_appending
}

/// Words that a list in parentheses may follow with one name in between.
const NO_CALL_AFTER: [&str; 26] = [
    "into",
    "table",
    "exists",
    "on",
    "only",
    "references",
    "index",
    "view",
    "using",
    "as",
    "with",
    "key",
    "unique",
    "constraint",
    "type",
    "domain",
    "role",
    "function",
    "procedure",
    "aggregate",
    "in",
    "values",
    "any",
    "all",
    "over",
    "filter",
];

/// A function, role or database gets a setting: the server looks at it, and has its name on this connection afterwards.
fn names_setting_of_object(text: &str, words: &[&str]) -> bool {
    let has = |among: &[&str]| words.iter().any(|word| among.contains(word));
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    let is_named =
        |name: &str| is_custom_name(name.split(|letter: char| !(is_part(letter) || letter == '.')).next().unwrap_or_default());
    let may_name = |after: &str| {
        let name = after.trim_start().trim_start_matches('"');
        after.starts_with(|letter: char| letter.is_whitespace() || letter == '\'') && (is_named(name) || !name.starts_with(is_part))
    };
    has(&["create", "alter"])
        && has(&["function", "procedure", "routine", "role", "user", "database"])
        && text.match_indices("set").any(|(at, word)| {
            let (before, rest) = text.split_at(at);
            let after = rest.get(word.len()..).unwrap_or_default();
            !before.ends_with(is_part) && may_name(after)
        })
}

/// A statement in the text begins with this word: at its front, after a semicolon or a quote. The SET of an UPDATE stands after a
/// name.
fn begins_with(text: &str, word: &str) -> bool {
    statements_with(text, word).next().is_some()
}

/// What stands behind the word in each of these statements.
fn statements_with<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = &'t str> {
    text.match_indices(word).filter_map(|(at, _)| {
        let (before, after) = text.split_at(at);
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let after = after.get(word.len()..).filter(|rest| !rest.starts_with(is_part))?;
        let before = before.trim_end();
        let is_first = before.is_empty()
            || before.ends_with([';', '\'', '"', '$', '('])
            || ["begin", "then", "else", "loop", "atomic", "execute"].iter().any(|keyword| before.ends_with(keyword));
        is_first.then_some(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> ChangedSettings {
        ChangedSettings::Named(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn what_a_function_is_given_counts() {
        let unnamed = |text: &str| SessionEffects::of_unread(text).kept.contains(&Kept::UnnamedSetting);
        for text in [
            "EXECUTE 'SET ' || k",
            "EXECUTE format('SET %I = %L', k, v)",
            "EXECUTE format('SELECT set_config(%L, %L, false)', k, v)",
        ] {
            assert!(unnamed(text), "{text}");
        }
        for text in [
            "EXECUTE 'SET search_path = ' || p",
            "EXECUTE 'SET LOCAL work_mem = ' || p",
            "EXECUTE 'SET SESSION \"app.x\" = 1'",
            "EXECUTE 'SELECT set_config(''app.x'', ' || v || ', false)'",
            "UPDATE t SET a = 1",
        ] {
            assert!(!unnamed(text), "{text}");
        }
        let mut effects = SessionEffects::default();
        effects.sets_unnamed(true);
        assert!(effects.is_unproven);
        let with = |constants: &[&str]| effects.with_names(constants.iter().map(|constant| (*constant).to_owned()));
        for unnamed in [&["tenant", "5"][..], &["app."], &["it is app.a"], &["joe@example.com", "7.5"]] {
            assert!(with(unnamed).kept.contains(&Kept::UnnamedSetting), "{unnamed:?}");
        }
        let many: Vec<String> = (0..40).flat_map(|number| [format!("app.n{number:02}"), "app.n00".to_owned()]).collect();
        assert_eq!(effects.with_names(many.into_iter()).custom_names.len(), 40);
        let named = with(&["5", "app.Tenant"]);
        assert!(named.kept.is_empty() && named.custom_names.contains("app.tenant"), "{named:?}");
        for (is_given, constant, is_closed) in [(true, "app.Tenant", false), (true, "tenant", true), (false, "app.tenant", true)] {
            let mut effects = SessionEffects::default();
            effects.sets_unnamed_for_transaction(is_given);
            assert!(effects.is_to_be_named() && !effects.is_nothing());
            let named = effects.with_names([constant.to_owned()].into_iter());
            assert_eq!((named.is_closed, named.names_left.contains("app.tenant")), (is_closed, !is_closed), "{constant}");
            assert!(!named.is_to_be_named());
        }
    }

    #[test]
    fn what_no_reset_takes_back_closes_the_connection() {
        let is_closed = |text: &str| SessionEffects::of_unread(text).is_closed;
        for text in [
            "EXECUTE format('SELECT %I()', f)",
            "EXECUTE format('SELECT %I.%I(1)', s, f)",
            "EXECUTE 'SELECT ' || f || '(1)'",
            "EXECUTE 'CALL ' || quote_ident(f) || ' ()'",
            "EXECUTE 'CREATE FUNCTION f() RETURNS int LANGUAGE sql SET app.x = 1 AS $x$ SELECT 1 $x$'",
            "EXECUTE format('ALTER FUNCTION f() SET %I = 1', n)",
            "EXECUTE 'ALTER ROLE r SET ' || n || ' = 1'",
        ] {
            assert!(is_closed(text), "{text}");
        }
        for text in [
            "EXECUTE format('INSERT INTO %I(a, b) VALUES (1, 2)', t)",
            "EXECUTE format('INSERT INTO %I.%I (a) SELECT 1', s, t)",
            "EXECUTE 'INSERT INTO ' || t || '(a) VALUES (1)'",
            "EXECUTE 'INSERT INTO ' || quote_ident(t) || ' (a) VALUES (1)'",
            "EXECUTE 'SELECT 1 WHERE a IN ' || '(1, 2)'",
            "EXECUTE 'CREATE TABLE ' || t || ' (a int)'",
            "EXECUTE 'CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path = a AS $x$ SELECT 1 $x$'",
            "EXECUTE format('UPDATE %I SET a = 1', t)",
        ] {
            assert!(!is_closed(text), "{text}");
        }
    }

    #[test]
    fn effects_add_up() {
        let mut effects = SessionEffects::default();
        assert!(effects.is_nothing());
        effects.sets("App.A");
        let mut other = SessionEffects::default();
        other.sets("work_mem");
        other.keeps(Kept::Seed);
        effects.add(&other);
        assert_eq!((&effects.settings, effects.is_unproven), (&named(&["app.a", "work_mem"]), false));
        other.sets_any();
        effects.add(&other);
        effects.sets("role");
        assert_eq!((effects.settings, effects.kept.len()), (ChangedSettings::Any, 1));
    }

    #[test]
    fn an_unread_text_is_judged_by_its_words() {
        let of = |text: &str| SessionEffects::of_unread(text);
        for plain in ["execute 'select 1'", "execute format('update %I set a = 1', t)", "update t set x = asset"] {
            assert_eq!(of(plain), SessionEffects { is_unproven: true, ..SessionEffects::default() }, "{plain}");
        }
        for sets in [
            "execute 'SET work_mem = 1'",
            "execute $x$ set role to b$x$",
            "select 1; set x = 2",
            "PERFORM Set_Config(a, b, false)",
            "execute 'reset all'",
            "execute concat('SET', ' ', x)",
            "update pg_settings set setting = 'b'",
            "set search_path = b",
        ] {
            assert_eq!(of(sets).settings, ChangedSettings::Any, "{sets}");
        }
        let names = of("execute concat('SELECT', ' ', $e$set_config('app.Tenant', '5', 0.5)$e$, c || '.x')").custom_names;
        assert_eq!(names, BTreeSet::from(["app.tenant".to_owned()]));
        for (text, kept) in [
            ("execute 'create temp table x ()'", Kept::TemporaryObject),
            ("perform pg_advisory_lock(1)", Kept::AdvisoryLock),
            ("execute 'listen ' || c", Kept::Listen),
            ("declare c cursor with hold", Kept::HeldCursor),
            ("execute 'deallocate all'", Kept::PreparedByText),
            ("execute 'load ''x'''", Kept::Library),
            ("execute format('LOAD %L', x)", Kept::Library),
            ("execute format('SET %I = 0.5', 'seed')", Kept::Seed),
            ("perform dblink_connect('x')", Kept::RemoteConnection),
            ("select pg_replication_origin_session_setup('x')", Kept::Replication),
            ("select pg_backup_start('x')", Kept::Backup),
        ] {
            assert!(of(text).kept.contains(&kept), "{text}");
        }
        for text in [
            "select temp, seed, load from t",
            "perform pg_advisory_xact_lock(1)",
            "select pg_advisory_unlock(1)",
            "create temp table x () on commit drop",
        ] {
            assert!(of(text).kept.is_empty(), "{text}");
        }
    }

    #[test]
    fn what_another_language_sets_is_read_back_where_it_may_run_statements() {
        for (language, body) in [
            ("plpython3u", "plpy.execute(q)"),
            ("plpython3u", "p = plpy.prepare(' '.join(args)); p.execute([])"),
            ("PLPython2u", "run = plpy.execute\nrun('SE' + 'T ' + name)"),
            ("plperl", "spi_exec_query($_[0]);"),
            ("plperlu", "eval $_[0];"),
            ("pltcl", "spi_exec $1"),
            ("plv8", "return plv8.execute(q)"),
            ("java", "org.example.Tenant.choose"),
            ("plrust", "Ok(Some(1))"),
        ] {
            let effects = SessionEffects::of_other_language(language, body);
            assert_eq!((effects.settings, effects.is_unproven), (ChangedSettings::Any, true), "{language}: {body}");
        }
        let named = SessionEffects::of_other_language("plperl", "my $n = 'App.Tenant'; spi_exec_query(f($n))").custom_names;
        assert_eq!(named, BTreeSet::from(["app.tenant".to_owned()]));
        for (language, body) in [("plpython3u", "return a + b"), ("plperl", "return $_[0] . 'executed';"), ("plv8", "return a.b")] {
            let effects = SessionEffects::of_other_language(language, body);
            assert_eq!((effects.settings, effects.is_unproven), (ChangedSettings::Nothing, true), "{language}: {body}");
        }
    }

    #[test]
    fn functions_that_leave_something_are_known_by_name() {
        assert!(SessionEffects::of_function("count").is_nothing());
        assert_eq!(SessionEffects::of_function("set_limit").settings, named(&["pg_trgm.similarity_threshold"]));
        assert!(SessionEffects::of_function("pg_try_advisory_lock_shared").kept.contains(&Kept::AdvisoryLock));
        assert!(SessionEffects::of_function("pg_advisory_xact_lock").is_nothing());
        assert!(SessionEffects::of_c_function("uuid_generate_v4", 'v').is_nothing());
        assert!(SessionEffects::of_c_function("http_set_curlopt", 'v').is_closed);
        assert!(SessionEffects::of_c_function("similarity", 'i').is_nothing());
        for (body, is_closed) in [("$_SHARED{a} = 1", true), ("GD['a'] = 1", true), ("return 1", false)] {
            assert_eq!(SessionEffects::of_other_language("plperl", body).is_closed, is_closed, "{body}");
        }
        for (text, is_mentioned) in [("(set_config('a', 'b', false))", true), ("(a > 1)", false), ("pg_advisory_lock(k)", true)] {
            assert_eq!(SessionEffects::is_mentioned(text), is_mentioned, "{text}");
        }
    }
}
