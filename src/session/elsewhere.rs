//! Statements that do not run on one shard: several shards merged, the relations of the schema `shardgate`, EXPLAIN (SHARDS).

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use super::client::Client;
use super::command::text_field;
use super::describe::TypeNames;
use super::route::Route;
use super::statement::Statement;
use super::{Failure, Session, SessionEnd, lost};
use crate::error::{PgError, SqlState};
use crate::execute::{RowSink, ScatterError, Spec, scatter};
use crate::routing::Inputs;
use crate::shardmap::ShardId;
use crate::sql::analysis::{Analysis, Count, Merge};
use crate::sql::lexer::Literals;
use crate::wire::{self, originate};

impl RowSink for Client {
    type Gone = SessionEnd;

    fn buffer(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    async fn send(&mut self) -> Result<(), SessionEnd> {
        self.flush().await
    }
}

impl Session {
    /// A statement of the simple protocol whose route is not one shard.
    pub(super) async fn run_elsewhere(
        &mut self,
        route: Route,
        statement: &Analysis,
        text: &str,
        inputs: &Inputs<'_>,
    ) -> Result<(), Failure> {
        match route {
            Route::Shard(shard) => self.run_on_shard(shard, statement, text, 0).await,
            Route::Scatter(shards) => {
                let merge = statement.merge.clone()?;
                let spec = Spec { describes: true, ..spec(&merge, inputs)? };
                let fragment = fragment_text(statement, &merge, text);
                let mut indexes = Vec::with_capacity(shards.len());
                for shard in &shards {
                    indexes.push(self.join_clean(*shard).await?);
                    if let Some(participant) = self.participants.last_mut() {
                        participant.connection.unnamed = None;
                    }
                }
                for participant in self.of_shards(&shards) {
                    originate::query(&mut participant.connection.output, fragment.as_bytes());
                }
                self.scatter_on(&shards, &spec).await
            }
        }
    }

    /// Execute of a portal over several shards.
    pub(super) async fn scatter_bound(
        &mut self,
        statement: &Arc<Statement>,
        bind: &Bytes,
        shards: &[ShardId],
        row_limit: i32,
    ) -> Result<(), Failure> {
        if row_limit > 0 {
            return Err(PgError::unsupported(
                "a row limit on a result of several shards is not supported",
                "Execute asked for part of the rows, and the rest would have to be kept on every shard.",
                "Fetch the whole result (a fetch size of 0), or limit it by LIMIT and a condition on its order.",
            )
            .into());
        }
        let bind = wire::bind(bind).map_err(SessionEnd::from)?;
        let analysis = statement.analysis().ok_or_else(|| PgError::internal("empty statement scattered"))?;
        let merge = analysis.merge.clone()?;
        let types = self.describe(statement).await?.parameter_types.clone();
        let spec = spec(&merge, &Inputs::bound(statement.text(), &statement.literals, &bind, &types))?;
        let fragment = Bytes::from(fragment_text(analysis, &merge, statement.text()));
        let key = self.statement_text(fragment, types.into());
        let fragment = Statement {
            id: self.gateway.registry.id(&key),
            key,
            analyzed: Arc::clone(&statement.analyzed),
            context_id: 0,
            literals: Literals::new(),
            description: OnceLock::new(),
        };
        let after_names = with_hidden_formats(&bind, merge.hidden_columns);
        for shard in shards {
            self.join_clean(*shard).await?;
        }
        let prepared_max = self.gateway.config.cross_shard.prepared_statements_max as usize;
        let home = self.home()?.id;
        for participant in self.of_shards(shards) {
            let types = if participant.shard == home { TypeNames::Home } else { TypeNames::Foreign };
            let connection = &mut *participant.connection;
            super::describe::prepare_on(connection, &fragment, types, false, prepared_max);
            // The merge reads the answers by itself, up to ReadyForQuery.
            connection.pending.clear();
            fragment.id.with_name(|name| originate::bind(&mut connection.output, b"", name, &after_names));
            originate::describe(&mut connection.output, b'P', b"");
            originate::execute(&mut connection.output, b"", 0);
            originate::sync(&mut connection.output);
        }
        let result = self.scatter_on(shards, &spec).await;
        if result.is_err() {
            for participant in self.of_shards(shards) {
                participant.connection.prepared.doubt(fragment.id);
            }
        }
        result
    }

    /// A shard joins, and what had to come before the statement has been answered.
    async fn join_clean(&mut self, shard: ShardId) -> Result<usize, Failure> {
        let index = self.join(shard).await?;
        self.sync(index).await?;
        Ok(index)
    }

