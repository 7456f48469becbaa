//! The plans of several shards and the head before them, as one answer of the format that was asked for. Pure.
//!
//! A shard's document is not read and printed anew: the head and the shard's name are spliced into its text, so that numbers and
//! names stay as PostgreSQL wrote them. Where a shard's document does not have the form that is expected (a statement without a
//! plan structure), the head stands as an entry of its own before it.

use super::head::{Head, escaped, quoted};
use crate::sql::analysis::ExplainFormat;

/// What one shard has answered: the rows of its only column.
#[derive(Clone, Debug)]
pub(super) struct ShardPlan {
    pub shard: String,
    pub rows: Vec<String>,
}

/// The rows of the answer.
pub(super) fn rows(format: ExplainFormat, head: &Head, plans: &[ShardPlan]) -> Vec<String> {
    match format {
        ExplainFormat::Text => {
            let mut lines = head.lines();
            for plan in plans {
                lines.push(format!("Plan on {}:", plan.shard));
                lines.extend(plan.rows.iter().cloned());
            }
            lines
        }
        ExplainFormat::Json => vec![json(head, plans)],
        ExplainFormat::Xml => vec![xml(head, plans)],
        ExplainFormat::Yaml => vec![yaml(head, plans)],
    }
}

fn document(plan: &ShardPlan) -> String {
    plan.rows.concat()
}

/// One array: an object for each plan, with its shard; the head is a member of the first.
fn json(head: &Head, plans: &[ShardPlan]) -> String {
    let head = format!("\n    \"Shardgate\": {}", head.json());
    let mut head = Some(head);
    let mut entries: Vec<String> = Vec::new();
    for plan in plans {
        let document = document(plan);
        let inside = document.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
        for entry in json_entries(inside) {
            let shard = format!("\n    \"Shard\": {}", quoted(&plan.shard));
            match entry.strip_prefix('{') {
                Some(members) => {
                    let added: Vec<String> = head.take().into_iter().chain([shard]).collect();
                    entries.push(format!("{{{},{members}", added.join(",")));
                }
                None => {
                    entries.extend(head.take().map(|head| format!("{{{head}\n  }}")));
                    entries.push(entry.to_owned());
                }
            }
        }
    }
    entries.extend(head.take().map(|head| format!("{{{head}\n  }}")));
    format!("[\n  {}\n]", entries.join(",\n  "))
}

/// The members of an array, cut at the commas outside of everything.
fn json_entries(inside: &str) -> Vec<&str> {
    let mut entries = Vec::new();
    let (mut depth, mut start, mut is_quoted, mut is_escaped) = (0_usize, 0, false, false);
    for (position, byte) in inside.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                entries.push(inside.get(start..position).unwrap_or_default().trim());
                start = position + 1;
            }
            _ => {}
        }
    }
    entries.push(inside.get(start..).unwrap_or_default().trim());
    entries.retain(|entry| !entry.is_empty());
    entries
}

/// One `explain` element: the head, then each shard's queries, with its name in each.
fn xml(head: &Head, plans: &[ShardPlan]) -> String {
    let mut out = String::from(XML_START);
    out.push_str(&head.xml());
    for plan in plans {
        let document = document(plan);
        let inside = document.split_once("\">\n").map_or("", |(_, rest)| rest);
        let inside = inside.rsplit_once("</explain>").map_or(inside, |(inside, _)| inside);
        let query = format!("  <Query>\n    <Shard>{}</Shard>\n", escaped(&plan.shard));
        // Only a top-level element begins a line like that: inside of texts `<` is escaped.
        out.push_str(&inside.replace("  <Query>\n    <", &format!("{query}    <")));
    }
    out.push_str("</explain>");
    out
}

