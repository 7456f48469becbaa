//! The structure of the sources, checked: imports go down the layers only, every file says what it is for, none is too long.
//!
//! The layer table of `src/lib.rs` is here as data, and a test holds the two together. `src/main.rs` and `src/bin` stand above
//! all layers. Reads the text of the sources without comments and literals; knows Rust only as far as `crate::` paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the top down.
const LAYERS: &[(u32, &[&str])] = &[
    (6, &["server", "demo"]),
    (5, &["session"]),
    (4, &["execute", "declare", "rebalance"]),
    (3, &["plan", "routing", "backend"]),
    (2, &["sql", "shardmap"]),
    (1, &["auth", "net", "telemetry", "config", "background", "failpoint"]),
    (0, &["catalog", "shard_key", "error", "wire"]),
];

/// Arrows between modules of one layer, which are refused unless listed: from, to, why.
const ARROWS_WITHIN_A_LAYER: &[(&str, &str, &str)] = &[
    ("shard_key", "error", "a value that does not convert becomes a PostgreSQL error"),
    ("wire", "error", "an error is originated as a message"),
    ("wire", "shard_key", "the formats of a value, text and binary, have one type"),
    ("net", "config", "addresses and certificates are settings"),
    ("auth", "config", "users and their verifiers are settings"),
    ("auth", "net", "logging in to a shard happens on its stream"),
    ("telemetry", "config", "what is logged, and how, is a setting"),
    ("plan", "routing", "a plan is made for the shards that routing found"),
    ("backend", "routing", "a text for a shard is sealed with routing's reason why it may run there"),
    ("sql", "shardmap", "the analysis looks tables up in a map snapshot"),
];

/// Arrows that the layers would allow: from, to, why not.
const FORBIDDEN_ARROWS: &[(&str, &str, &str)] = &[
    ("rebalance", "plan", "moves never go through the query path"),
    ("rebalance", "routing", "moves never go through the query path"),
    ("demo", "rebalance", "only the operator's command line uses it"),
    ("session", "rebalance", "only the operator's command line uses it"),
];

const FILE_LINES_MAX: usize = 800;

/// How much of `Session` there may be: its fields, and files with methods of its own. To be made less, never more: what belongs together
/// is a type that owns its methods, and a way of answering is functions that take the session.
const SESSION_FIELDS_MAX: usize = 25;
const SESSION_FILES_MAX: usize = 35;

/// Longer files: which, how long they may be, why.
const LONG_FILES: &[(&str, usize, &str)] = &[];