    fn of_shards<'a>(&'a mut self, shards: &'a [ShardId]) -> impl Iterator<Item = &'a mut super::Participant> {
        self.participants.iter_mut().filter(|participant| shards.contains(&participant.shard))
    }

    /// Sends what is in the outputs, merges what comes.
    async fn scatter_on(&mut self, shards: &[ShardId], spec: &Spec) -> Result<(), Failure> {
        self.participants.sort_by_key(|participant| participant.shard);
        let mut connections = Vec::with_capacity(shards.len());
        let mut names = Vec::with_capacity(shards.len());
        for participant in self.participants.iter_mut().filter(|participant| shards.contains(&participant.shard)) {
            names.push((participant.shard, participant.connection.pool().address.name.clone()));
            let endpoint = Arc::clone(&participant.connection.pool().address.endpoint);
            self.cancel.started(&endpoint, &participant.connection);
            connections.push(&mut *participant.connection);
        }
        // All shards get their part before any answer is read.
        for connection in &mut connections {
            if let Err(error) = connection.flush().await {
                return Err(lost("a shard", &error).into());
            }
        }
        let merged = scatter(connections, spec, &mut self.client).await;
        match merged {
            Ok(end) => {
                originate::command_complete(&mut self.client.output, &format!("SELECT {}", end.rows));
                Ok(())
            }
            Err(ScatterError::Shard { index, frame }) => {
                let name = names.get(index).map(|(_, name)| name.as_str()).unwrap_or_default();
                Err(Failure::Shard(with_shard_named(&frame, name)))
            }
            Err(ScatterError::Lost { index, error }) => {
                let Some((shard, _)) = names.get(index) else { return Err(PgError::internal("shard is gone").into()) };
                match self.participants.iter().position(|participant| participant.shard == *shard) {
                    Some(index) => Err(self.participant_lost(index, &error)),
                    None => Err(PgError::internal("shard is gone").into()),
                }
            }
            Err(ScatterError::Order(reason)) => Err(PgError::unsupported(
                "rows of several shards cannot be put in order",
                format!("{}.", capitalised(&reason)),
                "Add a condition on the shard key, or order by a column of a simple type.",
            )
            .into()),
            Err(ScatterError::Gone(end)) => Err(end.into()),
        }
    }

    /// EXPLAIN (SHARDS): where the statement would go, without running it.
    pub(super) async fn explain_shards(
        &mut self,
        inner: &Analysis,
        text: &str,
        bind: Option<&wire::Bind<'_>>,
    ) -> Result<(), Failure> {
        let read = self.read(text).await?;
        let inputs = match bind {
            Some(bind) => Inputs::bound(text, &read.literals, bind, &[]),
            None => Inputs::literals(text, &read.literals),
        };
        let why = inner.why.iter().map(|fact| fact.sentence(text, &read.literals)).collect();
        let lines = self.explain_lines(inner, text, why, &inputs).await?;
        originate::row_description(&mut self.client.output, &[text_field("QUERY PLAN")]);
        for line in &lines {
            originate::data_row(&mut self.client.output, &[Some(line)]);
        }
        originate::command_complete(&mut self.client.output, "EXPLAIN");
        Ok(())
    }

