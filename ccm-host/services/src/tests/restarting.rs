//! After a start, one list tells what is applied, and only what differs is touched. Also the sweeps afterwards.

use std::time::Duration;

use ::apiserver::Fault;
use serde_json::json;

use super::{
    cluster::{addresses, lb, node},
    world::{A_WHILE, World},
};
use ccm_cloud::{
    ErrorReason, LoadBalancerState, SyncState,
    fake::{error, method},
};
use ccm_kube::Ingress;
use ccm_reconcile::taint;

/// Long enough for a sweep, whatever its jitter.
pub(super) const A_SWEEP: Duration = Duration::from_secs(11_100);

/// SW-18.
#[tokio::test(start_paused = true)]
async fn a_restart_without_changes_is_one_list() {
    let names: Vec<_> = (0..50).map(|number| format!("s{number}")).collect();
    let mut world = World::settled([node("n1")].into_iter().chain(names.iter().map(|name| lb(name)))).await;
    world.stop().await;
    world.start();
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["list"]);
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// Changes are found by their digest, lost balancers by their absence, drifted ones by their reported state.
#[tokio::test(start_paused = true)]
async fn a_restart_touches_only_what_differs() {
    let mut world = World::settled([node("n1"), lb("same"), lb("other"), lb("drifted"), lb("status")]).await;
    world.stop().await;
    world.cluster.change_service("other", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.cluster.change_service("status", |service| service["status"] = json!({"loadBalancer": {}}));
    let mut drifted = world.cloud.balancers()["drifted-uid"].clone();
    drifted.sync_state = SyncState::Drifted;
    world.cloud.set_balancer(drifted);
    world.cluster.put(lb("new"));
    world.start();
    world.pass(A_WHILE).await;
    let mut story = world.take();
    story.sort();
    let want = [
        "ensure drifted n1",
        "ensure new n1",
        "ensure other n1",
        "finalizer added",
        "list",
        "status 192.0.2.1",
        "status 192.0.2.1",
    ];
    assert_eq!(story, want);
}

/// Nodes change across a restart: the digest says that only the backends differ, and the updates are batched.
#[tokio::test(start_paused = true)]
async fn nodes_that_came_meanwhile_are_updates() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    world.cluster.put(node("n2"));
    world.start();
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["list", "update web n1,n2"]);
    world.cluster.put(node("n3"));
    world.pass(A_WHILE).await;
    assert_eq!(world.take()[0], "update web n1,n2,n3");
}

/// Design rule 7: an incomplete list proves nothing about what it lacks.
#[tokio::test(start_paused = true)]
async fn an_incomplete_list_only_spares_what_it_shows() {
    let mut world = World::settled([node("n1"), lb("seen")]).await;
    world.stop().await;
    world.cluster.put(lb("unseen"));
    world.cloud.set_unreachable(vec![("zone-b".to_owned(), error(method::LIST, None))]);
    world.start();
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["list", "finalizer added", "ensure unseen n1", "status 192.0.2.1"]);
    // An incomplete sweep takes nothing for vanished.
    let kept = world.cloud.balancers();
    world.cloud.set_unreachable(vec![("zone-b".to_owned(), error(method::LIST, None))]);
    for uid in kept.keys() {
        let mut gone = kept[uid].clone();
        gone.state = LoadBalancerState::Unspecified;
        world.cloud.set_balancer(gone);
    }
    world.pass(A_SWEEP).await;
    assert_eq!(world.take(), ["list"]);
}

/// A failing list is not awaited forever: each Service is ensured, which is safe.
#[tokio::test(start_paused = true)]
async fn without_a_list_every_service_is_ensured() {
    for (reason, lists) in [(None, 6), (Some(ErrorReason::MethodNotSupported), 1)] {
        let mut world = World::new([node("n1"), lb("web")]);
        world.cloud.fail_always(method::LIST, Some(error(method::LIST, reason)));
        world.start();
        world.until("ensure", |world| world.count("ensure") == 1).await;
        assert_eq!(world.count("list"), lists, "{reason:?}");
    }
}

