//! A standby's watch of the Lease, so that it notices at once when the leader releases it.
//!
//! The watch only shortens the wait for the next check, which happens anyway: without permission to watch, a standby
//! takes over a little later.

use std::future::pending;

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};

use super::Lock;

pub(super) struct Watch<'a> {
    lock: &'a Lock,
    api: Api<Lease>,
    only: WatchParams,
    events: Option<BoxStream<'a, kube::Result<WatchEvent<Lease>>>>,
    forbidden: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(lock: &'a Lock, api: Api<Lease>, name: &str) -> Self {
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        Self { lock, api, only, events: None, forbidden: false }
    }

    /// Returns when the Lease is free. A further call continues where this one stopped; without a watch, each call
    /// opens one, once.
    pub(super) async fn freed(&mut self) {
        if self.events.is_none() {
            // From the current state, which comes as the first event.
            match self.api.watch(&self.only, "0").await {
                Ok(events) => self.events = Some(events.boxed()),
                Err(error) => self.cannot(error),
            }
        }
        while let Some(events) = &mut self.events {
            match events.next().await {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))
                    if self.lock.is_free(&lease) =>
                {
                    return;
                }
                Some(Ok(WatchEvent::Deleted(_))) => return,
                Some(Ok(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => self.events = None,
            }
        }
        pending::<()>().await;
    }

    fn cannot(&mut self, error: kube::Error) {
        let forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
        let error = anyhow::Error::from(error);
        if forbidden && !self.forbidden {
            tracing::warn!(
                error = format!("{error:#}"),
                "the Lease may not be watched, so a handover takes up to --leader-elect-retry-period: apply deploy/rbac.yaml"
            );
        }
        self.forbidden |= forbidden;
        tracing::debug!(error = format!("{error:#}"), "the Lease cannot be watched");
    }
}