    async fn explain_lines(
        &mut self,
        inner: &Analysis,
        text: &str,
        mut why: Vec<String>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<String>, Failure> {
        let snapshot = self.gateway.map.snapshot();
        let name = |id: ShardId| snapshot.shard(id).map_or_else(|| format!("{}", id.0), |shard| shard.name.clone());
        let alone = text.get(inner.start..inner.end).unwrap_or(text).trim();
        let mut lines = Vec::new();
        if why.is_empty() {
            why.push("The statement names no sharded table.".to_owned());
        }
        if super::command::is_own(&inner.command) {
            lines.push("Route: local".to_owned());
            lines.extend(why.into_iter().map(|fact| format!("Why: {fact}")));
            return Ok(lines);
        }
        match self.route(inner, inputs).await {
            Ok(Route::Shard(shard)) => {
                lines.push("Route: single shard".to_owned());
                lines.push(format!("Shards: {}", name(shard)));
                lines.extend(why.into_iter().map(|fact| format!("Why: {fact}")));
                lines.push(format!("On {}: {alone}", name(shard)));
            }
            Ok(Route::Scatter(shards)) => {
                lines.push("Route: scatter".to_owned());
                lines.push(format!("Shards: {}", shards.iter().map(|shard| name(*shard)).collect::<Vec<_>>().join(", ")));
                lines.extend(why.into_iter().map(|fact| format!("Why: {fact}")));
                let merge = inner.merge.clone()?;
                let fragment = fragment_text(inner, &merge, text);
                lines.extend(shards.iter().map(|shard| format!("On {}: {}", name(*shard), fragment.trim())));
                lines.push(format!("Merge: {}", describe_merge(&merge)));
            }
            Err(Failure::Error(refusal)) => {
                lines.push("Route: refused".to_owned());
                lines.push(format!("Why: {}", refusal.message));
                lines.extend(refusal.detail.map(|detail| format!("Why: {detail}")));
                lines.extend(refusal.hint.map(|hint| format!("Hint: {hint}")));
            }
            Err(failure) => return Err(failure),
        }
        Ok(lines)
    }
}

fn describe_merge(merge: &Merge) -> String {
    let mut parts = Vec::new();
    if merge.order_by.is_empty() {
        parts.push("concatenate".to_owned());
    } else {
        let keys = merge
            .order_by
            .iter()
            .map(|key| format!("column {}{}", key.column + 1, if key.is_descending { " descending" } else { "" }));
        parts.push(format!("by {}", keys.collect::<Vec<_>>().join(", ")));
    }
    let count = |count: &Count| match count {
        Count::Constant(count) => count.to_string(),
        Count::Parameter(number) => format!("${number}"),
        Count::Literal(ordinal) => format!("literal {}", ordinal + 1),
    };
    parts.extend(merge.limit.as_ref().map(|limit| format!("limit {}", count(limit))));
    parts.extend(merge.offset.as_ref().map(|offset| format!("offset {}", count(offset))));
    parts.join(", ")
}

/// What each shard runs: the statement alone, with its pieces replaced.
fn fragment_text(statement: &Analysis, merge: &Merge, text: &str) -> String {
    let Some(fragment) = &merge.fragment else {
        return text.get(statement.start..statement.end).unwrap_or(text).to_owned();
    };
    let mut out = String::with_capacity(text.len() + 32);
    let mut position = statement.start;
    for splice in &fragment.splices {
        out.push_str(text.get(position..splice.start).unwrap_or_default());
        out.push_str(&splice.text);
        position = splice.end;
    }
    out.push_str(text.get(position..statement.end).unwrap_or_default());
    out
}

fn spec(merge: &Merge, inputs: &Inputs<'_>) -> Result<Spec, PgError> {
    let value = |count: &Option<Count>, code: &[u8; 5], name: &str| match count {
        None => Ok(None),
        Some(count) => {
            let negative = |_| PgError::new(SqlState(*code), format!("{name} must not be negative"));
            inputs.count(count)?.map(|count| u64::try_from(count).map_err(negative)).transpose()
        }
    };
    Ok(Spec {
        order_by: merge.order_by.clone(),
        limit: value(&merge.limit, b"2201W", "LIMIT")?,
        offset: value(&merge.offset, b"2201X", "OFFSET")?.unwrap_or(0),
        hidden_columns: merge.hidden_columns,
        describes: false,
    })
}

/// The rest of a Bind whose result formats are given one by one: text for the columns that were added.
fn with_hidden_formats(bind: &wire::Bind<'_>, hidden: usize) -> Vec<u8> {
    let given = bind.result_formats.len() / 2;
    if hidden == 0 || given <= 1 {
        return bind.after_names.to_vec();
    }
    let kept = bind.after_names.len() - bind.result_formats.len() - 2;
    let mut out = bind.after_names.get(..kept).unwrap_or_default().to_vec();
    out.extend_from_slice(&u16::try_from(given + hidden).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(bind.result_formats);
    out.extend(std::iter::repeat_n([0, 0], hidden).flatten());
    out
}

/// The shard's own error, with the shard named in its context.
pub(super) fn with_shard_named(frame: &[u8], shard: &str) -> Bytes {
    let body = frame.get(wire::FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(fields) = wire::error_fields(body) else { return Bytes::copy_from_slice(frame) };
    let mut named = Vec::with_capacity(body.len() + shard.len() + 16);
    let mut context = fields.get(b'W').map(|context| [context, b"\n"].concat()).unwrap_or_default();
    context.extend_from_slice(format!("shard \"{shard}\"").as_bytes());
    for (code, value) in fields.iter().filter(|(code, _)| *code != b'W').chain([(b'W', context.as_slice())]) {
        named.push(code);
        named.extend_from_slice(value);
        named.push(0);
    }
    named.push(0);
    super::describe::error_frame(&named)
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().collect::<String>() + characters.as_str()).unwrap_or_default()
}
