//! Who may change anything: the present leader, as `Lead` tells it. Each case is about a cluster of its own.

use std::time::Duration;

use cloudprovider_proto::v1alpha1::{Capability, ClusterRef, ErrorReason, Fencing, LeadRequest};
use tonic::{Response, Status};

use crate::{
    case::{Case, Outcome, Profile::LoadBalancers},
    trial::{By, Rpc, Trial, Wanted, good, refused},
};

const LONG: Option<Duration> = Some(Duration::from_secs(600));

pub(super) const CASES: &[Case] = &[
    Case::new(
        "LEAD-01",
        LoadBalancers,
        "only the present leader may change anything",
        &["lead-needed"],
        &needed,
    )
    .capability(Capability::Leadership),
    Case::new(
        "LEAD-02",
        LoadBalancers,
        "a former leader never comes back",
        &["lead-takes-over"],
        &takes_over,
    )
    .capability(Capability::Leadership),
    Case::new("LEAD-03", LoadBalancers, "who steps down leads no more", &["lead-ends"], &steps_down)
        .capability(Capability::Leadership),
    Case::new("LEAD-04", LoadBalancers, "a leader who falls silent leads no more", &["lead-ends"], &silent)
        .capability(Capability::Leadership),
];

/// A cluster, and its leaders.
struct Reign<'a> {
    t: &'a Trial,
    cluster: ClusterRef,
    wanted: Wanted,
}

impl<'a> Reign<'a> {
    fn new(t: &'a Trial) -> Result<Self, crate::case::Stop> {
        let cluster = ClusterRef { uid: t.uid(), name: "led".to_owned() };
        Ok(Self { t, cluster, wanted: Wanted { revision: 0, ..t.wanted()? } })
    }

    async fn lead(&self, leader: &Fencing, valid_for: Option<Duration>) -> Result<Response<()>, Status> {
        let request = LeadRequest {
            cluster: Some(self.cluster.clone()),
            fencing: Some(leader.clone()),
            valid_for: valid_for.and_then(|time| time.try_into().ok()),
        };
        self.t.base().lead(self.t.ask(request)).await.map(|answer| answer.map(drop))
    }

    /// A mutation that has nothing to do.
    async fn change(&self, leader: &Fencing) -> Result<Response<()>, Status> {
        let (cluster, fencing) = (Some(self.cluster.clone()), Some(leader.clone()));
        let by = By { cluster, fencing, ..By::usual(self.t) };
        Rpc::DeleteLoadBalancer.call_about(self.t, &self.wanted, by).await.map(Response::new)
    }
}

fn leader(scope: &str, epoch: u64) -> Fencing {
    Fencing { scope: scope.to_owned(), epoch }
}

fn stale(what: &str, answer: Result<Response<()>, Status>) -> Outcome {
    refused(what, answer, ErrorReason::StaleLeader).map(drop)
}

async fn needed(t: &Trial) -> Outcome {
    let reign = Reign::new(t)?;
    let present = leader("lease", 3);
    good("a call with epoch 0, nobody having led", reign.change(&leader("", 0)).await)?;
    stale("a call before Lead", reign.change(&present).await)?;
    good("Lead", reign.lead(&present, LONG).await)?;
    good("a call by the leader", reign.change(&present).await)?;
    for other in [leader("lease", 2), leader("lease", 4), leader("other", 3), leader("", 0)] {
        stale(&format!("a call by {other:?}"), reign.change(&other).await)?;
    }
    Ok(())
}

async fn takes_over(t: &Trial) -> Outcome {
    let reign = Reign::new(t)?;
    let (first, second, third) = (leader("lease", 1), leader("lease", 2), leader("a new lease", 1));
    good("the first leader", reign.lead(&first, LONG).await)?;
    good("the second leader", reign.lead(&second, LONG).await)?;
    stale("the first leader's call", reign.change(&first).await)?;
    stale("the first leader's Lead", reign.lead(&first, LONG).await)?;
    stale("Lead by who was not elected", reign.lead(&leader("", 0), None).await)?;
    good("the second leader's call", reign.change(&second).await)?;
    good("the leader by another Lease", reign.lead(&third, LONG).await)?;
    stale("Lead by the former Lease", reign.lead(&leader("lease", 9), LONG).await)?;
    good("the call of who leads by now", reign.change(&third).await)
}

async fn steps_down(t: &Trial) -> Outcome {
    let reign = Reign::new(t)?;
    let present = leader("lease", 1);
    good("Lead", reign.lead(&present, LONG).await)?;
    good("stepping down", reign.lead(&present, Some(Duration::ZERO)).await)?;
    stale("a call afterwards", reign.change(&present).await)?;
    stale("a call with epoch 0 afterwards", reign.change(&leader("", 0)).await)?;
    good("Lead once more", reign.lead(&present, LONG).await)?;
    good("a call then", reign.change(&present).await)
}

async fn silent(t: &Trial) -> Outcome {
    let reign = Reign::new(t)?;
    let present = leader("lease", 1);
    good("Lead", reign.lead(&present, Some(Duration::from_millis(200))).await)?;
    t.eventually("a refusal, once the time is over", async || {
        Ok(stale("a call afterwards", reign.change(&present).await).map_err(|stop| format!("{stop:?}")))
    })
    .await
}
