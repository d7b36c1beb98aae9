//! What a provider supplies to a watch: changes, and tokens if it can resume.

use std::fmt;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::sync::broadcast;

use crate::Result;
use crate::proto::InstanceChanged;

/// One event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// An instance appeared, changed in any way, or disappeared.
    Changed(InstanceChanged),
    /// All changes up to this token have been supplied. Sent at once, and repeated with every heartbeat until
    /// the next one.
    Bookmark(String),
}

/// An open watch.
pub struct InstanceWatch {
    /// The stream resumes at the caller's token: no change since then is missing. A token that is not honoured is refused
    /// with INVALID_TOKEN.
    pub resumed: bool,
    /// The changes, read no faster than the caller accepts them. When they end, the caller's stream ends with
    /// OK, or with the error if there was one; either way the host opens a new watch and reads all instances.
    pub events: BoxStream<'static, Result<WatchEvent>>,
}

impl InstanceWatch {
    /// A watch from now, without resumption.
    pub fn from_now(events: impl futures::Stream<Item = Result<WatchEvent>> + Send + 'static) -> Self {
        Self { resumed: false, events: events.boxed() }
    }
}

impl fmt::Debug for InstanceWatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("InstanceWatch").field("resumed", &self.resumed).finish_non_exhaustive()
    }
}

/// A source of changes for any number of watches: publish on one side, open watches on the other.
///
/// ```
/// # use cloudprovider_sdk::{ChangeFeed, proto::InstanceChanged};
/// let feed = ChangeFeed::new(1024);
/// let watch = feed.watch(); // the answer of `watch_instances`
/// feed.publish(InstanceChanged { provider_id: "example://1".into(), ..Default::default() });
/// # drop(watch);
/// ```
#[derive(Debug, Clone)]
pub struct ChangeFeed {
    sender: broadcast::Sender<InstanceChanged>,
}

impl ChangeFeed {
    /// A feed that keeps `capacity` changes (at least one) for a slow reader.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { sender: broadcast::Sender::new(capacity.max(1)) }
    }

    /// Reports a changed instance to every open watch. No effect without a watch: a new one starts with a
    /// read of all instances.
    pub fn publish(&self, change: InstanceChanged) {
        // An error only means that nobody watches.
        let _nobody_watches = self.sender.send(change);
    }

    /// A watch from now. One that falls behind by more than the capacity ends, so that no change is lost silently.
    #[must_use]
    pub fn watch(&self) -> InstanceWatch {
        let events = stream::unfold(self.sender.subscribe(), |mut receiver| async move {
            let change = receiver.recv().await.ok()?;
            Some((Ok(WatchEvent::Changed(change)), receiver))
        });
        InstanceWatch::from_now(events)
    }
}
