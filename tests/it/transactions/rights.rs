//! No superuser anywhere: sessions, and whoever finishes what they leave, are ordinary roles that may take `shardgate_2pc`.

use std::time::Duration;

use super::Ledger;
use super::kills::{Points, Told, commit, found_now, uuid};
use crate::sessions::Stage;
use crate::support::{Cluster, Proxy, ProxyOptions, WireClient};

/// The shards' urls name an ordinary role that owns the databases.
async fn stage_of_ordinary_roles(points: &Points) -> Stage {
    let cluster = Cluster::start(3).await;
    for shard in 0..3 {
        let direct = cluster.connect_shard(shard).await;
        direct.batch_execute(ROLES).await.expect("roles");
        let own = format!("ALTER DATABASE shard{shard} OWNER TO gate; ALTER SCHEMA public OWNER TO gate");
        direct.batch_execute(&own).await.expect("owner");
    }
    let settings = vec![("auth.backend_user", "shard".to_owned()), ("cross_shard.commit_timeout_ms", "3000".to_owned())];
    let options = ProxyOptions { settings, ..points.options() };
    Stage::on_as(cluster, options, "gate").await
}

const ROLES: &str = "DO $$ BEGIN CREATE ROLE gate LOGIN CREATEROLE; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
    DO $$ BEGIN CREATE ROLE tenant NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
    GRANT tenant TO gate";

async fn write_as_tenant(client: &mut WireClient, stage: &Stage, id: &str) {
    assert_eq!(client.ask("BEGIN; SET LOCAL ROLE tenant").await, "C(BEGIN) C(SET) Z(T)");
    for shard in 0..3 {
        let told = client.ask(&format!("INSERT INTO ledger VALUES ('{id}', {}, 1)", stage.key(shard, 0))).await;
        assert_eq!(told, "C(INSERT 0 1) Z(T)");
    }
}

#[tokio::test]
async fn ordinary_roles_commit_and_recover() {
    let points = Points::new();
    let mut stage = stage_of_ordinary_roles(&points).await;
    Ledger::create(&stage).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask("GRANT INSERT ON ledger TO tenant").await, "C(GRANT) Z(I)");
    write_as_tenant(&mut client, &stage, &uuid(1)).await;
    assert_eq!(commit(&mut client).await, Told::Committed);
    assert_eq!(found_now(&stage, &uuid(1)).await, 3);
    for (number, point, wanted) in [(2, "before_decision", 0), (3, "after_decision", 3)] {
        let mut client = stage.client().await;
        write_as_tenant(&mut client, &stage, &uuid(number)).await;
        points.arm(point, "abort");
        assert_eq!(commit(&mut client).await, Told::Nothing);
        points.release(point);
        stage.proxy = Proxy::start(
            &stage.cluster,
            ProxyOptions { settings: vec![("auth.backend_user", "shard".to_owned())], ..points.options() },
        );
        Ledger::until_nothing_is_prepared(&stage, Duration::from_secs(10)).await;
        assert_eq!(found_now(&stage, &uuid(number)).await, wanted, "at {point}");
    }
}

/// Prepared by the role that the session had taken: nobody who is no superuser can finish it.
#[tokio::test]
async fn a_lost_role_is_seen() {
    let points = Points::new();
    let stage = stage_of_ordinary_roles(&points).await;
    Ledger::create(&stage).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask("GRANT INSERT ON ledger TO tenant").await, "C(GRANT) Z(I)");
    points.arm("planted.role_not_taken", "");
    write_as_tenant(&mut client, &stage, &uuid(1)).await;
    assert_eq!(commit(&mut client).await, Told::Committed, "it is decided");
    assert_eq!(found_now(&stage, &uuid(1)).await, 1, "and cannot be delivered");
}
