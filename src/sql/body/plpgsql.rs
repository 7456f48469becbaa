//! Takes a PL/pgSQL body apart into the SQL in it.
//!
//! PL/pgSQL is keywords around SQL: the text of each statement and expression between them is cut out and handed to
//! PostgreSQL's grammar; `INTO targets`, which only PL/pgSQL knows, is cut out of it first. Control flow does not matter: all
//! branches count. Variables look like columns and do no harm. EXECUTE makes the answer unknown, and so does any statement that
//! is not recognised. Assignments to NEW are noted, since a trigger may change a row's key by them.

use super::given_texts::runs_given_text;
use super::{BODY_BYTES_MAX, Found, UNREADABLE, expression, statements};
use crate::catalog::Kept;
use crate::sql::parse::lexer::{self, TokenKind};

pub(super) fn read(body: &str, found: &mut Found) {
    if body.len() > BODY_BYTES_MAX {
        return found.lose("is too long to be read");
    }
    let tokens: Vec<Token<'_>> = lexer::tokens(body)
        .filter(|token| token.kind != TokenKind::Comment)
        .filter_map(|token| {
            Some(Token { kind: token.kind, start: token.start, end: token.end, text: body.get(token.start..token.end)? })
        })
        .collect();
    if runs_given_text(&tokens) {
        found.references.effects.may_do_anything();
        [Kept::GivenText, Kept::PreparedByText].into_iter().for_each(|kept| found.references.effects.keeps(kept));
    }
    let mut reader = Reader { body, tokens: &tokens, position: 0, found };
    reader.run();
}

#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    start: usize,
    end: usize,
    pub(super) text: &'a str,
}

impl Token<'_> {
    pub(super) fn is(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    pub(super) fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }

    /// Folded; quoted identifiers without their quotes.
    pub(super) fn name(&self) -> Option<String> {
        match self.kind {
            TokenKind::Word => Some(self.text.to_ascii_lowercase()),
            TokenKind::QuotedIdentifier => Some(self.text.trim_matches('"').replace("\"\"", "\"")),
            TokenKind::Literal(_) | TokenKind::Parameter | TokenKind::Comment | TokenKind::Symbol => None,
        }
    }
}

struct Reader<'a, 'f> {
    body: &'a str,
    tokens: &'a [Token<'a>],
    position: usize,
    found: &'f mut Found,
}

