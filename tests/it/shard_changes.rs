//! `shardgate.alter_shard()` while clients work: what they see when a shard's address, password or state changes, or when its address
//! leads to another database.

mod addresses;
mod fail_over;
mod forgetful_map;
mod load;
mod refusals;
mod states;
mod time_partitions;

use crate::support::WireClient;

/// The next messages' errors with their details and hints, one a line.
async fn told(client: &mut WireClient, sql: &str) -> String {
    client.query(sql);
    let errors = client.answers().await.into_iter().filter(|message| message.tag == b'E');
    let line = |code| move |message: &crate::support::Message| message.field(code);
    let lines = errors.map(|error| [b'C', b'M', b'D', b'H'].map(|code| line(code)(&error)).join(" | "));
    lines.collect::<Vec<_>>().join("\n")
}
