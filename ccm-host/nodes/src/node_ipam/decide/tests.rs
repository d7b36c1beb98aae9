//! Decisions on changes, errors and answers.

use std::{sync::Arc, time::Duration};

use super::*;
use ccm_cloud::{
    CloudError, ErrorReason, Instance,
    fake::{error, instance, machine, method},
};
use ccm_kube::fixtures::node;

#[test]
fn only_a_node_that_begins_to_want_is_looked_at() {
    let new = || node("n");
    let had = || node("n").with_pod_cidr("10.0.0.0/24");
    let updated = |old: Node, new: Node| Change::Updated { old: Arc::new(old), new: Arc::new(new) };
    let rows = [
        ("new", Change::Added(Arc::new(new())), true),
        ("new, with a CIDR", Change::Added(Arc::new(had())), false),
        ("IPAM-16 going", Change::Added(Arc::new(new().deleting())), false),
        ("gone", Change::Deleted(Arc::new(new())), true),
        ("our own write: nothing more to report", updated(new(), had()), true),
        ("ready", updated(new().not_ready(), new().ready()), false),
        ("known to the cloud", updated(new(), new().with_provider_id("x")), true),
        ("perhaps selected now", updated(new(), new().with_label("pool", "a")), true),
        ("known to the cloud, with a CIDR", updated(had(), had().with_provider_id("x")), false),
    ];
    for (name, change, want) in rows {
        assert_eq!(concerns(&change), want, "{name}");
    }
}

#[test]
fn an_answer_without_cidrs_is_asked_for_again_at_the_providers_pace() {
    let with = |cidrs: &[&str]| {
        let pod_cidrs = cidrs.iter().map(|text| text.parse().unwrap()).collect();
        Some(Instance { pod_cidrs, ..instance("x://1") })
    };
    let failed = |error: CloudError| InstanceAnswer {
        error: Some(error),
        ..machine(InstanceState::Unspecified, None)
    };
    let limited = CloudError {
        retry_after: Some(Duration::from_secs(7)),
        ..error(method::INSTANCE, Some(ErrorReason::RateLimited))
    };
    let ambiguous = error(method::INSTANCE, Some(ErrorReason::InstanceAmbiguous));
    let rows = [
        (machine(InstanceState::Running, with(&["10.0.0.0/24"])), "10.0.0.0/24"),
        (machine(InstanceState::Pending, with(&["10.0.0.0/24"])), "10.0.0.0/24"),
        (machine(InstanceState::Stopped, with(&["fd00::/64", "10.0.0.0/24"])), "fd00::/64 10.0.0.0/24"),
        (machine(InstanceState::Running, with(&[])), "backoff"),
        (machine(InstanceState::Running, None), "backoff"),
        (machine(InstanceState::Terminating, with(&["10.0.0.0/24"])), "backoff"),
        (machine(InstanceState::Absent, None), "backoff"),
        (machine(InstanceState::Unspecified, None), "backoff"),
        (machine(InstanceState::NotOwned, with(&["10.0.0.0/24"])), "not ours"),
        (failed(limited), "after 7s"),
        (failed(ambiguous), "after 300s"),
    ];
    for (answer, want) in rows {
        let words = match of_answer(&answer, true, &[]) {
            Ok(cidrs) => cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(Report { reason: "NotOwned", .. }) => "not ours".to_owned(),
            Err(Report { retry: Retry::After(pause), .. }) => format!("after {pause:?}"),
            Err(Report { retry, .. }) => format!("{retry:?}").to_lowercase(),
        };
        assert_eq!(words, want, "{answer:?}");
    }
}

#[test]
fn a_provider_that_allots_nothing_is_asked_slowly() {
    let verdict = of_answer(&machine(InstanceState::Running, Some(instance("x://1"))), false, &[]);
    let retry = Retry::After(SLOW_RETRY);
    assert_eq!(verdict, Err(problem::not_allotted("the provider allocates none", retry)));
}
