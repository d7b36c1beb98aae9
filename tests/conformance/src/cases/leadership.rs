//! Who may change anything: the current leader, according to `Lead`. Each case has its own cluster.

use std::{fmt::Debug, time::Duration};

use cloudprovider_proto::{
    method,
    v1alpha1::{
        AddSshKeyToAllInstancesRequest, BatchDeleteRoutesRequest, BatchEnsureRoutesRequest,
        BatchUpdateLoadBalancersRequest, Capability, ClusterRef, DeleteLoadBalancerRequest, ErrorReason,
        Fencing, LeadRequest, LeadResponse, Route, RouteToDelete,
    },
};
use tonic::{Response, Status};

use super::{deadlines::is_of_deadline, updates};
use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancers, Routes, SshKeys},
        Stop,
    },
    provider::in_words,
    scenario::Variables,
    trial::{By, COUNT, NOWHERE, Rpc, Trial, Wanted, expect, failed, good, reason_of, refused},
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
    Case::new(
        "LEAD-05",
        LoadBalancers,
        "a mutation that runs when its leader steps down changes the cloud no more",
        &["lead-ends"],
        &down_in_mid_mutation,
    )
    .capability(Capability::Leadership)
    .hooks(SLOW)
    .extended(),
    Case::new(
        "LEAD-06",
        LoadBalancers,
        "a mutation that runs when its leader falls silent, as one that is paused, changes the cloud no more",
        &["lead-ends"],
        &silent_in_mid_mutation,
    )
    .capability(Capability::Leadership)
    .hooks(SLOW)
    .extended(),
    Case::new(
        "LEAD-07",
        LoadBalancers,
        "while nobody leads, no background work changes the cloud",
        &["lead-background"],
        &no_background_work,
    )
    .capability(Capability::Leadership)
    .hooks(&[COUNT])
    .extended(),
    Case::new(
        "LEAD-09",
        LoadBalancers,
        "a mutation that runs when another leader takes over changes the cloud no more",
        &["lead-ends"],
        &taken_over_in_mid_mutation,
    )
    .capability(Capability::Leadership)
    .hooks(SLOW)
    .extended(),
    Case::new(
        "LEAD-10",
        LoadBalancers,
        "a Lead that is repeated extends the term",
        &["lead-ends"],
        &extended,
    )
    .capability(Capability::Leadership),
    Case::new(
        "LEAD-11",
        LoadBalancers,
        "a Lead that is repeated cuts off nothing that runs",
        &["lead-ends"],
        &extended_in_mid_mutation,
    )
    .capability(Capability::Leadership)
    .hooks(&["slow-cloud", "restore-cloud-speed"])
    .extended(),
    Case::new(
        "LEAD-12",
        LoadBalancers,
        "the next leader's request is carried out, also if the former one's is the same and still runs",
        &["lead-takes-over"],
        &same_request,
    )
    .capability(Capability::Leadership)
    .hooks(&["slow-cloud", "restore-cloud-speed"])
    .extended(),
    Case::new(
        "LEAD-08",
        LoadBalancers,
        "a Lead that is read late does not prolong what is believed",
        &["lead-ends"],
        &read_late,
    )
    .capability(Capability::Leadership),
    Case::new(
        "LEAD-13",
        LoadBalancers,
        "only the present leader may update balancers",
        &["lead-needed"],
        &updates_need_it,
    )
    .capability(Capability::Leadership),
    Case::new(
        "LEAD-14",
        Routes,
        "only the present leader may make and remove routes",
        &["lead-needed"],
        &routes_need_it,
    )
    .capability(Capability::Leadership),
    Case::new("LEAD-15", SshKeys, "only the present leader may spread keys", &["lead-needed"], &keys_need_it)
        .capability(Capability::Leadership),
];

const SLOW: &[&str] = &[COUNT, "slow-cloud", "restore-cloud-speed"];

/// A cluster, and its leaders.
struct Reign<'a> {
    t: &'a Trial,
    cluster: ClusterRef,
    wanted: Wanted,
}

impl<'a> Reign<'a> {
    async fn new(t: &'a Trial) -> Result<Self, Stop> {
        let cluster = own_cluster(t);
        let wanted = Wanted { revision: 0, ..t.wanted_by_led(cluster.clone()).await? };
        Ok(Self { t, cluster, wanted })
    }

