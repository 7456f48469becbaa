//! Moves go on while any proxy runs: each takes those that nobody drives.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::failpoint::Failpoints;
use crate::rebalance::moves::background;
use crate::rebalance::moves::drive::Driver;
use crate::session::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>, stop: CancellationToken) {
    let driver = Driver {
        store: gateway.map.store().clone(),
        id: gateway.map.lease().proxy_id().0,
        actor: "shardgate".to_owned(),
        points: Arc::new(Failpoints::from_environment()),
    };
    Box::pin(background::keep_driving(driver, stop)).await;
}
