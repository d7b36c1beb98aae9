//! The deletion of balancers.

use std::time::Duration;

use cloudprovider_proto::v1alpha1::LoadBalancerState;
use futures::future::join_all;

use super::balancers::{none_listed, only_one};
use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancers, LoadBalancersList},
    },
    scenario::Variables,
    trial::{HOLDS, INSPECT, Machine, Trial, Wanted, expect, within},
};

pub(super) const CASES: &[Case] = &[
    Case::new("DEL-01", LoadBalancers, "Delete removes the balancer", &["delete-by-key"], &removes),
    Case::new("DEL-02", LoadBalancers, "what is absent is deleted with OK", &["delete-absent-ok"], &absent),
    Case::new("DEL-03", LoadBalancers, "Delete again and again is OK", &["delete-absent-ok"], &again),
    Case::new(
        "DEL-04",
        LoadBalancers,
        "the natural key is enough, whatever name or Service the request gives",
        &["delete-by-key"],
        &by_key,
    ),
    Case::new(
        "DEL-05",
        LoadBalancers,
        "Delete never says that another controller does it",
        &["delete-not-elsewhere"],
        &not_elsewhere,
    ),
    Case::new(
        "DEL-06",
        LoadBalancersList,
        "what was deleted is listed no more, its neighbours are",
        &["delete-by-key"],
        &neighbours,
    ),
    Case::new("DEL-07", LoadBalancers, "Deletes at once are all OK", &["delete-absent-ok"], &at_once),
    Case::new(
        "DEL-08",
        LoadBalancers,
        "a balancer can be made again after Delete",
        &["delete-by-key"],
        &made_again,
    ),
    Case::new(
        "DEL-09",
        LoadBalancers,
        "after a restart, Delete needs nothing that the provider had in memory",
        &["delete-by-key"],
        &after_restart,
    )
    .hooks(&["restart-provider", INSPECT])
    .extended(),
    Case::new(
        "DEL-10",
        LoadBalancers,
        "with the balancer goes all that was made for it",
        &["delete-leaves-nothing"],
        &leaves_nothing,
    )
    .hooks(&[HOLDS, "create-instance", "terminate-instance"])
    .extended(),
    Case::new(
        "DEL-11",
        LoadBalancers,
        "a Delete that cannot reach the cloud does not say that it is done",
        &["delete-leaves-nothing"],
        &out_of_reach,
    )
    .words(KEPT)
    .hooks(&["cut-cloud", "restore-cloud", INSPECT]),
    Case::new(
        "DEL-12",
        LoadBalancers,
        "a Delete without rights does not say that it is done",
        &["delete-leaves-nothing"],
        &without_rights,
    )
    .words(KEPT)
    .hooks(&["deny-rights", "restore-rights", INSPECT])
    .extended(),
    Case::new(
        "DEL-13",
        LoadBalancers,
        "a Delete that the cloud refuses does not say that it is done",
        &["delete-leaves-nothing"],
        &refused_by_the_cloud,
    )
    .words(KEPT)
    .hooks(&["provoke-error", "stop-errors", INSPECT])
    .extended(),
];

const KEPT: &[&str] = &["retries; keeps the finalizer, Event"];

/// The deadline of a Delete that cannot succeed.
const HINDERED: Duration = Duration::from_secs(10);

/// While something hinders the cloud, a Delete does not say that it is done; afterwards it is.
async fn hindered(t: &Trial, hook: &str, hinder: impl AsyncFnOnce() -> Outcome) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    hinder().await?;
    // A cloud out of reach is silent: nobody waits for it as long as a host does.
    let delete = within(t.delete_request(&wanted), HINDERED);
    let answer = t.load_balancers().delete_load_balancer(delete).await;
    t.restore(hook).await?;
    if answer.is_ok_and(|answer| answer.get_ref().in_progress.is_none()) {
        let standing = t.standing(&wanted).await?;
        expect(standing.is_empty(), "an error, or a cloud that has nothing left", standing)?;
    }
    t.delete(&t.delete_request(&wanted)).await?;
    t.nothing_stands(&wanted).await
}

async fn out_of_reach(t: &Trial) -> Outcome {
    hindered(t, "cut-cloud", async || t.steer("cut-cloud", Variables::new()).await.map(drop)).await
}

async fn without_rights(t: &Trial) -> Outcome {
    hindered(t, "deny-rights", async || t.steer("deny-rights", Variables::new()).await.map(drop)).await
}

async fn refused_by_the_cloud(t: &Trial) -> Outcome {
    hindered(t, "provoke-error", async || t.provoke_refusal("DeleteLoadBalancer").await).await
}

async fn is_gone(t: &Trial, wanted: &Wanted) -> Outcome {
    let state = t.get(wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT after Delete", state)
}

async fn removes(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.delete(&t.delete_request(&wanted)).await?;
    is_gone(t, &wanted).await
}

async fn absent(t: &Trial) -> Outcome {
    let wanted = t.unmade().await?;
    t.delete(&t.delete_request(&wanted)).await
}

async fn again(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    for _time in 0..t.scenario().repeats.max(2) {
        t.delete(&t.delete_request(&wanted)).await?;
    }
    is_gone(t, &wanted).await
}

async fn by_key(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let mut delete = t.delete_request(&wanted);
    if let Some(service) = &mut delete.service {
        service.name = "renamed-meanwhile".to_owned();
    }
    t.delete(&delete).await?;
    is_gone(t, &wanted).await
}

async fn not_elsewhere(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let mut delete = t.delete_request(&wanted);
    // The user has meanwhile given it to another controller.
    let mut last_known = t.sent(&wanted).service;
    last_known.load_balancer_class = "example.com/somebody-else".to_owned();
    delete.last_known = Some(last_known);
    t.delete(&delete).await?;
    is_gone(t, &wanted).await
}

async fn neighbours(t: &Trial) -> Outcome {
    let (one, other) = (t.wanted().await?, t.wanted().await?);
    t.ensure(&one).await?;
    t.ensure(&other).await?;
    t.delete(&t.delete_request(&one)).await?;
    none_listed(t, &one).await?;
    only_one(t, &other).await.map(drop)
}

async fn at_once(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    let request = t.delete_request(&wanted);
    for deleted in join_all((0..4).map(|_| t.delete(&request))).await {
        deleted?;
    }
    is_gone(t, &wanted).await
}

async fn made_again(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.delete(&t.delete_request(&wanted)).await?;
    let next = wanted.changed(443);
    let state = t.ensured(&next).await?.state();
    expect(state == LoadBalancerState::Active, "state ACTIVE", state)
}

async fn after_restart(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.restart("restart-provider").await?;
    t.delete(&t.delete_request(&wanted)).await?;
    is_gone(t, &wanted).await?;
    t.nothing_stands(&wanted).await
}

async fn leaves_nothing(t: &Trial) -> Outcome {
    let before = t.cloud_holds().await?;
    let nodes = t.machines(1).await?.iter().map(Machine::node).collect();
    let mut wanted = Wanted { nodes, ..t.unmade().await?.changed(443) };
    // Source ranges need rules of their own; a provider that refuses them creates none.
    wanted.service.source_ranges = vec!["192.0.2.0/24".to_owned()];
    if t.ensure_or_refused(&wanted).await?.is_err() {
        wanted.service.source_ranges.clear();
    }
    t.ensure(&wanted).await?;
    t.delete(&t.delete_request(&wanted)).await?;
    t.holds_no_more_than(&before).await
}