    async fn lead(&self, leader: &Fencing, valid_for: Option<Duration>) -> Result<Response<()>, Status> {
        self.lead_until(leader, valid_for, None).await.map(|answer| answer.map(drop))
    }

    async fn lead_until(
        &self,
        leader: &Fencing,
        valid_for: Option<Duration>,
        valid_until: Option<Duration>,
    ) -> Result<Response<LeadResponse>, Status> {
        lead(self.t, &self.cluster, leader, (valid_for, valid_until)).await
    }

    /// Makes the balancer, or begins to.
    async fn ensure(&self, leader: &Fencing) -> Result<(), Status> {
        self.call(Rpc::EnsureLoadBalancer, leader).await
    }

    /// The same, which is done or takes longer than its deadline; whoever ends it earlier has given it up.
    async fn ensure_goes_on(&self, leader: &Fencing, expected: &str) -> Outcome {
        let begun = tokio::time::Instant::now();
        match self.ensure(leader).await {
            Ok(()) => Ok(()),
            Err(status) if is_of_deadline(self.t, &method::ENSURE_LOAD_BALANCER, begun, &status) => Ok(()),
            Err(status) => Err(failed(expected, in_words(&status))),
        }
    }

    /// A mutation that has nothing to do.
    async fn change(&self, leader: &Fencing) -> Result<Response<()>, Status> {
        self.call(Rpc::DeleteLoadBalancer, leader).await.map(Response::new)
    }

    async fn call(&self, rpc: Rpc, leader: &Fencing) -> Result<(), Status> {
        let (cluster, fencing) = (Some(self.cluster.clone()), Some(leader.clone()));
        rpc.call_about(self.t, &self.wanted, By { cluster, fencing, ..By::usual(self.t) }).await
    }
}

fn leader(scope: &str, epoch: u64) -> Fencing {
    Fencing { scope: scope.to_owned(), epoch }
}

fn stale<T: Debug>(what: &str, answer: Result<Response<T>, Status>) -> Outcome {
    refused(what, answer, ErrorReason::StaleLeader).map(drop)
}

fn own_cluster(t: &Trial) -> ClusterRef {
    ClusterRef { uid: t.uid(), name: format!("{}-led", t.name()) }
}

async fn lead(
    t: &Trial,
    cluster: &ClusterRef,
    leader: &Fencing,
    (valid_for, valid_until): (Option<Duration>, Option<Duration>),
) -> Result<Response<LeadResponse>, Status> {
    let duration = |time: Option<Duration>| time.and_then(|time| time.try_into().ok());
    let request = LeadRequest {
        cluster: Some(cluster.clone()),
        fencing: Some(leader.clone()),
        valid_for: duration(valid_for),
        valid_until: duration(valid_until),
    };
    t.base().lead(t.ask(request)).await
}

/// A cluster with a leader, and the leader before it.
async fn led(t: &Trial) -> Result<(Option<ClusterRef>, Option<Fencing>), Stop> {
    let cluster = own_cluster(t);
    good("Lead", lead(t, &cluster, &leader("lease", 2), (LONG, None)).await)?;
    Ok((Some(cluster), Some(leader("lease", 1))))
}

async fn updates_need_it(t: &Trial) -> Outcome {
    let wanted = t.unmade().await?;
    let (cluster, fencing) = led(t).await?;
    let update = BatchUpdateLoadBalancersRequest { cluster, fencing, ..updates::request(t, &[&wanted]) };
    let answer = t.load_balancers().batch_update_load_balancers(t.ask(update)).await;
    stale("an update by the former leader", answer)
}

async fn routes_need_it(t: &Trial) -> Outcome {
    let (cluster, fencing) = led(t).await?;
    let route = || t.routes_to_ensure(vec![(NOWHERE.to_owned(), t.stranger())]);
    let ensure = BatchEnsureRoutesRequest { cluster: cluster.clone(), fencing: fencing.clone(), ..route() };
    let answer = t.routes().batch_ensure_routes(t.ask(ensure)).await;
    stale("a route made by the former leader", answer)?;
    let none = Route { id: "none".to_owned(), destination_cidr: NOWHERE.to_owned(), ..Route::default() };
    let items = vec![RouteToDelete { key: "k0".to_owned(), route: Some(none) }];
    let delete = BatchDeleteRoutesRequest { cluster, fencing, items };
    let answer = t.routes().batch_delete_routes(t.ask(delete)).await;
    stale("a route removed by the former leader", answer)
}

