//! What EXPLAIN says before the plans: the route, the shards, and why. As lines, and as a member of a JSON, XML or YAML document.

/// Where a statement goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub route: &'static str,
    pub shards: Vec<String>,
    pub why: Vec<String>,
    /// What each shard runs: its name and the SQL.
    pub on: Vec<(String, String)>,
    pub merge: Option<String>,
    /// Of a refusal.
    pub hint: Option<String>,
}

impl Head {
    pub fn new(route: &'static str, why: Vec<String>) -> Self {
        Self { route, shards: Vec::new(), why, on: Vec::new(), merge: None, hint: None }
    }

    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("Route: {}", self.route)];
        if !self.shards.is_empty() {
            lines.push(format!("Shards: {}", self.shards.join(", ")));
        }
        lines.extend(self.why.iter().map(|fact| format!("Why: {fact}")));
        lines.extend(self.on.iter().map(|(shard, sql)| format!("On {shard}: {sql}")));
        lines.extend(self.merge.iter().map(|merge| format!("Merge: {merge}")));
        lines.extend(self.hint.iter().map(|hint| format!("Hint: {hint}")));
        lines
    }

    /// The head's members, in order: a text, a list of texts, or a list of shards with their SQL.
    fn members(&self) -> Vec<(&'static str, Member<'_>)> {
        let mut members = vec![("Route", Member::Text(self.route))];
        if !self.shards.is_empty() {
            members.push(("Shards", Member::List("Shard", &self.shards)));
        }
        members.push(("Why", Member::List("Fact", &self.why)));
        if !self.on.is_empty() {
            members.push(("On", Member::Statements(&self.on)));
        }
        members.extend(self.merge.as_deref().map(|merge| ("Merge", Member::Text(merge))));
        members.extend(self.hint.as_deref().map(|hint| ("Hint", Member::Text(hint))));
        members
    }

    /// An object, indented to stand as a member at four spaces.
    pub fn json(&self) -> String {
        let members = self.members().into_iter().map(|(name, member)| {
            let value = match member {
                Member::Text(text) => quoted(text),
                Member::List(_, items) => format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ")),
                Member::Statements(on) => {
                    let item = |(shard, sql): &(String, String)| {
                        format!("\n        {{ \"Shard\": {}, \"Statement\": {} }}", quoted(shard), quoted(sql))
                    };
                    format!("[{}\n      ]", on.iter().map(item).collect::<Vec<_>>().join(","))
                }
            };
            format!("      {}: {value}", quoted(name))
        });
        format!("{{\n{}\n    }}", members.collect::<Vec<_>>().join(",\n"))
    }

    /// An element at two spaces.
    pub fn xml(&self) -> String {
        let mut out = String::from("  <Shardgate>\n");
        for (name, member) in self.members() {
            match member {
                Member::Text(text) => out.push_str(&format!("    <{name}>{}</{name}>\n", escaped(text))),
                Member::List(item, items) => {
                    let items: String = items.iter().map(|text| format!("      <{item}>{}</{item}>\n", escaped(text))).collect();
                    out.push_str(&format!("    <{name}>\n{items}    </{name}>\n"));
                }
                Member::Statements(on) => {
                    let item = |(shard, sql): &(String, String)| {
                        format!(
                            "      <Fragment><Shard>{}</Shard><Statement>{}</Statement></Fragment>\n",
                            escaped(shard),
                            escaped(sql)
                        )
                    };
                    out.push_str(&format!("    <{name}>\n{}    </{name}>\n", on.iter().map(item).collect::<String>()));
                }
            }
        }
        out.push_str("  </Shardgate>\n");
        out
    }

    /// A mapping, indented to stand under a key at two spaces; in PostgreSQL's form, with a line's end before each line.
    pub fn yaml(&self) -> String {
        let mut out = String::new();
        for (name, member) in self.members() {
            match member {
                Member::Text(text) => out.push_str(&format!("\n    {name}: {}", quoted(text))),
                Member::List(_, items) => {
                    out.push_str(&format!("\n    {name}: "));
                    out.extend(items.iter().map(|item| format!("\n      - {}", quoted(item))));
                }
                Member::Statements(on) => {
                    out.push_str(&format!("\n    {name}: "));
                    let item = |(shard, sql): &(String, String)| {
                        format!("\n      - Shard: {}\n        Statement: {}", quoted(shard), quoted(sql))
                    };
                    out.extend(on.iter().map(item));
                }
            }
        }
        out
    }
}

enum Member<'h> {
    Text(&'h str),
    List(&'static str, &'h [String]),
    Statements(&'h [(String, String)]),
}

/// A JSON string, which YAML reads too.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Text inside an XML element. Characters that XML has no way to write are left out.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#x0d;"),
            '\t' | '\n' => out.push(character),
            control if control < ' ' => {}
            other => out.push(other),
        }
    }
    out
}