impl<'a> Reader<'a, '_> {
    fn run(&mut self) {
        let mut sections = Sections::default();
        while let Some(token) = self.peek() {
            let before = self.position;
            self.step(token, &mut sections);
            if self.found.is_lost {
                return;
            }
            assert!(self.position > before, "every step takes at least one token");
        }
        if sections.innermost().is_some() {
            self.found.lose(UNREADABLE);
        }
    }

    /// One keyword of structure, or one statement.
    fn step(&mut self, token: Token<'a>, sections: &mut Sections) {
        if sections.is_declaring && !token.is("begin") {
            return self.declaration();
        }
        if token.is_symbol("<") || token.is_symbol("#") {
            return self.label_or_option();
        }
        match token.text.to_ascii_lowercase().as_str() {
            _ if token.kind != TokenKind::Word => self.assignment_or_sql(),
            "declare" => {
                self.position += 1;
                sections.is_declaring = true;
            }
            "begin" => {
                self.position += 1;
                sections.is_declaring = false;
                sections.open(Section::Block);
            }
            "exception" => {
                self.position += 1;
                sections.open(Section::Handlers);
            }
            "end" => {
                self.end(sections);
            }
            "if" | "elsif" | "elseif" => {
                if token.is("if") {
                    sections.open(Section::If);
                }
                self.position += 1;
                self.expression_before(&["then"]);
            }
            "else" | "loop" => {
                if token.is("loop") {
                    sections.open(Section::Loop);
                }
                self.position += 1;
            }
            "while" => {
                self.position += 1;
                self.expression_before(&["loop"]);
                sections.open(Section::Loop);
            }
            "for" => {
                self.position += 1;
                self.for_loop();
                sections.open(Section::Loop);
            }
            "foreach" => {
                self.position += 1;
                self.foreach();
                sections.open(Section::Loop);
            }
            "case" => {
                self.position += 1;
                sections.open(Section::Case);
                if !self.peek().is_some_and(|next| next.is("when")) {
                    self.expression_until(&["when"]);
                }
            }
            "when" => self.when(sections),
            _ => self.simple_statement(token),
        }
    }

    fn simple_statement(&mut self, token: Token<'a>) {
        // A variable may have a keyword's name.
        if self.is_assignment() {
            return self.assignment_or_sql();
        }
        match token.text.to_ascii_lowercase().as_str() {
            "return" => self.return_statement(),
            "raise" => self.raise(),
            "assert" => {
                self.position += 1;
                self.expression_before_end();
            }
            "perform" => {
                self.position += 1;
                let text = self.take_until_end();
                expression(&text, self.found);
            }
            "execute" => self.execute(),
            "open" => self.open_cursor(),
            "fetch" => {
                let tokens = self.take_statement();
                self.note_into(tokens);
            }
            "get" => {
                let tokens = self.take_statement();
                self.bind_all(&tokens);
                self.lose_new_among(&tokens);
            }
            "move" | "close" | "null" => {
                self.take_statement();
            }
            "exit" | "continue" => {
                let tokens = self.take_statement();
                if let Some(at) = tokens.iter().position(|token| token.is("when")) {
                    let text = self.text_of(tokens.get(at + 1..).unwrap_or_default());
                    expression(&text, self.found);
                }
            }
            "commit" | "rollback" => {
                self.take_statement();
                self.found.give_up("ends transactions");
            }
            "call" => self.call(),
            _ => self.assignment_or_sql(),
        }
    }

    // ---- structure ----

    /// `<<label>>`, or `#option value` at the beginning.
    fn label_or_option(&mut self) {
        if self.peek().is_some_and(|token| token.is_symbol("#")) {
            // What a name means hangs on it.
            self.found.binds("#".to_owned());
            self.position += 3;
            return;
        }
        let end = self.tokens.iter().skip(self.position).position(|token| token.is_symbol(">"));
        match end {
            Some(end) => {
                let label = self.tokens.get(self.position..self.position + end).unwrap_or_default().to_vec();
                self.bind_all(&label);
                self.lose_new_among(&label);
                self.position += end + 2;
            }
            None => self.found.lose(UNREADABLE),
        }
    }

    /// `end;`, `end if;`, `end loop label;`, `end case;`, and the last `end` without a semicolon.
    fn end(&mut self, sections: &mut Sections) {
        sections.close();
        self.take_statement();
    }

    /// Of a CASE with its values, or of an exception handler with its conditions.
    fn when(&mut self, sections: &mut Sections) {
        self.position += 1;
        match sections.innermost() {
            Some(Section::Handlers) => {
                // Names of conditions and SQLSTATEs.
                while self.peek().is_some_and(|token| !token.is("then")) {
                    self.position += 1;
                }
                self.position += 1;
            }
            Some(Section::Case) => self.expression_before(&["then"]),
            Some(Section::Block | Section::If | Section::Loop) | None => self.found.lose(UNREADABLE),
        }
    }

    /// `name [CONSTANT] type [DEFAULT | := | = expression];`, `name CURSOR … FOR query;`, `name ALIAS FOR other;`
    fn declaration(&mut self) {
        if self.peek().is_some_and(|token| token.is("declare")) {
            self.position += 1;
            return;
        }
        let tokens = self.take_statement();
        self.bind_all(tokens.get(..1).unwrap_or_default());
        if tokens.first().and_then(Token::name).as_deref() == Some("new") {
            self.found.lose_new();
        }
        let find = |words: &[&str]| {
            let mut depth = 0;
            tokens.iter().position(|token| {
                depth += depth_of(token);
                depth == 0 && token.is_any(words)
            })
        };
        if let Some(at) = find(&["alias"]) {
            // What is assigned to one is assigned to the other.
            self.bind_all(&tokens);
            // A second name of NEW could hide assignments to it.
            if tokens.iter().skip(at).any(|token| token.name().as_deref() == Some("new")) {
                self.found.lose_new();
            }
            return;
        }
        if find(&["cursor"]).is_some() {
            let Some(at) = find(&["for", "is"]) else { return self.found.lose(UNREADABLE) };
            // Its parameters are variables of its query.
            let parameters = tokens.get(..at).unwrap_or_default().to_vec();
            self.bind_all(&parameters);
            self.lose_new_among(&parameters);
            let text = self.text_of(tokens.get(at + 1..).unwrap_or_default());
            return statements(&text, self.found);
        }
        let mut depth = 0;
        let default = tokens.iter().position(|token| {
            depth += depth_of(token);
            depth == 0 && (token.is("default") || token.is_symbol("="))
        });
        if let Some(at) = default {
            let text = self.text_of(tokens.get(at + 1..).unwrap_or_default());
            expression(&text, self.found);
        }
    }

    fn for_loop(&mut self) {
        let header = self.take_before(&["in"]);
        self.bind_all(&header);
        self.lose_new_among(&header);
        if self.peek().is_some_and(|token| token.is("reverse")) {
            self.position += 1;
        }
        if self.peek().is_some_and(|token| token.is("execute")) {
            self.take_before(&["loop"]);
            return self.found.give_up_unread("runs SQL that it makes itself (EXECUTE)");
        }
        let tokens = self.take_before(&["loop"]);
        let is_query = tokens.first().is_some_and(|token| {
            token.is_any(&["select", "with", "insert", "update", "delete", "merge", "values", "table"]) || token.is_symbol("(")
        });
        if let Some(at) = tokens.iter().position(|token| token.text == "..") {
            let low = self.text_of(tokens.get(..at).unwrap_or_default());
            let high = tokens.get(at + 1..).unwrap_or_default();
            let by = high.iter().position(|token| token.is("by")).unwrap_or(high.len());
            expression(&low, self.found);
            expression(&self.text_of(high.get(..by).unwrap_or_default()), self.found);
            if let Some(step) = high.get(by + 1..) {
                expression(&self.text_of(step), self.found);
            }
        } else if is_query {
            let text = self.text_of(&tokens);
            statements(&text, self.found);
        } else {
            // A cursor: a name, perhaps with arguments.
            self.cursor_arguments(&tokens);
        }
    }

    fn cursor_arguments(&mut self, tokens: &[Token<'a>]) {
        let Some(open) = tokens.iter().position(|token| token.is_symbol("(")) else { return };
        let inner = tokens.get(open + 1..tokens.len().saturating_sub(1)).unwrap_or_default();
        let mut depth = 0;
        let arguments = inner.split(|token| {
            depth += depth_of(token);
            depth == 0 && token.is_symbol(",")
        });
        for argument in arguments {
            // `name := value` or `name => value`
            let is_named = argument.get(1).is_some_and(|token| token.is_symbol(":") || token.is_symbol("="))
                && argument.get(2).is_some_and(|token| token.is_symbol("=") || token.is_symbol(">"));
            let text = self.text_of(if is_named { argument.get(3..).unwrap_or_default() } else { argument });
            if !text.is_empty() {
                expression(&text, self.found);
            }
        }
    }

    /// `FOREACH x [SLICE n] IN ARRAY expression LOOP`
    fn foreach(&mut self) {
        let header = self.take_before(&["in"]);
        self.bind_all(&header);
        self.lose_new_among(&header);
        if self.peek().is_some_and(|token| token.is("array")) {
            self.position += 1;
        }
        self.expression_before(&["loop"]);
    }

    // ---- statements ----

    fn return_statement(&mut self) {
        self.position += 1;
        let tokens = self.take_statement();
        match tokens.first() {
            None => {}
            Some(first) if first.is("query") => {
                if tokens.get(1).is_some_and(|token| token.is("execute")) {
                    return self.found.give_up_unread("runs SQL that it makes itself (EXECUTE)");
                }
                let text = self.text_of(tokens.get(1..).unwrap_or_default());
                statements(&text, self.found);
            }
            Some(first) if first.is("next") && tokens.len() > 1 => {
                let text = self.text_of(tokens.get(1..).unwrap_or_default());
                expression(&text, self.found);
            }
            Some(first) => {
                // A trigger that returns another row than NEW, OLD or none replaces NEW as a whole.
                if !(tokens.len() == 1 && first.is_any(&["new", "old", "null"])) {
                    self.found.lose_new();
                }
                let text = self.text_of(&tokens);
                expression(&text, self.found);
            }
        }
    }

    /// `RAISE [level] ['format' [, expression …] | condition | SQLSTATE 'x'] [USING option = expression, …];`
    fn raise(&mut self) {
        self.position += 1;
        let tokens = self.take_statement();
        let mut depth = 0;
        let mut pieces: Vec<Vec<Token<'a>>> = vec![Vec::new()];
        for token in &tokens {
            depth += depth_of(token);
            if depth == 0 && (token.is_symbol(",") || token.is("using")) {
                pieces.push(Vec::new());
            } else if let Some(piece) = pieces.last_mut() {
                piece.push(*token);
            }
        }
        // The first piece is the level with the format or condition.
        for piece in pieces.iter().skip(1) {
            let is_option = piece.first().is_some_and(|token| token.is_any(&RAISE_OPTIONS))
                && piece.get(1).is_some_and(|token| token.is_symbol("=") || token.is_symbol(":"));
            let values = match is_option {
                // `=` or `:=`
                true if piece.get(1).is_some_and(|token| token.is_symbol(":")) => piece.get(3..),
                true => piece.get(2..),
                false => piece.get(..),
            };
            let text = self.text_of(values.unwrap_or_default());
            if !text.trim().is_empty() {
                expression(&text, self.found);
            }
        }
    }

    fn open_cursor(&mut self) {
        let tokens = self.take_statement();
        match tokens.iter().position(|token| token.is("for")) {
            Some(at) => {
                let rest = tokens.get(at + 1..).unwrap_or_default();
                if rest.first().is_some_and(|token| token.is("execute")) {
                    return self.found.give_up_unread("runs SQL that it makes itself (EXECUTE)");
                }
                let text = self.text_of(rest);
                statements(&text, self.found);
            }
            None => self.cursor_arguments(&tokens),
        }
    }

    /// `target := expression;` with a target like `a`, `a.b`, `a[1]`.
    fn is_assignment(&self) -> bool {
        self.assignment_at().is_some()
    }

    /// Number of tokens before the `=` or `:=`, and where the expression begins, from here.
    fn assignment_at(&self) -> Option<(usize, usize)> {
        let rest = self.tokens.get(self.position..)?;
        rest.first()?.name()?;
        let mut at = 1;
        loop {
            let token = rest.get(at)?;
            if token.is_symbol(".") {
                rest.get(at + 1)?.name()?;
                at += 2;
            } else if token.is_symbol("[") {
                let mut depth = 0;
                loop {
                    let token = rest.get(at)?;
                    depth += depth_of(token);
                    at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            } else if token.is_symbol(":") && rest.get(at + 1)?.is_symbol("=") {
                return Some((at, at + 2));
            } else if token.is_symbol("=") {
                return Some((at, at + 1));
            } else {
                return None;
            }
        }
    }

    /// Of a text that stands there as it is, where schema changes are looked for.
    fn execute(&mut self) {
        let tokens = self.take_statement();
        match (self.found.changes.is_some(), &tokens[..]) {
            (true, [_, token]) if matches!(token.kind, TokenKind::Literal(_)) && literal(token.text).is_some() => {
                statements(&literal(token.text).unwrap_or_default(), self.found);
            }
            // What it is computed from counts.
            (true, [_, value @ ..]) => {
                let mut depth = 0;
                let end = value.iter().position(|token| {
                    depth += depth_of(token);
                    depth == 0 && token.is_any(&["into", "using"])
                });
                let (text, rest) = value.split_at(end.unwrap_or(value.len()));
                expression(&self.text_of(text), self.found);
                self.found.makes_changes = true;
                self.found.is_unread = true;
                if !rest.is_empty() {
                    self.found.give_up("runs SQL with values or results (EXECUTE)");
                }
            }
            (false, [_, token]) if literal(token.text).is_some() => {
                let mut inner = Found::default();
                statements(&literal(token.text).unwrap_or_default(), &mut inner);
                self.found.take_over(inner);
                self.found.give_up("runs SQL that it makes itself (EXECUTE)");
            }
            _ => self.found.give_up_unread("runs SQL that it makes itself (EXECUTE)"),
        }
    }

    fn assignment_or_sql(&mut self) {
        if let Some((target, value)) = self.assignment_at() {
            let tokens = self.take_statement();
            self.note_target(tokens.get(..target).unwrap_or_default());
            // What is computed for an index counts too.
            let index = tokens.get(..target).unwrap_or_default().iter().position(|token| token.is_symbol("["));
            if let Some(index) = index {
                let text = self.text_of(tokens.get(index..target).unwrap_or_default());
                expression(&format!("ARRAY{text}"), self.found);
            }
            let text = self.text_of(tokens.get(value..).unwrap_or_default());
            return expression(&text, self.found);
        }
        let tokens = self.take_statement();
        let kept = self.without_into(&tokens);
        statements(&kept, self.found);
    }

    /// INOUT and OUT arguments are assigned.
    fn call(&mut self) {
        let tokens = self.take_statement();
        self.bind_all(&tokens);
        self.lose_new_among(&tokens);
        let text = self.text_of(&tokens);
        statements(&text, self.found);
    }

    /// `new.column` is noted, also with the name of its block or function before it; `new` alone loses all.
    fn note_target(&mut self, target: &[Token<'a>]) {
        self.bind_all(target);
        let is_new = |place: usize| target.get(place).and_then(Token::name).as_deref() == Some("new");
        let is_labelled = target.get(1).is_some_and(|dot| dot.is_symbol(".")) && is_new(2) && !is_new(0);
        let place = if is_labelled { 2 } else { 0 };
        if !is_new(place) {
            return;
        }
        match (target.get(place + 1), target.get(place + 2).and_then(Token::name)) {
            (Some(dot), Some(column)) if dot.is_symbol(".") => self.found.assign_new_column(column),
            (_, _) => self.found.lose_new(),
        }
    }

    fn lose_new_among(&mut self, tokens: &[Token<'a>]) {
        if tokens.iter().any(|token| token.name().as_deref() == Some("new")) {
            self.found.lose_new();
        }
    }

    /// Names that may be assigned here, `$1` among them.
    fn bind_all(&mut self, tokens: &[Token<'a>]) {
        for token in tokens {
            match token.kind {
                TokenKind::Parameter => self.found.binds(token.text.to_owned()),
                _ => token.name().into_iter().for_each(|name| self.found.binds(name)),
            }
        }
    }

    /// Targets of FETCH.
    fn note_into(&mut self, tokens: Vec<Token<'a>>) {
        if let Some(at) = tokens.iter().position(|token| token.is("into")) {
            for target in tokens.get(at + 1..).unwrap_or_default().split(|token| token.is_symbol(",")) {
                self.note_target(target);
            }
        }
    }

    /// The statement's text without `INTO [STRICT] target, …`, which PostgreSQL's grammar would take for something else.
    fn without_into(&mut self, tokens: &[Token<'a>]) -> String {
        let mut depth = 0;
        let into = tokens.iter().enumerate().position(|(index, token)| {
            depth += depth_of(token);
            let follows = index.checked_sub(1).and_then(|before| tokens.get(before));
            depth == 0 && token.is("into") && !follows.is_some_and(|token| token.is_any(&["insert", "merge"]))
        });
        let Some(into) = into else { return self.text_of(tokens) };
        let mut at = into + 1;
        if tokens.get(at).is_some_and(|token| token.is("strict")) {
            at += 1;
        }
        loop {
            let start = at;
            while tokens.get(at).is_some_and(|token| {
                let is_first = at == start;
                let after_dot = at.checked_sub(1).and_then(|before| tokens.get(before)).is_some_and(|token| token.is_symbol("."));
                token.is_symbol(".") || ((is_first || after_dot) && token.name().is_some())
            }) {
                at += 1;
            }
            self.note_target(tokens.get(start..at).unwrap_or_default());
            if !tokens.get(at).is_some_and(|token| token.is_symbol(",")) {
                break;
            }
            at += 1;
        }
        let (before, after) =
            (self.text_of(tokens.get(..into).unwrap_or_default()), self.text_of(tokens.get(at..).unwrap_or_default()));
        format!("{before} {after}")
    }

    // ---- taking tokens ----

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.position).copied()
    }

    /// Up to the semicolon, which is taken as well.
    fn take_statement(&mut self) -> Vec<Token<'a>> {
        let rest = self.tokens.get(self.position..).unwrap_or_default();
        let end = rest.iter().position(|token| token.is_symbol(";")).unwrap_or(rest.len());
        self.position += end + 1;
        rest.get(..end).unwrap_or_default().to_vec()
    }

    fn take_until_end(&mut self) -> String {
        let tokens = self.take_statement();
        self.text_of(&tokens)
    }

    /// Up to one of these words outside of parentheses and of SQL's own CASE … END; the word is taken as well.
    fn take_before(&mut self, words: &[&str]) -> Vec<Token<'a>> {
        let tokens = self.take_to(words);
        self.position += 1;
        tokens
    }

    /// The same, the word left.
    fn take_to(&mut self, words: &[&str]) -> Vec<Token<'a>> {
        let rest = self.tokens.get(self.position..).unwrap_or_default();
        let (mut depth, mut cases) = (0, 0);
        for (index, token) in rest.iter().enumerate() {
            if depth == 0 && cases == 0 && token.is_any(words) {
                self.position += index;
                return rest.get(..index).unwrap_or_default().to_vec();
            }
            depth += depth_of(token);
            if token.is("case") {
                cases += 1;
            } else if token.is("end") {
                cases -= 1;
            }
        }
        self.found.lose(UNREADABLE);
        self.position = self.tokens.len();
        Vec::new()
    }

    fn expression_before(&mut self, words: &[&str]) {
        let tokens = self.take_before(words);
        let text = self.text_of(&tokens);
        if !self.found.is_lost {
            expression(&text, self.found);
        }
    }

    fn expression_until(&mut self, words: &[&str]) {
        let tokens = self.take_to(words);
        let text = self.text_of(&tokens);
        if !self.found.is_lost {
            expression(&text, self.found);
        }
    }

    fn expression_before_end(&mut self) {
        let text = self.take_until_end();
        expression(&text, self.found);
    }

    /// The body's own text from the first token to the last.
    fn text_of(&self, tokens: &[Token<'a>]) -> String {
        match (tokens.first(), tokens.last()) {
            (Some(first), Some(last)) => self.body.get(first.start..last.end).unwrap_or_default().to_owned(),
            (_, _) => String::new(),
        }
    }
}

/// What a string stands for, where it has no escapes.
fn literal(text: &str) -> Option<String> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return Some(inner.replace("''", "'"));
    }
    let (tag, rest) = text.strip_prefix('$')?.split_once('$')?;
    Some(rest.strip_suffix(&format!("${tag}$"))?.to_owned())
}

const RAISE_OPTIONS: [&str; 9] = ["message", "detail", "hint", "errcode", "column", "constraint", "datatype", "table", "schema"];

fn depth_of(token: &Token<'_>) -> i32 {
    match token.text {
        "(" | "[" if token.kind == TokenKind::Symbol => 1,
        ")" | "]" if token.kind == TokenKind::Symbol => -1,
        _ => 0,
    }
}

/// What is open around the current statement, so that WHEN and END are understood.
#[derive(Default)]
struct Sections {
    open: Vec<Section>,
    is_declaring: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Block,
    /// The EXCEPTION part of a block; ends with it.
    Handlers,
    If,
    Loop,
    Case,
}

impl Sections {
    fn open(&mut self, section: Section) {
        self.open.push(section);
    }

    fn close(&mut self) {
        if self.open.pop() == Some(Section::Handlers) {
            self.open.pop();
        }
    }

    fn innermost(&self) -> Option<Section> {
        self.open.last().copied()
    }
}