/// SW-17: the sweep finds drift and absence.
#[tokio::test(start_paused = true)]
async fn a_sweep_finds_what_drifted_and_what_is_gone() {
    let world = World::settled([node("n1"), lb("same"), lb("drifted"), lb("other")]).await;
    let mut balancers = world.cloud.balancers();
    let mut drifted = balancers.remove("drifted-uid").unwrap();
    drifted.sync_state = SyncState::Drifted;
    world.cloud.set_balancer(drifted);
    let mut other = balancers.remove("other-uid").unwrap();
    other.applied_digest = Some("somebody else's".to_owned());
    world.cloud.set_balancer(other);
    world.pass(A_SWEEP).await;
    let mut story = world.take();
    story.sort();
    assert_eq!(story, ["ensure drifted n1", "ensure other n1", "list"]);
    let mut gone = world.cloud.balancers()["same-uid"].clone();
    gone.state = LoadBalancerState::Absent;
    world.cloud.set_balancer(gone);
    world.pass(A_SWEEP).await;
    assert_eq!(world.take()[..2], ["list", "ensure same n1"]);
}

/// Nothing reports it, but the sweep restores status and finalizer; a change of nodes does so at once.
#[tokio::test(start_paused = true)]
async fn what_somebody_took_from_a_service_comes_back() {
    let world = World::settled([node("n1"), lb("web")]).await;
    let take = |service: &mut serde_json::Value| service["status"] = json!({"loadBalancer": {}});
    world.cluster.change_service("web", take);
    world.cluster.put(node("n2"));
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["update web n1,n2", "status 192.0.2.1"]);
    world.cluster.change_service("web", take);
    world.cluster.change_service("web", |service| service["metadata"]["finalizers"] = json!([]));
    world.pass(A_SWEEP).await;
    assert_eq!(world.take(), ["list", "finalizer added", "status 192.0.2.1"]);
}

/// "wait" ends at the slow resync.
#[tokio::test(start_paused = true)]
async fn a_sweep_is_the_second_chance_of_what_was_refused() {
    let world = World::settled([node("n1")]).await;
    world.cloud.fail_next(method::ENSURE, error(method::ENSURE, Some(ErrorReason::AdoptionRefused)));
    world.cluster.put(lb("web"));
    world.pass(A_SWEEP).await;
    assert_eq!(world.count("ensure"), 2);
}

/// S5: the sweep finds a set that no change of a node triggered, such as one without nodes being drained.
#[tokio::test(start_paused = true)]
async fn a_sweep_compares_with_what_is_wanted() {
    let world = World::settled([node("n1"), node("n2"), lb("web")]).await;
    world.cluster.change_node("n2", |node| {
        node["spec"]["taints"] = json!([{"key": taint::AUTOSCALER, "effect": "NoSchedule"}]);
    });
    world.pass(A_WHILE).await;
    assert!(world.take().is_empty(), "no reason by itself");
    world.pass(A_SWEEP).await;
    assert_eq!(world.take(), ["list", "update web n1"]);
}

/// A list that wrongly reports itself complete for a moment: what it lacks is ensured, and nothing is removed.
#[tokio::test(start_paused = true)]
async fn a_list_that_shrinks_for_a_moment_costs_an_ensure() {
    let world = World::settled([node("n1"), lb("web"), lb("other")]).await;
    let status = world.cluster.service("web").unwrap()["status"].clone();
    world.cloud.hide_balancer("web-uid", true);
    world.pass(A_SWEEP).await;
    assert_eq!(world.take(), ["list", "ensure web n1"]);
    world.cloud.hide_balancer("web-uid", false);
    world.pass(A_SWEEP).await;
    assert_eq!(world.take(), ["list"]);
    assert_eq!(world.cluster.service("web").unwrap()["status"], status);
}

