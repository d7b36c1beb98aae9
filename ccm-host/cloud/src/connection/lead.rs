//! Tells the provider whether this process leads, and for how much longer, if the provider supports that.
//!
//! A leader that is paused, or cut off from the apiserver, thus stops at the cloud as well: its leadership there
//! is not renewed.

use std::{convert::Infallible, time::Duration};

use cloudprovider_proto::v1alpha1 as pb;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Led, Link,
    session::{Reading, Session},
};
use crate::{CloudError, ErrorReason};
use ccm_kube::election::{Fencing, LAST_WORD, Leadership, Leading};

/// The pause before an unsuccessful Lead call is repeated.
const AGAIN: Duration = Duration::from_secs(1);

/// How often leadership is reported again to a provider that took this process for a former leader.
const LOOK: Duration = Duration::from_secs(10);

impl Link {
    /// Reports the current leadership once. False if the provider did not take it.
    pub(super) async fn tell_leadership(&self, session: &Session, leadership: &mut Leadership) -> bool {
        if !session.capabilities.capabilities.contains(&pb::Capability::Leadership.into()) {
            // It compares epochs alone: what it refused once it may take by now.
            self.believe_again();
            return true;
        }
        let (fencing, valid_for) = match leadership.heard() {
            Leading::Always => (Fencing::default(), None),
            Leading::Until { fencing, end } => {
                let left = end.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    // Whatever the call returns, from now on the provider may believe this process.
                    let believer = leadership.believer();
                    *self.led.lock() = Some(Led { fencing: fencing.clone(), end, believer });
                }
                (fencing, Some(left))
            }
            Leading::Shadow | Leading::No => match self.led() {
                Some(former) => (former, Some(Duration::ZERO)),
                None => return true,
            },
        };
        let leads = valid_for != Some(Duration::ZERO);
        let told = self.lead(session, &fencing, valid_for).await;
        self.heard(&told, leads);
        if let Err(error) = &told {
            tracing::warn!(provider = self.name(), %error, "the provider did not accept the leader");
        }
        told.is_ok()
    }

    /// Reports every change of leadership, and again while the provider believes another process.
    pub(super) async fn keep_telling(
        &self,
        session: &Session,
        mut leadership: Leadership,
        mut is_told: bool,
    ) -> Infallible {
        loop {
            tokio::select! {
                () = leadership.changed() => {}
                () = sleep(if is_told { LOOK } else { AGAIN }) => {
                    if is_told && !self.standing.lock().stale_leader {
                        continue;
                    }
                }
            }
            is_told = self.tell_leadership(session, &mut leadership).await;
        }
    }

    /// Resigns at shutdown, so that the next leader need not wait for the leadership to expire. Without an answer it
    /// must: the provider may go on with what it began for this process.
    pub(super) async fn step_down(&self) {
        let Some(fencing) = self.led() else { return };
        if let Some(session) = self.present() {
            let resigned = self.lead(&session, &fencing, Some(Duration::ZERO));
            if let Ok(told) = timeout(LAST_WORD, resigned).await {
                self.heard(&told, false);
            }
        }
        let unheard = self.led.lock().take();
        if let Some(Led { believer, end, .. }) = unheard
            && Instant::now() < end
        {
            std::mem::forget(believer);
        }
    }

    /// Once the time is over for which the provider was told to believe this process, it does not: nobody has to wait for it.
    pub(super) fn is_believed_no_longer(&self) {
        self.led.lock().take_if(|led| led.end <= Instant::now());
    }

    fn led(&self) -> Option<Fencing> {
        self.led.lock().as_ref().map(|led| led.fencing.clone())
    }

    async fn lead(
        &self,
        session: &Session,
        fencing: &Fencing,
        valid_for: Option<Duration>,
    ) -> Result<(), CloudError> {
        let reading = *session.clock.lock();
        let valid_until = reading.zip(valid_for).map(|(reading, left)| reading.after(left));
        let request = pb::LeadRequest {
            cluster: Some(self.cluster()),
            fencing: Some(super::stated(fencing.clone())),
            // A duration out of range is longer than any Lease.
            valid_for: valid_for.and_then(|time| time.try_into().ok()),
            valid_until: valid_until.and_then(|time| time.try_into().ok()),
        };
        let answer = self.call(session, None, request).await?;
        let shown = answer.heard_at.and_then(|at| Duration::try_from(at).ok());
        *session.clock.lock() = shown.map(|shown| Reading { shown, at: Instant::now() });
        Ok(())
    }

    fn believe_again(&self) {
        let was_stale = std::mem::take(&mut self.standing.lock().stale_leader);
        if was_stale {
            self.publish_standing();
        }
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
