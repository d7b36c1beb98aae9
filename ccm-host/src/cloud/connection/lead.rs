//! Tells the provider whether this process leads, and for how much longer, if the provider supports that.
//!
//! A leader that is paused, or cut off from the apiserver, thus stops at the cloud as well: nobody renews its
//! leadership there.

use std::{convert::Infallible, time::Duration};

use cloudprovider_proto::v1alpha1 as pb;
use tokio::time::{Instant, sleep, timeout};

use super::{Link, session::Session};
use crate::{
    cloud::{CloudError, ErrorReason},
    election::{Fencing, LAST_WORD, Leadership, Leading},
};

/// The pause before an unsuccessful Lead call is repeated.
const AGAIN: Duration = Duration::from_secs(1);

/// Reports leadership to one session of a provider.
pub(super) struct Lead<'a> {
    link: &'a Link,
    session: &'a Session,
    leadership: Leadership,
}

impl<'a> Lead<'a> {
    pub(super) fn new(link: &'a Link, session: &'a Session) -> Self {
        Self { link, session, leadership: link.config.leadership.clone() }
    }

    /// Reports the current leadership once. False if the provider did not take it.
    pub(super) async fn tell(&mut self) -> bool {
        if !self.session.capabilities.capabilities.contains(&pb::Capability::Leadership.into()) {
            return true;
        }
        let (fencing, valid_for) = match self.leadership.heard() {
            Leading::Always => (Fencing::default(), None),
            Leading::Until { fencing, end } => (fencing, Some(end.saturating_duration_since(Instant::now()))),
            Leading::Shadow | Leading::No => match self.link.led() {
                Some(former) => (former, Some(Duration::ZERO)),
                None => return true,
            },
        };
        let leads = valid_for != Some(Duration::ZERO);
        if leads && valid_for.is_some() {
            // Whatever the call returns, from now on the provider may believe this process.
            *self.link.led.lock() = Some((fencing.clone(), self.leadership.believer()));
        }
        let told = self.link.lead(self.session, &fencing, valid_for).await;
        self.link.heard(&told, leads);
        if let Err(error) = &told {
            tracing::warn!(provider = self.link.name(), %error, "the provider did not accept the leader");
        }
        told.is_ok()
    }

    /// Reports every change of leadership.
    pub(super) async fn keep_telling(mut self, mut is_told: bool) -> Infallible {
        loop {
            tokio::select! {
                () = self.leadership.changed() => {}
                () = sleep(AGAIN), if !is_told => {}
            }
            is_told = self.tell().await;
        }
    }
}

impl Link {
    /// Resigns at shutdown, so that the next leader need not wait for the leadership to expire.
    pub(super) async fn step_down(&self) {
        if let (Some(fencing), Some(session)) = (self.led(), self.present()) {
            let _told = timeout(LAST_WORD, self.lead(&session, &fencing, Some(Duration::ZERO))).await;
        }
        *self.led.lock() = None;
    }

    fn led(&self) -> Option<Fencing> {
        self.led.lock().as_ref().map(|(fencing, _)| fencing.clone())
    }

    async fn lead(
        &self,
        session: &Session,
        fencing: &Fencing,
        valid_for: Option<Duration>,
    ) -> Result<(), CloudError> {
        let request = pb::LeadRequest {
            cluster: Some(self.cluster()),
            fencing: Some(fencing.message()),
            // A duration out of range is longer than any Lease.
            valid_for: valid_for.and_then(|time| time.try_into().ok()),
        };
        self.call(session, None, request).await.map(|pb::LeadResponse {}| ())
    }

    /// Learns from the answer whether the provider believes this process.
    fn heard(&self, told: &Result<(), CloudError>, leads: bool) {
        let refused = told.as_ref().is_err_and(|error| error.is(ErrorReason::StaleLeader));
        if refused || (told.is_ok() && !leads) {
            *self.led.lock() = None;
        }
        match told {
            Ok(()) => self.standing.lock().stale_leader = !leads,
            Err(error) if error.is(ErrorReason::StaleLeader) => self.standing.lock().stale_leader = true,
            Err(_) => {}
        }
        self.publish_standing();
    }
}
