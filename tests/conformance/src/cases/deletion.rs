//! Balancers that go.

use cloudprovider_proto::v1alpha1::LoadBalancerState;
use futures::future::join_all;

use super::balancers::only_one;
use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancers, LoadBalancersList},
    },
    trial::{Trial, Wanted, expect},
};

pub(super) const CASES: &[Case] = &[
    Case::new("DEL-01", LoadBalancers, "Delete removes the balancer", &["delete-by-key"], &removes),
    Case::new("DEL-02", LoadBalancers, "what is absent is deleted with OK", &["delete-absent-ok"], &absent),
    Case::new("DEL-03", LoadBalancers, "Delete again and again is OK", &["delete-absent-ok"], &again),
    Case::new(
        "DEL-04",
        LoadBalancers,
        "the natural key is enough, whatever name or Service is told",
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
];

async fn is_gone(t: &Trial, wanted: &Wanted) -> Outcome {
    let state = t.get(wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT after Delete", state)
}

async fn removes(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    t.delete(&t.delete_request(&wanted)).await?;
    is_gone(t, &wanted).await
}

async fn absent(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.delete(&t.delete_request(&wanted)).await
}

async fn again(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    for _time in 0..t.scenario().repeats.max(2) {
        t.delete(&t.delete_request(&wanted)).await?;
    }
    is_gone(t, &wanted).await
}

async fn by_key(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    let mut delete = t.delete_request(&wanted);
    if let Some(service) = &mut delete.service {
        service.name = "renamed-meanwhile".to_owned();
    }
    t.delete(&delete).await?;
    is_gone(t, &wanted).await
}

async fn not_elsewhere(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    let mut delete = t.delete_request(&wanted);
    // The user gave it to somebody else meanwhile.
    let mut last_known = wanted.service.clone();
    last_known.load_balancer_class = "example.com/somebody-else".to_owned();
    delete.last_known = Some(last_known);
    t.delete(&delete).await?;
    is_gone(t, &wanted).await
}

async fn neighbours(t: &Trial) -> Outcome {
    let (one, other) = (t.wanted()?, t.wanted()?);
    t.ensure(&one).await?;
    t.ensure(&other).await?;
    t.delete(&t.delete_request(&one)).await?;
    let left = t.listed_of(&one).await?;
    expect(left.is_empty(), "nothing of the deleted one", left)?;
    only_one(t, &other).await.map(drop)
}

async fn at_once(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    let request = t.delete_request(&wanted);
    for deleted in join_all((0..4).map(|_| t.delete(&request))).await {
        deleted?;
    }
    is_gone(t, &wanted).await
}

async fn made_again(t: &Trial) -> Outcome {
    let wanted = t.wanted()?;
    t.ensure(&wanted).await?;
    t.delete(&t.delete_request(&wanted)).await?;
    let next = wanted.changed(443);
    let state = t.ensured(&next).await?.state();
    expect(state == LoadBalancerState::Active, "state ACTIVE", state)
}
