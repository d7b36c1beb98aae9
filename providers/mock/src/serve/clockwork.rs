//! What happens by itself: things that become due, and health that follows the conditions.

use std::{convert::Infallible, time::Duration};

use cloudprovider_sdk::ProviderHandle;

use crate::{cloud::Cloud, provider::Clock};

/// Lets things happen when they are due, so that a watch learns of them though nobody asks.
pub(super) async fn turn(cloud: &Cloud, clock: &Clock) -> Infallible {
    let mut moves = cloud.schedule_moves();
    loop {
        moves.borrow_and_update();
        let now = clock();
        let due = cloud.read(now, crate::cloud::State::next_due);
        let wait = due.map(|due| Duration::try_from(due.duration_since(now)).unwrap_or_default());
        let becomes_due = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = becomes_due => {}
            // The sender lives in the cloud that is held here.
            _changed = moves.changed() => {}
        }
    }
}

/// Says SERVING or NOT_SERVING as the conditions do.
pub(super) async fn tell_health(cloud: &Cloud, clock: &Clock, handle: ProviderHandle) -> Infallible {
    let mut moves = cloud.schedule_moves();
    loop {
        moves.borrow_and_update();
        let serving = cloud.read(clock(), |state| state.conditions().serving);
        handle.set_serving(serving);
        let _sender_lives_in_the_cloud = moves.changed().await;
    }
}
