//! What may be asked of a move in each of its states: every pair of state and verb, as text.

use std::fmt::Write;

use shardgate::shardmap::{Asked, MoveId, MoveState, StoreError};

use super::{map_cluster, map_with_shards};

const VERBS: [Option<Asked>; 8] = [
    None,
    Some(Asked::Pause),
    Some(Asked::Cutover),
    Some(Asked::Abort),
    Some(Asked::Finish),
    Some(Asked::FinishUnverified),
    Some(Asked::Rollback),
    Some(Asked::RollbackUnverified),
];

/// The last ones as they are in a rollback: before its switch, and after it.
fn states() -> Vec<(&'static str, bool, &'static str)> {
    let journal = |state: &MoveState| if *state == MoveState::Switched { r#"{"reverse_began": true}"# } else { "{}" };
    let mut states: Vec<_> = MoveState::ALL.iter().map(|state| (state.name(), false, journal(state))).collect();
    states.push(("switched", false, r#"{"reverse_began": true, "reverse_lost": "it is gone"}"#));
    states.push(("switched", false, r#"{"reverse_began": true, "finishing": true}"#));
    states.extend(["cutting_over", "aborting", "aborted", "failed"].map(|state| (state, true, "{}")));
    states
}

#[tokio::test]
async fn each_verb_is_answered_in_each_state() {
    let cluster = map_cluster().await;
    let map = map_with_shards(&cluster).await;
    let client = cluster.connect_map().await;
    let mut told = String::new();
    for (state, is_rollback, journal) in states() {
        let way = if is_rollback { ", going back" } else { "" };
        writeln!(told, "{state}{way} {journal}").expect("written");
        for verb in VERBS {
            let insert = format!(
                "INSERT INTO shardgate_map.move (group_id, source, target, state, is_rollback, journal, asked)
                 VALUES (1, 'a', 'b', '{state}', {is_rollback}, '{journal}', CASE WHEN {is_rollback} THEN 'rollback' END) RETURNING move_id"
            );
            let id: i32 = client.query_one(&insert, &[]).await.expect("a move").get(0);
            let answer = match map.store().ask_move("test", MoveId(id), verb, None).await {
                Err(StoreError::Refused(error)) => {
                    let hint = error.hint.unwrap_or_default();
                    format!("{}: {}. {} {hint}", error.code.as_str(), error.message, error.detail.unwrap_or_default())
                }
                Err(error) => panic!("{error}"),
                Ok(_) => {
                    let asked = format!("SELECT coalesce(asked, 'nothing') FROM shardgate_map.move WHERE move_id = {id}");
                    format!("{} is asked", client.query_one(&asked, &[]).await.expect("the move").get::<_, String>(0))
                }
            };
            let verb = verb.map_or("resume", Asked::name);
            writeln!(told, "    {verb}: {}", answer.replace(&format!("move {id}"), "move N").replace(&format!(" {id}\""), " N\""))
                .expect("written");
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/asked_of_moves.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, &told).expect("written");
    }
    assert_eq!(told, std::fs::read_to_string(file).expect("the file"));
    map.close().await;
}