async fn keys_need_it(t: &Trial) -> Outcome {
    let (cluster, fencing) = led(t).await?;
    // No key at all: whoever obeys spreads none.
    let user = "conformance".to_owned();
    let add = AddSshKeyToAllInstancesRequest { cluster, fencing, user, public_key: String::new() };
    let answer = t.instances().add_ssh_key_to_all_instances(t.ask(add)).await;
    stale("a key spread by the former leader", answer)
}

async fn needed(t: &Trial) -> Outcome {
    let reign = Reign::new(t).await?;
    let present = leader("lease", 3);
    good("a call with epoch 0, nobody having led", reign.change(&leader("", 0)).await)?;
    stale("a call before Lead", reign.change(&present).await)?;
    good("Lead", reign.lead(&present, LONG).await)?;
    good("a call by the leader", reign.change(&present).await)?;
    for other in [leader("lease", 2), leader("lease", 4), leader("other", 3), leader("", 0)] {
        stale(&format!("a call by {other:?}"), reign.change(&other).await)?;
    }
    // Before its shape: it names no Service.
    let (cluster, fencing) = (Some(reign.cluster.clone()), Some(leader("lease", 2)));
    let nameless = DeleteLoadBalancerRequest { cluster, fencing, ..DeleteLoadBalancerRequest::default() };
    let answer = t.load_balancers().delete_load_balancer(t.ask(nameless)).await;
    stale("a call out of shape by who does not lead", answer)
}

async fn takes_over(t: &Trial) -> Outcome {
    let reign = Reign::new(t).await?;
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
    let reign = Reign::new(t).await?;
    let present = leader("lease", 1);
    good("Lead", reign.lead(&present, LONG).await)?;
    good("stepping down", reign.lead(&present, Some(Duration::ZERO)).await)?;
    stale("a call afterwards", reign.change(&present).await)?;
    stale("a call with epoch 0 afterwards", reign.change(&leader("", 0)).await)?;
    good("Lead once more", reign.lead(&present, LONG).await)?;
    good("a call then", reign.change(&present).await)
}

/// After this long a term of a fraction of a second is over, with a round trip to spare: no list lags behind it.
const OVER: Duration = Duration::from_secs(1);

async fn silent(t: &Trial) -> Outcome {
    let reign = Reign::new(t).await?;
    let present = leader("lease", 1);
    good("Lead", reign.lead(&present, Some(Duration::from_millis(200))).await)?;
    tokio::time::sleep(OVER).await;
    stale("a call after its time", reign.change(&present).await)
}

/// The provider's clock says when its leader meant the end to be; a call that a stalled provider reads late would else
/// count from then.
async fn read_late(t: &Trial) -> Outcome {
    let reign = Reign::new(t).await?;
    let present = leader("lease", 1);
    let heard = async |until: Option<Duration>| {
        let answer = good("Lead", reign.lead_until(&present, LONG, until).await)?;
        let at = answer.heard_at.and_then(|at| Duration::try_from(at).ok());
        at.ok_or_else(|| failed("heard_at in the answer of Lead, not negative", format!("{answer:?}")))
    };
    let first = heard(None).await?;
    let second = heard(Some(first + Duration::from_secs(600))).await?;
    expect(second >= first, "a clock that does not go back", format!("{first:?}, then {second:?}"))?;
    good("a call while it leads", reign.change(&present).await)?;
    heard(Some(second + Duration::from_millis(300))).await?;
    tokio::time::sleep(OVER).await;
    stale("a call after valid_until", reign.change(&present).await)?;
    heard(Some(second)).await?;
    stale("a call after a Lead whose time had passed before it was read", reign.change(&present).await)
}

/// How long a mutation runs before its leadership ends.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// How long to watch whether the cloud is changed: what goes on may wait for its balancer first.
fn watched(t: &Trial) -> Duration {
    Duration::from_secs(2).max(t.scenario().balancer_takes + t.scenario().settle)
}

async fn down_in_mid_mutation(t: &Trial) -> Outcome {
    let (reign, present) = (Reign::new(t).await?, leader("lease", 1));
    changes_no_more(&reign, &present, LONG, async {
        tokio::time::sleep(UNDER_WAY).await;
        good("stepping down", reign.lead(&present, Some(Duration::ZERO)).await).map(drop)
    })
    .await
}