#[test]
fn imports_go_down_the_layers_only() {
    let mut faults = Vec::new();
    for (arrow, files) in arrows() {
        if let Err(reason) = check_arrow(arrow.0.as_str(), arrow.1.as_str()) {
            faults.push(format!("{} -> {}: {reason} ({})", arrow.0, arrow.1, files.join(", ")));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_arrow_listed_within_a_layer_is_in_use() {
    let arrows = arrows();
    for (from, to, _) in ARROWS_WITHIN_A_LAYER {
        assert_eq!(layer(from), layer(to), "{from} -> {to} is not within a layer");
        assert!(arrows.contains_key(&((*from).to_owned(), (*to).to_owned())), "{from} -> {to} is listed, but nothing uses it");
    }
}

#[test]
fn the_layer_table_in_lib_rs_is_the_one_here() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let mut documented: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let Some((Ok(layer), modules)) = line.split_once('|').map(|(layer, modules)| (layer.trim().parse(), modules)) else {
            continue;
        };
        // Every second piece stands between backticks; the words among them that are no modules have no layer.
        let names = modules.split('`').skip(1).step_by(2).filter(|name| crate::layer(name).is_some()).map(str::to_owned);
        documented.insert(layer, names.collect());
    }
    let here: BTreeMap<u32, BTreeSet<String>> =
        LAYERS.iter().map(|(layer, modules)| (*layer, modules.iter().map(|module| (*module).to_owned()).collect())).collect();
    assert_eq!(documented, here);
    for file in rust_files("src") {
        if let Some(module) = module_of(&file) {
            assert!(layer(&module).is_some(), "module {module} has no layer");
        }
    }
}

/// What PostgreSQL runs comes to a shard by `backend::Output` alone, which asks why it may run there.
#[test]
fn only_the_backend_writes_requests_to_shards() {
    let requests = ["originate::query(", "originate::parse(", "originate::bind("];
    let mut faults = Vec::new();
    for file in rust_files("src") {
        let name = relative(&file);
        if name.starts_with("src/backend/") || name == "src/wire/originate.rs" {
            continue;
        }
        let text = without_comments_and_literals(&fs::read_to_string(&file).unwrap());
        // What a test makes is no request to a shard.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        faults.extend(requests.iter().filter(|request| code.contains(**request)).map(|request| format!("{name}: {request})")));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Reasons that routing and `sql::residues` alone can give.
#[test]
fn reasons_are_given_by_their_makers_alone() {
    let makers = [
        ("Pinned(())", "src/routing/reach.rs"),
        ("OneOwner(())", "src/routing/reach.rs"),
        ("Unsharded(())", "src/routing/reach.rs"),
        ("Named(())", "src/routing/reach.rs"),
        ("Covered(text", "src/sql/residues/mod.rs"),
    ];
    for file in rust_files("src") {
        let code = without_comments_and_literals(&fs::read_to_string(&file).unwrap());
        for (reason, maker) in makers {
            assert!(!code.contains(reason) || relative(&file) == maker, "{}: {reason} is made in {maker}", relative(&file));
        }
    }
}

/// An `impl` that grows into every file is a room without walls, and imports do not show it.
#[test]
fn the_session_does_not_grow() {
    let session = fs::read_to_string(root().join("src/session/mod.rs")).unwrap();
    let body = session.split("\npub struct Session {\n").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
    let is_field = |line: &&str| !line.trim_start().starts_with("//") && line.contains(':');
    let fields = body.lines().filter(is_field).count();
    assert!((1..=SESSION_FIELDS_MAX).contains(&fields), "{fields} fields");
    let has_methods = |file: &&PathBuf| fs::read_to_string(file).unwrap().lines().any(|line| line == "impl Session {");
    let files = rust_files("src/session").iter().filter(has_methods).count();
    assert!((1..=SESSION_FILES_MAX).contains(&files), "methods in {files} files");
}

/// The transaction alone looks through the shards' connections that it has.
#[test]
fn participants_are_the_transactions() {
    for file in rust_files("src/session") {
        let name = relative(&file);
        let code = without_comments_and_literals(&fs::read_to_string(&file).unwrap());
        let is_inside = name.starts_with("src/session/transaction/");
        assert!(is_inside || !code.contains("transaction.participants."), "{name} reaches into the transaction");
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<String> = all_files()
        .into_iter()
        .filter(|file| !fs::read_to_string(file).unwrap().trim_start().starts_with("//!"))
        .map(|file| relative(&file))
        .collect();
    assert!(silent.is_empty(), "without a module doc: {silent:?}");
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = all_files()
        .into_iter()
        .map(|file| (fs::read_to_string(&file).unwrap().lines().count(), file))
        .filter(|(lines, file)| *lines > lines_max(&relative(file)))
        .map(|(lines, file)| format!("{} ({lines} lines)", relative(&file)))
        .collect();
    assert!(long.is_empty(), "more than {FILE_LINES_MAX} lines: {long:?}");
}

/// A width or precision that is given at run time is limited to 16 bits: beyond them formatting panics.
#[test]
fn no_format_has_a_width_that_is_given_at_run_time() {
    let mut faults = Vec::new();
    for file in rust_files("src") {
        let text = fs::read_to_string(&file).unwrap();
        faults.extend(
            strings(&text).filter(|string| has_width_by_name(string)).map(|string| format!("{}: {string}", relative(&file))),
        );
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_width_by_name_is_told_from_other_braces() {
    for string in ["{:blanks$}{text}", "a {name:>width$} b", "{0:1$}", "{value:.places$}", "{:.*}"] {
        assert!(has_width_by_name(string), "{string}");
    }
    for string in ["{:>8} ${number}", "{{:$}}", "{name}:$1", "'{a:1}' $", "{:?}", "$1::{kind}"] {
        assert!(!has_width_by_name(string), "{string}");
    }
    let text = "let a = \"{:x$}\"; // \"{:y$}\"\nlet b = r#\"c\"#; let d = 'e';";
    assert_eq!(strings(text).collect::<Vec<_>>(), ["\"{:x$}\"", "r#\"c\"#"]);
}

#[test]
fn the_reader_of_paths_knows_what_is_code() {
    let read = |text: &str| crate_paths(&without_comments_and_literals(text)).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(read("use crate::sql::Analysis;\nfn f() { crate::plan::plan() }"), "plan sql");
    assert_eq!(read("use crate::{\n    error::{PgError, A},\n    shardmap::model,\n    wire,\n};"), "error shardmap wire");
    assert_eq!(read("// crate::a\n/* crate::b /* crate::c */ crate::d */\nlet s = \"crate::e \\\" crate::f\";"), "");
    assert_eq!(read("let s = r#\"crate::a \" crate::b\"#; let c = '\"'; x::<'a>(crate::g::h);"), "g");
    assert_eq!(read("pub(in crate::session::cycle) fn f<'a>() {} let q = '\\''; crate::net::x"), "net session");
    assert_eq!(read("pub(crate) use my_crate::other;"), "");
}

#[test]
fn arrows_up_within_and_forbidden_are_told_apart() {
    assert!(check_arrow("session", "plan").is_ok());
    assert!(check_arrow("plan", "session").unwrap_err().contains("up"));
    assert!(check_arrow("net", "auth").unwrap_err().contains("one layer"));
    assert!(check_arrow("rebalance", "execute").unwrap_err().contains("one layer"));
    assert!(check_arrow("rebalance", "routing").unwrap_err().contains("query path"));
    assert!(check_arrow("session", "nonsense").unwrap_err().contains("no layer"));
}

fn lines_max(file: &str) -> usize {
    LONG_FILES.iter().find(|long| long.0 == file).map_or(FILE_LINES_MAX, |long| long.1)
}

fn check_arrow(from: &str, to: &str) -> Result<(), String> {
    let is_listed =
        |list: &[(&str, &str, &str)]| list.iter().find(|arrow| (arrow.0, arrow.1) == (from, to)).map(|arrow| arrow.2.to_owned());
    if let Some(reason) = is_listed(FORBIDDEN_ARROWS) {
        return Err(reason);
    }
    match (layer(from), layer(to)) {
        (Some(from), Some(to)) if from > to => Ok(()),
        (Some(from), Some(to)) if from < to => Err("goes up".to_owned()),
        (Some(_), Some(_)) if is_listed(ARROWS_WITHIN_A_LAYER).is_some() => Ok(()),
        (Some(_), Some(_)) => Err("stays within one layer and is not listed with a reason".to_owned()),
        (None, _) | (_, None) => Err("a module has no layer".to_owned()),
    }
}

/// (from, to) → the files that say so.
fn arrows() -> BTreeMap<(String, String), Vec<String>> {
    let mut arrows: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for file in rust_files("src") {
        let Some(from) = module_of(&file) else { continue };
        let text = without_comments_and_literals(&fs::read_to_string(&file).unwrap());
        for to in crate_paths(&text).into_iter().filter(|to| *to != from) {
            arrows.entry((from.clone(), to)).or_default().push(relative(&file));
        }
    }
    arrows
}

fn layer(module: &str) -> Option<u32> {
    LAYERS.iter().find(|(_, modules)| modules.contains(&module)).map(|(layer, _)| *layer)
}

/// The module that a file belongs to; `None` for lib.rs, main.rs and bin.
fn module_of(file: &Path) -> Option<String> {
    let first = file.strip_prefix(root().join("src")).unwrap().components().next().unwrap();
    let name = first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
    (!["lib", "main", "bin"].contains(&name.as_str())).then_some(name)
}

/// The first segments of all paths that begin with `crate::`.
fn crate_paths(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':') {
            continue;
        }
        let rest = code[at + "crate::".len()..].trim_start();
        match rest.strip_prefix('{') {
            Some(list) => found.extend(first_names(list)),
            None => found.extend(leading_name(rest)),
        }
    }
    found
}

/// The names at the top level of a braced list, which begins after its brace.
fn first_names(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut depth, mut is_first) = (0, true);
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_first = true,
            _ if is_first && !character.is_whitespace() => {
                names.extend(leading_name(&list[at..]));
                is_first = false;
            }
            _ => {}
        }
    }
    names
}

fn leading_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The text with comments, strings and character literals blanked.
fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let skipped = literal_length(rest, code.chars().next_back());
        match skipped {
            0 => code.push(character),
            _ => code.push(' '),
        }
        rest = &rest[skipped.max(character.len_utf8())..];
    }
    code
}

