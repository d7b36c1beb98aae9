//! Pages, the same for all four lists.

use std::{collections::BTreeSet, time::Duration};

use cloudprovider_proto::v1alpha1::ErrorReason;
use futures::future::LocalBoxFuture;

use crate::{
    case::{
        Case, Outcome,
        Profile::{self, Clusters, InstancesList, LoadBalancersList, Routes},
        Run, Stop,
    },
    trial::{List, Trial, expect, good, refused},
};

const MACHINES: &[&str] = &["create-instance", "terminate-instance"];
const HOSTED: &[&str] = &["create-cluster", "delete-cluster"];
const NEVER_ISSUED: &[&str] = &["| the token was never issued | INVALID_ARGUMENT | INVALID_TOKEN"];
const TOO_OLD: &[&str] = &["| the token has expired | ABORTED | PAGE_TOKEN_EXPIRED"];
const ANY_SIZE: &[&str] = &["page_size (0: the provider's choice; capped at `Limits.max_page_size`)"];
const NEGATIVE: &[&str] = &["A negative page_size is INVALID_ARGUMENT_SHAPE."];
const CHANGED: &[&str] = &["Absence from a list is never evidence."];
const WALK: &[&str] = &["page-size", "page-walk-ends"];
const VALID: &[&str] = &["page-token-validity"];

pub(super) const CASES: &[Case] = &[
    walk("PAGE-01", InstancesList, &Walk(List::Instances), MACHINES),
    valid("PAGE-02", InstancesList, &Valid(List::Instances), MACHINES),
    garbage("PAGE-03", InstancesList, &Garbage(List::Instances)),
    expired("PAGE-04", InstancesList, &Expired(List::Instances), MACHINES),
    any_size("PAGE-05", InstancesList, &AnySize(List::Instances), MACHINES),
    meanwhile("PAGE-06", InstancesList, &Meanwhile(List::Instances), MACHINES),
    negative("PAGE-07", InstancesList, &Negative(List::Instances)),
    walk("PAGE-11", LoadBalancersList, &Walk(List::LoadBalancers), &[]),
    valid("PAGE-12", LoadBalancersList, &Valid(List::LoadBalancers), &[]),
    garbage("PAGE-13", LoadBalancersList, &Garbage(List::LoadBalancers)),
    expired("PAGE-14", LoadBalancersList, &Expired(List::LoadBalancers), &[]),
    any_size("PAGE-15", LoadBalancersList, &AnySize(List::LoadBalancers), &[]),
    meanwhile("PAGE-16", LoadBalancersList, &Meanwhile(List::LoadBalancers), &[]),
    negative("PAGE-17", LoadBalancersList, &Negative(List::LoadBalancers)),
    walk("PAGE-21", Routes, &Walk(List::Routes), MACHINES),
    valid("PAGE-22", Routes, &Valid(List::Routes), MACHINES),
    garbage("PAGE-23", Routes, &Garbage(List::Routes)),
    expired("PAGE-24", Routes, &Expired(List::Routes), MACHINES),
    any_size("PAGE-25", Routes, &AnySize(List::Routes), MACHINES),
    negative("PAGE-27", Routes, &Negative(List::Routes)),
    walk("PAGE-31", Clusters, &Walk(List::Clusters), HOSTED),
    valid("PAGE-32", Clusters, &Valid(List::Clusters), HOSTED),
    garbage("PAGE-33", Clusters, &Garbage(List::Clusters)),
    expired("PAGE-34", Clusters, &Expired(List::Clusters), HOSTED),
    negative("PAGE-37", Clusters, &Negative(List::Clusters)),
    Case::new(
        "PAGE-41",
        LoadBalancersList,
        "a page token of a former process is not honoured",
        VALID,
        &former_process,
    )
    .hooks(&["restart-provider"])
    .extended(),
];

const fn walk(
    id: &'static str,
    profile: Profile,
    run: &'static dyn Run,
    hooks: &'static [&'static str],
) -> Case {
    Case::new(id, profile, "pages of one hold each item once, and the walk ends", WALK, run).hooks(hooks)
}

const fn valid(
    id: &'static str,
    profile: Profile,
    run: &'static dyn Run,
    hooks: &'static [&'static str],
) -> Case {
    Case::new(id, profile, "a page token can be used, and used again", VALID, run).hooks(hooks)
}

const fn garbage(id: &'static str, profile: Profile, run: &'static dyn Run) -> Case {
    Case::new(id, profile, "a page token that was never issued is INVALID_TOKEN", &[], run)
        .words(NEVER_ISSUED)
}

const fn expired(
    id: &'static str,
    profile: Profile,
    run: &'static dyn Run,
    hooks: &'static [&'static str],
) -> Case {
    Case::new(id, profile, "a page token that is too old is PAGE_TOKEN_EXPIRED", &[], run)
        .words(TOO_OLD)
        .hooks(hooks)
}

const fn any_size(
    id: &'static str,
    profile: Profile,
    run: &'static dyn Run,
    hooks: &'static [&'static str],
) -> Case {
    Case::new(id, profile, "no size and a size above the limit hold the same items", &[], run)
        .words(ANY_SIZE)
        .hooks(hooks)
}

const fn negative(id: &'static str, profile: Profile, run: &'static dyn Run) -> Case {
    Case::new(id, profile, "a negative page size is refused", &[], run).words(NEGATIVE)
}

