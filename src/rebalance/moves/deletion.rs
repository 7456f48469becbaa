//! Deletes the rows of a set from a shard that does not own them: in one pass over each table, in small transactions.
//!
//! Without the application's triggers, cascades and our gate. One pass is complete, since nothing can write such a row any more;
//! in the end they are counted. Before each transaction the owner is asked whether it is there: where it is lost meanwhile, the server that takes
//! its place may lack rows ([`super::servers`]), and what is not deleted yet is there still.
//!
//! The server goes on serving meanwhile: after each transaction it has as long for others.

use std::time::Instant;

use super::moved_table::MovedTable;
use super::site::Site;
use super::stop::Stop;

pub(super) async fn delete_rows(site: &mut Site, owner: &mut Site, sharded: &[MovedTable]) -> Result<(), Stop> {
    for table in MovedTable::holding_rows_of(sharded, site).await? {
        delete_rows_of(site, owner, &table).await?;
    }
    Ok(())
}

async fn delete_rows_of(site: &mut Site, owner: &mut Site, table: &MovedTable) -> Result<(), Stop> {
    let pages: i64 = site
        .value(&format!(
            "SELECT (pg_relation_size({0}) + current_setting('block_size')::int8 - 1) / current_setting('block_size')::int8",
            table.regclass()
        ))
        .await?;
    let mut from = 0;
    while from < pages {
        let to = from + PAGES_AT_ONCE;
        owner.value_again::<bool>("SELECT true").await?;
        let began_at = Instant::now();
        site.act(&format!(
            "SET LOCAL session_replication_role = replica; SET LOCAL shardgate.unfollowed = 'on'; \
             DELETE FROM ONLY {} WHERE ctid >= '({from},0)'::tid AND ctid < '({to},0)'::tid AND {}",
            table.quoted, table.condition
        ))
        .await?;
        from = to;
        tokio::time::sleep(began_at.elapsed()).await;
    }
    let left: bool = site.value(&format!("SELECT EXISTS (SELECT FROM ONLY {} WHERE {})", table.quoted, table.condition)).await?;
    match left {
        false => Ok(()),
        true => Err(Stop::Again(format!("rows of table {} were written while they were deleted", table.quoted))),
    }
}

/// 1 MB: some milliseconds.
const PAGES_AT_ONCE: i64 = 128;