async fn silent_in_mid_mutation(t: &Trial) -> Outcome {
    let (reign, present) = (Reign::new(t).await?, leader("lease", 1));
    changes_no_more(&reign, &present, Some(UNDER_WAY), async {
        // From when Lead was answered: the term counts from when the provider read it.
        tokio::time::sleep(UNDER_WAY * 2).await;
        Ok(())
    })
    .await
}

async fn taken_over_in_mid_mutation(t: &Trial) -> Outcome {
    let (reign, present) = (Reign::new(t).await?, leader("lease", 1));
    changes_no_more(&reign, &present, LONG, async {
        tokio::time::sleep(UNDER_WAY).await;
        good("Lead by the next leader", reign.lead(&leader("lease", 2), LONG).await).map(drop)
    })
    .await
}

/// An Ensure that is running when leadership ends is abandoned: the call of the cloud in progress is the last change,
/// whatever is answered, and however long the Ensure takes to end.
async fn changes_no_more(
    reign: &Reign<'_>,
    present: &Fencing,
    valid_for: Option<Duration>,
    leadership_ends: impl Future<Output = Outcome>,
) -> Outcome {
    let t = reign.t;
    t.steer("slow-cloud", Variables::new()).await?;
    good("Lead", reign.lead(present, valid_for).await)?;
    let end = async {
        leadership_ends.await?;
        t.cloud_calls().await
    };
    let (ended, at_the_end) = tokio::join!(reign.ensure(present), end);
    match ended {
        // It had already finished.
        Ok(()) => {}
        Err(status) if reason_of(&status) == Some(ErrorReason::StaleLeader) => {}
        Err(status) => {
            return Err(failed("STALE_LEADER for the Ensure that was running", in_words(&status)));
        }
    }
    tokio::time::sleep(watched(t)).await;
    let changes = t.cloud_calls().await?.changes.saturating_sub(at_the_end?.changes);
    expect(changes == 0, "no change of the cloud once leadership has ended", format!("{changes} changes"))
}

async fn extended(t: &Trial) -> Outcome {
    let (reign, present) = (Reign::new(t).await?, leader("lease", 1));
    let first = UNDER_WAY;
    good("Lead", reign.lead(&present, Some(first)).await)?;
    good("Lead again, for longer", reign.lead(&present, LONG).await)?;
    tokio::time::sleep(first * 2).await;
    good("a call after the end of the first term", reign.change(&present).await).map(drop)
}

async fn extended_in_mid_mutation(t: &Trial) -> Outcome {
    let (reign, present) = (Reign::new(t).await?, leader("lease", 1));
    t.steer("slow-cloud", Variables::new()).await?;
    good("Lead", reign.lead(&present, LONG).await)?;
    let again = async {
        tokio::time::sleep(UNDER_WAY).await;
        good("Lead again", reign.lead(&present, LONG).await)
    };
    let ensure = reign.ensure_goes_on(&present, "an Ensure that goes on while its leader leads");
    let (ended, led) = tokio::join!(ensure, again);
    led?;
    ended
}

async fn same_request(t: &Trial) -> Outcome {
    let (reign, former, next) = (Reign::new(t).await?, leader("lease", 1), leader("lease", 2));
    t.steer("slow-cloud", Variables::new()).await?;
    good("Lead", reign.lead(&former, LONG).await)?;
    let by_the_next = async {
        tokio::time::sleep(UNDER_WAY).await;
        good("Lead by the next leader", reign.lead(&next, LONG).await)?;
        reign.ensure_goes_on(&next, "an Ensure for who leads now").await
    };
    tokio::join!(reign.ensure(&former), by_the_next).1
}

/// A loop may have nothing to do before there is a balancer.
async fn no_background_work(t: &Trial) -> Outcome {
    if t.is_led() {
        return Err(Stop::NotRun("the provider waits for a leader, and is led for this run".to_owned()));
    }
    let (reign, present) = (Reign::new(t).await?, leader("lease", 1));
    good("Lead", reign.lead(&present, LONG).await)?;
    good("EnsureLoadBalancer", reign.ensure(&present).await.map(Response::new))?;
    good("stepping down", reign.lead(&present, Some(Duration::ZERO)).await)?;
    let (_, changes) = t.idle_calls(watched(t)).await?;
    expect(changes == 0, "no change of the cloud while nobody leads", format!("{changes} changes"))
}