const fn meanwhile(
    id: &'static str,
    profile: Profile,
    run: &'static dyn Run,
    hooks: &'static [&'static str],
) -> Case {
    Case::new(id, profile, "what comes in mid-walk hides and doubles nothing else", WALK, run)
        .words(CHANGED)
        .hooks(hooks)
}

struct Walk(List);
struct Valid(List);
struct Garbage(List);
struct Expired(List);
struct AnySize(List);
struct Negative(List);
struct Meanwhile(List);

/// Each of these exactly once among the keys.
fn each_once(list: List, wanted: &[String], keys: &[String]) -> Outcome {
    for key in wanted {
        let times = keys.iter().filter(|listed| *listed == key).count();
        expect(
            times == 1,
            format!("{}: {key} exactly once", list.rpc()),
            format!("{times} times in {keys:?}"),
        )?;
    }
    Ok(())
}

/// Objects to be listed, once the list contains them all.
async fn filled(list: List, t: &Trial, count: usize) -> Result<Vec<String>, Stop> {
    let wanted = list.fill(t, count).await?;
    t.eventually(&format!("{} of them in {}", wanted.len(), list.rpc()), async || {
        let keys = list.walk(t, 0).await?.keys;
        Ok(if wanted.iter().all(|key| keys.contains(key)) { Ok(()) } else { Err(format!("{keys:?}")) })
    })
    .await?;
    Ok(wanted)
}

/// The token of the second page.
async fn token(list: List, t: &Trial) -> Result<String, Stop> {
    let next = good(list.rpc(), list.page(t, 1, "").await)?.next;
    expect(!next.is_empty(), format!("{}: a token behind a page of one of several", list.rpc()), &next)?;
    expect(next.len() <= 1 << 10, "a token of at most 1 KiB", next.len())?;
    Ok(next)
}

impl Run for Walk {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let wanted = filled(self.0, t, 3).await?;
            let keys = self.0.walk(t, 1).await?.keys;
            each_once(self.0, &wanted, &keys)?;
            let distinct: BTreeSet<_> = keys.iter().collect();
            expect(distinct.len() == keys.len(), "nothing twice", &keys)
        })
    }
}

impl Run for Valid {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let wanted = filled(self.0, t, 3).await?;
            let first = good(self.0.rpc(), self.0.page(t, 1, "").await)?;
            let rest: Vec<_> = wanted.into_iter().filter(|key| !first.keys.contains(key)).collect();
            let validity = t.provider().page_token_validity();
            for pause in [Duration::ZERO, (validity / 4).min(Duration::from_secs(1))] {
                tokio::time::sleep(pause).await;
                each_once(self.0, &rest, &self.0.walk_from(t, 0, first.next.clone()).await?.keys)?;
            }
            Ok(())
        })
    }
}

impl Run for Garbage {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let answer = self.0.page(t, 1, "never-issued-by-anybody").await;
            refused(self.0.rpc(), answer, ErrorReason::InvalidToken).map(drop)
        })
    }
}

impl Run for Expired {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let validity = t.provider().page_token_validity();
            if validity > t.scenario().max_wait {
                return Err(Stop::NotRun(format!(
                    "page_token_validity is {validity:?}, longer than max-wait"
                )));
            }
            filled(self.0, t, 2).await?;
            let token = token(self.0, t).await?;
            tokio::time::sleep(validity + validity / 10 + Duration::from_millis(100)).await;
            refused(self.0.rpc(), self.0.page(t, 1, &token).await, ErrorReason::PageTokenExpired).map(drop)
        })
    }
}

impl Run for AnySize {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let wanted = filled(self.0, t, 2).await?;
            let most = t.provider().max_page_size();
            for size in [0, i32::try_from(most + 1).unwrap_or(i32::MAX), i32::MAX] {
                let page = good(self.0.rpc(), self.0.page(t, size, "").await)?;
                expect(page.keys.len() <= most, format!("at most {most} on a page"), page.keys.len())?;
                each_once(self.0, &wanted, &self.0.walk(t, size).await?.keys)?;
            }
            Ok(())
        })
    }
}

impl Run for Negative {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            for size in [-1, i32::MIN] {
                let answer = self.0.page(t, size, "").await;
                refused(self.0.rpc(), answer, ErrorReason::InvalidArgumentShape)?;
            }
            Ok(())
        })
    }
}

impl Run for Meanwhile {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let wanted = filled(self.0, t, 3).await?;
            let first = good(self.0.rpc(), self.0.page(t, 1, "").await)?;
            self.0.fill(t, 1).await?;
            let (mut keys, mut next) = (first.keys, first.next);
            while !next.is_empty() && keys.len() < 1000 {
                let page = good(self.0.rpc(), self.0.page(t, 1, &next).await)?;
                keys.extend(page.keys);
                next = page.next;
            }
            each_once(self.0, &wanted, &keys)
        })
    }
}

async fn former_process(t: &Trial) -> Outcome {
    filled(List::LoadBalancers, t, 2).await?;
    let token = token(List::LoadBalancers, t).await?;
    t.restart("restart-provider").await?;
    let answer = List::LoadBalancers.page(t, 1, &token).await;
    refused("ListLoadBalancers", answer, ErrorReason::InvalidToken).map(drop)
}