/// S6: a list may omit addresses of a balancer: the published ones stay, and new ones are published.
#[tokio::test(start_paused = true)]
async fn a_list_never_shrinks_a_status() {
    let ip =
        |text: &str| Ingress { ip: text.to_owned(), ip_mode: Some("VIP".to_owned()), ..Ingress::default() };
    let published = |world: &World| {
        let service = world.cluster.service("web").unwrap();
        let entries = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["ip"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let lists = |world: &World, addresses: &[&str]| {
        let mut balancer = world.cloud.balancers()["web-uid"].clone();
        balancer.ingress = addresses.iter().map(|text| ip(text)).collect();
        world.cloud.set_balancer(balancer);
    };
    let mut world = World::settled([node("n1"), lb("web")]).await;
    let rows = [
        (vec![], vec!["192.0.2.1"]),
        (vec!["192.0.2.1", "192.0.2.2"], vec!["192.0.2.1", "192.0.2.2"]),
        (vec!["192.0.2.2"], vec!["192.0.2.1", "192.0.2.2"]),
        (vec![], vec!["192.0.2.1", "192.0.2.2"]),
        (vec!["192.0.2.3"], vec!["192.0.2.3"]),
    ];
    for (listed, want) in &rows {
        lists(&world, listed);
        world.pass(A_SWEEP).await;
        assert_eq!(published(&world), *want, "{listed:?}");
    }
    assert_eq!(world.count("ensure") + world.count("update"), 0);
    // F6: a process that knows no more asks once.
    let rows = [(vec![], 0), (vec!["192.0.2.1", "192.0.2.3"], 0), (vec!["192.0.2.3"], 1)];
    for (listed, ensures) in rows {
        lists(&world, &listed);
        world.stop().await;
        world.take();
        world.start();
        world.pass(A_SWEEP).await;
        assert_eq!(world.count("ensure"), ensures, "{listed:?}");
    }
    assert_eq!(published(&world), ["192.0.2.3"], "what the answer says");
}

/// E4: a cloud without tags, before a host that kept a record. The balancers keep serving; each is ensured once, and a
/// new one does not stand in line behind them.
#[tokio::test(start_paused = true)]
async fn balancers_without_a_digest_are_ensured_once() {
    let names: Vec<_> = (0..40).map(|number| format!("s{number}")).collect();
    let mut world = World::settled([node("n1")].into_iter().chain(names.iter().map(|name| lb(name)))).await;
    world.cloud.change_info(|info| info.durable_digest = false);
    world.stop().await;
    for mut balancer in world.cloud.balancers().into_values() {
        balancer.applied_digest = None;
        world.cloud.set_balancer(balancer);
    }
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(10));
    world.take();
    world.start();
    world.until("the first", |world| world.count("ensure") > 0).await;
    world.cluster.put(lb("new"));
    world.until("the next", |world| world.count("ensure") > 16).await;
    assert_eq!(world.count("ensure new n1"), 1);
    world.pass(A_WHILE).await;
    assert_eq!(world.count("ensure"), 41, "each once");
}

/// Behind a provider that keeps nothing, the record says what is applied, and the addresses are the provider's to tell.
#[tokio::test(start_paused = true)]
async fn addresses_that_were_lost_meanwhile_are_asked_for() {
    let mut world = World::new([node("n1"), lb("web"), lb("same")]);
    world.cloud.change_info(|info| info.durable_digest = false);
    world.start();
    world.pass(A_WHILE).await;
    world.stop().await;
    world.take();
    world.cloud.fail_always(method::LIST, Some(error(method::LIST, None)));
    world.cluster.change_service("web", |service| service["status"]["loadBalancer"] = json!({}));
    world.start();
    world.pass(A_WHILE).await;
    let calls = world.calls();
    assert!(
        calls.contains(&"ensure web n1".to_owned()) && !calls.contains(&"ensure same n1".to_owned()),
        "{calls:?}"
    );
    assert_eq!(addresses(&world.cluster.service("web").unwrap()).len(), 1);
}

/// The record that all balancers have one set of nodes goes before they get another one, even while it is being written, and
/// if nobody knows whether it was: whoever leads next would take balancers for as they were.
#[tokio::test(start_paused = true)]
async fn the_record_of_a_set_goes_before_other_nodes_do() {
    let late = Fault::Delay(Duration::from_millis(200));
    let rows = [("slow", vec![late; 4]), ("lost", vec![Fault::Delay(Duration::ZERO), Fault::LoseAnswer])];
    for (what, faults) in rows {
        let mut world = World::new([node("n1"), lb("web")]);
        world.cloud.change_info(|info| info.durable_digest = false);
        world.start();
        world.pass(Duration::from_secs(3)).await;
        world.cluster.trouble_records(faults);
        // The host looks every five seconds.
        world.pass(Duration::from_millis(2_050)).await;
        world.cloud.set_latency(method::UPDATE, Duration::from_secs(60));
        world.cluster.put(node("n2"));
        world.until("the update", |world| world.count("update") == 1).await;
        for _ in 0..10 {
            assert_eq!(world.cluster.recorded_set("cloud"), None, "{what}");
            world.pass(Duration::from_secs(1)).await;
        }
        world.pass(A_WHILE).await;
        assert!(world.cluster.recorded_set("cloud").is_some(), "{what}: all have it");
    }
}
