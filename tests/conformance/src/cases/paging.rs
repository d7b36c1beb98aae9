//! Pages, the same for all four lists.

use std::collections::BTreeSet;

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
const NOWHERE: &[&str] = &["| the token leads nowhere | INVALID_ARGUMENT | INVALID_TOKEN"];
const ANY_SIZE: &[&str] = &["page_size (0: the provider's choice; capped at `Limits.max_page_size`)"];
const CHANGED: &[&str] = &["Absence from a list is never evidence."];
const WALK: &[&str] = &["page-size", "page-walk-ends"];
const REFUSED: &[&str] = &["page-token-refused"];

pub(super) const CASES: &[Case] = &[
    walk("PAGE-01", InstancesList, &Walk(List::Instances), MACHINES),
    garbage("PAGE-03", InstancesList, &Garbage(List::Instances)),
    any_size("PAGE-05", InstancesList, &AnySize(List::Instances), MACHINES),
    meanwhile("PAGE-06", InstancesList, &Meanwhile(List::Instances), MACHINES),
    walk("PAGE-11", LoadBalancersList, &Walk(List::LoadBalancers), &[]),
    garbage("PAGE-13", LoadBalancersList, &Garbage(List::LoadBalancers)),
    any_size("PAGE-15", LoadBalancersList, &AnySize(List::LoadBalancers), &[]),
    meanwhile("PAGE-16", LoadBalancersList, &Meanwhile(List::LoadBalancers), &[]),
    walk("PAGE-21", Routes, &Walk(List::Routes), MACHINES),
    garbage("PAGE-23", Routes, &Garbage(List::Routes)),
    any_size("PAGE-25", Routes, &AnySize(List::Routes), MACHINES),
    walk("PAGE-31", Clusters, &Walk(List::Clusters), HOSTED),
    garbage("PAGE-33", Clusters, &Garbage(List::Clusters)),
];

const fn walk(
    id: &'static str,
    profile: Profile,
    run: &'static dyn Run,
    hooks: &'static [&'static str],
) -> Case {
    Case::new(id, profile, "small pages hold each item once, and the walk ends", WALK, run).hooks(hooks)
}

const fn garbage(id: &'static str, profile: Profile, run: &'static dyn Run) -> Case {
    Case::new(id, profile, "a page token that leads nowhere is INVALID_TOKEN", REFUSED, run).words(NOWHERE)
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
struct Garbage(List);
struct AnySize(List);
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
    let wanted = list.fill(t, count, false).await?;
    t.eventually(&format!("{} of them in {}", wanted.len(), list.rpc()), async || {
        let keys = list.walk(t, 0).await?.keys;
        Ok(if wanted.iter().all(|key| keys.contains(key)) { Ok(()) } else { Err(format!("{keys:?}")) })
    })
    .await?;
    Ok(wanted)
}

impl Run for Walk {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let wanted = filled(self.0, t, 3).await?;
            let next = good(self.0.rpc(), self.0.page(t, 1, "").await)?.next;
            expect(next.len() <= 8 << 10, "a token of at most 8 KiB", next.len())?;
            for size in [1, 2] {
                let keys = self.0.walk(t, size).await?.keys;
                each_once(self.0, &wanted, &keys)?;
                let distinct: BTreeSet<_> = keys.iter().collect();
                expect(distinct.len() == keys.len(), format!("nothing twice in pages of {size}"), &keys)?;
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

impl Run for Meanwhile {
    fn run<'a>(&'a self, t: &'a Trial) -> LocalBoxFuture<'a, Outcome> {
        Box::pin(async move {
            let wanted = filled(self.0, t, 3).await?;
            let first = good(self.0.rpc(), self.0.page(t, 1, "").await)?;
            self.0.fill(t, 1, true).await?;
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
