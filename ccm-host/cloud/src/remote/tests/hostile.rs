//! Whatever a provider answers: nothing panics, nothing that the contract forbids is believed, and nothing grows.
//!
//! A few thousand answers by default; `HOSTILE_ANSWERS=1000000` for a long run, `HOSTILE_SEED` to reproduce one.

use futures::future::join_all;

use super::*;
use crate::{
    RouteState,
    hostile::{Hostile, believed::Believed, from_env},
};
use ccm_kube::fixtures::service;

const NODES: usize = 6;

/// Several hosts in turn get the answers, so that handshakes are hostile as well.
#[tokio::test(start_paused = true)]
async fn whatever_a_provider_answers_is_survived_and_what_is_wrong_is_not_believed() {
    let answers = from_env("HOSTILE_ANSWERS", 4000);
    let first = from_env("HOSTILE_SEED", 1);
    let (mut given, mut useful, mut seed) = (0, 0, first);
    while given < answers {
        let hostile = Hostile::new(seed);
        let host = Host::over(hostile.dialer());
        for _ in 0..200 {
            useful += round(&host, seed).await;
            // Pauses end, offenders are asked again, streams reopen.
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        not_grown(&host, seed);
        given += hostile.answers();
        seed += 1;
    }
    assert!(useful * 20 > given, "only {useful} of {given} answers were of any use: nothing was tried");
    println!("{given} answers, {useful} of use, seeds {first}..{seed}");
}

/// Makes every kind of call concurrently. Returns how many answers were believed.
async fn round(host: &Host, seed: u64) -> u64 {
    let provider = &host.provider;
    let asked = join_all((0..NODES).map(|i| host.ask(["n0", "n1", "n2", "n3", "n4", "n5"][i])));
    let set = provider.backend_set(vec![Arc::new(node("n0"))]);
    let wish = |i: usize| {
        let service = Arc::new(service(&format!("s{i}")).load_balancer().with_port("http", 80));
        (service, Arc::clone(&set), "d".to_owned())
    };
    let ensure = async {
        let (service, backends, desired_digest) = wish(0);
        let wanted = EnsureLoadBalancer { service, backends, desired_digest, revision: 1, adopt: false };
        provider.ensure_load_balancer(wanted).await
    };
    let updates = join_all((0..3).map(|i| {
        let (service, backends, desired_digest) = wish(i);
        provider.update_load_balancer(UpdateLoadBalancer {
            service,
            backends,
            desired_digest,
            revision: 1,
            had_it_before: false,
        })
    }));
    let (zero, ..) = wish(0);
    let gone = DeleteLoadBalancer {
        key: zero.key.clone(),
        uid: zero.uid.clone(),
        last_known: None,
        revision: 1,
        adopt: false,
    };
    let routes = join_all((0..3).map(|i| {
        provider.ensure_route(EnsureRoute {
            destination: format!("10.0.{i}.0/24").parse().unwrap(),
            node: Arc::new(node(&format!("n{i}"))),
        })
    }));
    let listed = Route {
        id: "rt".into(),
        destination: "10.0.9.0/24".parse().unwrap(),
        target: None,
        state: RouteState::Active,
        ours: true,
    };
    let (asked, ensured, updated, deleted, got, list, routes, unrouted, all_routes) = tokio::join!(
        asked,
        ensure,
        updates,
        provider.delete_load_balancer(gone),
        provider.load_balancer(&zero),
        provider.list_load_balancers(),
        routes,
        provider.delete_route(listed),
        provider.list_routes(&[]),
    );
    let mut check = Check { is: Believed(seed), believed: 0 };
    asked.into_iter().for_each(|one| check.on(one, |check, one| check.instance(&one)));
    updated.into_iter().for_each(|one| {
        check.on(one, |check, one: Accepted| check.effects(&one.effects.events, one.in_progress.as_ref()));
    });
    routes.into_iter().enumerate().for_each(|(i, one)| {
        check.on(one, |check, one: EnsuredRoute| {
            check.effects(&one.events, one.in_progress.as_ref());
            if let Some(route) = &one.route {
                check.that(route.destination.to_string() == format!("10.0.{i}.0/24"), "another route");
                check.route(route);
            }
            check.that(
                one.route.is_some() || one.in_progress.is_some(),
                "a route that is neither made nor under way",
            );
        });
    });
    check.on(ensured, |check, one: Ensured| {
        check.ensured(&one);
        let writes = &host.provider.link.wants().service_annotation_writes;
        if !writes.iter().any(|prefix| prefix.starts_with("other")) {
            check.that(
                !one.effects.annotations.contains_key("other.example/id"),
                "an annotation without right",
            );
        }
    });
    check.on(deleted, |check, one: Accepted| check.effects(&one.effects.events, one.in_progress.as_ref()));
    check.on(unrouted, |check, one: Option<InProgress>| check.effects(&[], one.as_ref()));
    check.on(got, |check, one: LoadBalancer| check.balancer(&one));
    check.on(list, |check, list: Listed<LoadBalancer>| {
        let mut uids: Vec<_> = list.items.iter().map(|one| one.service_uid.clone()).collect();
        list.items.iter().for_each(|one| check.balancer(one));
        uids.sort();
        check.that(!uids.contains(&String::new()), "a balancer of nobody");
        let all = uids.len();
        uids.dedup();
        check.that(uids.len() == all, "a Service twice in a list");
    });
    check.on(all_routes, |check, list: Listed<Route>| list.items.iter().for_each(|route| check.route(route)));
    let bad = |status: &ProviderStatus| matches!(status, ProviderStatus::Disconnected(why) if why.contains("panicked"));
    check.is.that(!bad(&host.provider.status(Family::Instances).borrow()), "the connection panicked");
    check.believed
}

/// Checks everything that is believed, and counts it.
struct Check {
    is: Believed,
    believed: u64,
}

impl Check {
    fn on<T: std::fmt::Debug>(&mut self, answer: Result<T, CloudError>, read: impl FnOnce(&Believed, T)) {
        match answer {
            Ok(answer) => {
                self.believed += 1;
                read(&self.is, answer);
            }
            Err(error) => {
                self.is.that(!error.message.contains("panicked"), "a panic");
                self.is.error(&error);
            }
        }
    }
}

/// Memory is bounded by what the host asked about, not by what was answered.
fn not_grown(host: &Host, seed: u64) {
    let series =
        host.metrics().lines().filter(|line| !line.contains("_bucket") && !line.starts_with('#')).count();
    assert!(series < 600, "{series} series (HOSTILE_SEED={seed})");
    assert!(host.provider.instance_changes().is_empty(), "a new reader has nothing to read");
    host.provider.assert_idle();
}

impl RemoteProvider {
    /// Asserts that no call is under way and none is remembered.
    fn assert_idle(&self) {
        self.reads.assert_idle();
        self.updates.assert_idle();
        self.route_ensures.assert_idle();
        self.route_deletes.assert_idle();
        self.volumes.assert_idle();
    }
}