/// One sequence: an entry for each plan, with its shard; the head is in the first.
fn yaml(head: &Head, plans: &[ShardPlan]) -> String {
    let mut head = Some(format!("- Shardgate: {}", head.yaml()));
    let mut lines: Vec<String> = Vec::new();
    for plan in plans {
        for line in document(plan).lines() {
            let entry = line.strip_prefix("- ");
            match entry.filter(|entry| entry.starts_with(|c: char| c.is_ascii_uppercase()) && entry.contains(": ")) {
                Some(entry) => {
                    let shard = format!("Shard: {}", quoted(&plan.shard));
                    lines.push(head.take().map_or_else(|| format!("- {shard}"), |head| format!("{head}\n  {shard}")));
                    lines.push(format!("  {entry}"));
                }
                None => {
                    if entry.is_some() {
                        lines.extend(head.take());
                    }
                    lines.push(line.to_owned());
                }
            }
        }
    }
    lines.extend(head.take());
    lines.join("\n")
}

const XML_START: &str = "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            shards: vec!["a".into(), "b \"<&".into()],
            on: vec![("a".into(), "SELECT\n1".into())],
            merge: Some("concatenate".into()),
            ..Head::new("scatter", vec!["It is \"so\".".into()])
        }
    }

    fn plan(shard: &str, document: &str) -> ShardPlan {
        ShardPlan { shard: shard.into(), rows: vec![document.into()] }
    }

    #[test]
    fn json_keeps_each_number_as_it_was_written() {
        let document =
            "[\n  {\n    \"Plan\": {\n      \"Total Cost\": 8.10,\n      \"Filter\": \"(a = ']},{[\\\"'::text)\"\n    }\n  }\n]";
        let text = json(&head(), &[plan("a", document), plan("b", document)]);
        let value: serde_json::Value = serde_json::from_str(&text).expect(&text);
        assert_eq!(value.as_array().map(Vec::len), Some(2), "{text}");
        assert_eq!((&value[0]["Shard"], &value[1]["Shard"]), (&"a".into(), &"b".into()), "{text}");
        assert_eq!(value[0]["Shardgate"]["Route"], "scatter");
        assert_eq!(value[1]["Plan"]["Filter"], "(a = ']},{[\"'::text)");
        assert!(value[1].get("Shardgate").is_none() && text.matches("8.10").count() == 2, "{text}");
    }

    #[test]
    fn a_head_without_plans_is_a_document_too() {
        let value: serde_json::Value = serde_json::from_str(&json(&head(), &[])).expect("JSON");
        assert_eq!(value[0]["Shardgate"]["Shards"][1], "b \"<&");
        let value: serde_json::Value = serde_json::from_str(&json(&head(), &[plan("a", "[\n  \"NOTIFY\"\n]")])).expect("JSON");
        assert_eq!((&value[0]["Shardgate"]["Route"], &value[1]), (&"scatter".into(), &"NOTIFY".into()));
        assert!(xml(&head(), &[]).ends_with("  </Shardgate>\n</explain>"));
        assert!(yaml(&head(), &[]).starts_with("- Shardgate: \n    Route: \"scatter\"\n    Shards: \n      - \"a\""));
    }

    #[test]
    fn xml_and_yaml_name_the_shard_of_each_plan() {
        let document =
            format!("{XML_START}  <Query>\n    <Plan>\n      <Filter>(a &lt; 1)</Filter>\n    </Plan>\n  </Query>\n</explain>");
        let text = xml(&head(), &[plan("a", &document), plan("b", &document)]);
        assert_eq!((text.matches("<explain").count(), text.matches("</explain>").count()), (1, 1), "{text}");
        assert!(
            text.contains("  <Query>\n    <Shard>b</Shard>\n    <Plan>") && text.contains("<Shard>b \"&lt;&amp;</Shard>"),
            "{text}"
        );
        let document = "- Plan: \n    Node Type: \"Seq Scan\"\n    Plans: \n      - Node Type: \"Result\"";
        let text = yaml(&head(), &[plan("a", document), plan("b", document)]);
        assert!(text.contains("\n  Shard: \"a\"\n  Plan: \n    Node Type"), "{text}");
        assert!(text.contains("\n- Shard: \"b\"\n  Plan: \n    Node Type"), "{text}");
    }
}
