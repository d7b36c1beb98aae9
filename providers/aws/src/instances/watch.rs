//! A watch of the cluster's instances: what differs between one list and the next.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_ec2::types::Instance;
use cloudprovider_sdk::proto::InstanceChanged;
use cloudprovider_sdk::{InstanceWatch, Result, WatchEvent};
use futures::{StreamExt as _, stream};

use super::{describe, fetch};
use crate::api::{Deadline, Failure};
use crate::cloud::Cloud;

/// By provider ID.
type Seen = HashMap<String, Instance>;

/// Watches from now on.
pub(super) async fn open(cloud: Cloud, every: Duration) -> Result<InstanceWatch> {
    let seen = look(&cloud, every).await?;
    let changes = stream::unfold((cloud, seen), move |(cloud, seen)| async move {
        tokio::time::sleep(every).await;
        match look(&cloud, every).await {
            Ok(now) => Some((differ(&seen, &now), (cloud, now))),
            Err(failure) => {
                tracing::debug!(code = failure.code(), "cannot look for changed instances");
                Some((Vec::new(), (cloud, seen)))
            }
        }
    });
    let events = changes.flat_map(stream::iter).map(|provider_id| {
        Ok(WatchEvent::Changed(InstanceChanged { provider_id, ..InstanceChanged::default() }))
    });
    Ok(InstanceWatch::from_now(events))
}

async fn look(cloud: &Cloud, within: Duration) -> Result<Seen, Failure> {
    let (mut seen, mut at) = (Seen::new(), String::new());
    let until = Deadline::after(within.max(Duration::from_secs(10)));
    loop {
        let (page, next) = fetch::list(cloud, 1000, &at, until).await?;
        seen.extend(page.into_iter().map(|one| (describe::provider_id(&one), one)));
        match next {
            Some(next) => at = next,
            None => return Ok(seen),
        }
    }
}

/// The IDs of what appeared, changed or went.
fn differ(before: &Seen, now: &Seen) -> Vec<String> {
    let changed = now.iter().filter(|(id, one)| before.get(*id) != Some(one));
    let gone = before.iter().filter(|(id, _)| !now.contains_key(*id));
    changed.chain(gone).map(|(id, _)| id.clone()).collect()
}