/// The string literals of a source text.
fn strings(text: &str) -> impl Iterator<Item = &str> {
    let (mut rest, mut before) = (text, None);
    std::iter::from_fn(move || {
        while let Some(character) = rest.chars().next() {
            let length = literal_length(rest, before);
            let (piece, after) = rest.split_at(length.max(character.len_utf8()));
            (rest, before) = (after, if length > 0 { Some(' ') } else { Some(character) });
            if length > 0 && piece.starts_with(['"', 'r']) {
                return Some(piece);
            }
        }
        None
    })
}

/// Does a format string have a width or precision that an argument gives?
fn has_width_by_name(string: &str) -> bool {
    let pieces = string.replace("{{", "").replace("}}", "");
    let specs = pieces.split('{').skip(1).filter_map(|piece| piece.split_once('}')?.0.split_once(':'));
    specs.into_iter().any(|(_, spec)| spec.ends_with('$') || spec.contains("$.") || spec.contains(".*"))
}

/// Bytes of the comment or literal that begins here; 0 when none does.
fn literal_length(text: &str, before: Option<char>) -> usize {
    let is_in_name = before.is_some_and(|before| before.is_alphanumeric() || before == '_');
    if text.starts_with("//") {
        text.find('\n').unwrap_or(text.len())
    } else if text.starts_with("/*") {
        block_comment_length(text)
    } else if text.starts_with('"') {
        quoted_length(text, '"')
    } else if let Some(quoted) = text.strip_prefix('\'') {
        // A lifetime has no closing quote after its first character.
        let is_character = quoted.starts_with('\\') || quoted.chars().nth(1) == Some('\'');
        if is_character { quoted_length(text, '\'') } else { 0 }
    } else if !is_in_name && text.starts_with('r') {
        raw_string_length(text)
    } else {
        0
    }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    text.len()
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|character| *character == '#').count();
    let opening = 1 + hashes;
    if !text[opening..].starts_with('"') {
        return 0;
    }
    let closing = format!("\"{}", "#".repeat(hashes));
    text[opening + 1..].find(&closing).map_or(text.len(), |at| opening + 1 + at + closing.len())
}

fn all_files() -> Vec<PathBuf> {
    [rust_files("src"), rust_files("tests")].concat()
}

fn rust_files(directory: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![root().join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn relative(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
