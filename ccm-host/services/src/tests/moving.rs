//! Several providers that could have a Service's balancer: it stays where it is, and what it leaves is not published.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    cluster::{addresses, fin, lb, node},
    ownership::{come, leave, words},
    restarting::A_SWEEP,
    world::{A_WHILE, World, word},
};
use ccm_cloud::{
    ErrorReason, PROVIDER_ANNOTATION,
    fake::{FakeProvider, error, method},
};

/// The second provider has the balancer of `web`, from a time when it alone owned Services without a class; the host is
/// down.
async fn had_by_the_second() -> (World, Arc<FakeProvider>) {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    world.cloud.change_info(|info| info.default_load_balancer_class = false);
    world.start();
    world.pass(Duration::from_secs(3)).await;
    world.stop().await;
    assert_eq!((world.cloud.balancers().len(), other.balancers().len()), (0, 1));
    world.cloud.change_info(|info| info.default_load_balancer_class = true);
    world.take();
    words(&other);
    (world, other)
}

/// F1: whichever list is first.
#[tokio::test(start_paused = true)]
async fn a_restart_moves_no_balancer_whoever_answers_late() {
    type Trouble = fn(&FakeProvider);
    let rows: [(&str, Trouble); 4] = [
        ("both at once", |_| {}),
        ("its list takes longer", |other| other.set_latency(method::LIST, Duration::from_secs(5))),
        ("it is away", leave),
        ("its list fails", |other| {
            for _ in 0..7 {
                other.fail_next(method::LIST, error(method::LIST, None));
            }
        }),
    ];
    for (id, trouble) in rows {
        let (mut world, other) = had_by_the_second().await;
        let before = addresses(&world.cluster.service("web").unwrap());
        trouble(&other);
        world.start();
        world.pass(Duration::from_secs(60)).await;
        come(&other);
        world.pass(3 * A_SWEEP).await;
        assert_eq!((world.count("ensure"), world.cloud.balancers().len()), (0, 0), "{id}");
        assert!(!words(&other).contains(&"delete web-uid".to_owned()), "{id}");
        assert_eq!(addresses(&world.cluster.service("web").unwrap()), before, "{id}");
    }
}

/// F1: what two balancers of one Service leave behind goes with the Service, too.
#[tokio::test(start_paused = true)]
async fn a_service_with_two_balancers_takes_both_with_it() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    let other = world.add_provider("other");
    let mut another = world.cloud.balancers()["web-uid"].clone();
    another.ingress[0].ip = "192.0.2.99".to_owned();
    other.set_balancer(another);
    world.start();
    world.pass(Duration::from_secs(60)).await;
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    assert!(world.cluster.service("web").is_none());
    assert_eq!((world.cloud.balancers().len(), other.balancers().len()), (0, 0));
}

/// F5: the address is released, and may be somebody else's next.
#[tokio::test(start_paused = true)]
async fn a_service_that_moves_does_not_publish_what_it_left() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    world.start();
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), ["192.0.2.1"]);
    other.fail_always(method::ENSURE, Some(error(method::ENSURE, Some(ErrorReason::QuotaExceeded))));
    world.cluster.change_service("web", |service| {
        service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: "other"});
    });
    world.pass(A_WHILE).await;
    assert!(world.cloud.balancers().is_empty());
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), [""; 0]);
    other.fail_always(method::ENSURE, None);
    world.pass(A_WHILE).await;
    let made = other.balancers()["web-uid"].ingress[0].ip.clone();
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), [made]);
}

/// Nothing but its finalizer says that there is a balancer: any provider may have it, also one that is not there yet.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_freed_by_the_wrong_provider_leaks_nothing() {
    let (mut world, other) = had_by_the_second().await;
    leave(&other);
    world.cluster.change_service("web", |service| {
        service["spec"]["type"] = json!("ClusterIP");
        service["status"] = json!({});
    });
    world.start();
    world.pass(A_WHILE).await;
    assert!(!world.cluster.service("web").unwrap()["metadata"]["finalizers"].is_null());
    come(&other);
    world.pass(A_WHILE).await;
    assert!(world.cluster.service("web").unwrap()["metadata"]["finalizers"].is_null());
    assert!(other.balancers().is_empty());
}

/// What a Service left behind when it lost its finalizer to someone else goes at the next sweep.
#[tokio::test(start_paused = true)]
async fn a_balancer_of_a_service_that_wants_none_is_removed() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    world.cluster.change_service("web", |service| {
        service["spec"]["type"] = json!("ClusterIP");
        service["metadata"]["finalizers"] = json!([]);
    });
    world.start();
    world.pass(A_WHILE).await;
    assert!(world.cloud.balancers().is_empty());
}

/// Another provider claims the balancer of each Service. It can be asked to delete what it has, or says it has, for as
/// long as it likes: nobody waits for that, and nothing published goes for it.
#[tokio::test(start_paused = true)]
async fn what_another_provider_claims_takes_nothing_from_a_service() {
    let mut world = World::settled([node("n1"), named("web")]).await;
    world.stop().await;
    let other = world.add_provider("other");
    let claim = |uid: &str| {
        let mut claim = world.cloud.balancers()["web-uid"].clone();
        uid.clone_into(&mut claim.service_uid);
        claim.key.name = uid.trim_end_matches("-uid").into();
        claim.ingress[0].ip = "192.0.2.99".to_owned();
        other.set_balancer(claim);
    };
    claim("web-uid");
    claim("new-uid");
    other.fail_always(method::DELETE, Some(error(method::DELETE, None)));
    world.cloud.set_latency(method::ENSURE, Duration::from_secs(5));
    leave(&world.cloud);
    // As a manager without records left it.
    world.cluster.change_service("web", |service| service["status"]["conditions"] = json!([]));
    let before = addresses(&world.cluster.service("web").unwrap());
    world.cluster.put(named("new"));
    world.start();
    world.pass(A_WHILE).await;
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), before);
    come(&world.cloud);
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), before);
    let made = world.cloud.balancers()["new-uid"].ingress[0].ip.clone();
    assert_eq!(addresses(&world.cluster.service("new").unwrap()), [made]);
}

fn named(service: &str) -> serde_json::Value {
    let mut service = lb(service);
    service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: "cloud"});
    service
}

/// A balancer that somebody deleted is made again, though another provider can never say which balancers it has.
#[tokio::test(start_paused = true)]
async fn what_one_provider_lost_does_not_wait_for_another_that_cannot_list() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    let old = ("old".to_owned(), error(method::LIST, Some(ErrorReason::UnsupportedFeature)));
    other.set_unreachable(vec![old]);
    world.start();
    world.pass(A_WHILE).await;
    world.stop().await;
    world.cloud.remove_balancer("web-uid");
    world.cluster.put(fin(lb("moved")));
    world.start();
    world.pass(A_WHILE).await;
    let mut made: Vec<_> = world.cloud.balancers().into_keys().collect();
    made.sort();
    assert_eq!(made, ["moved-uid", "web-uid"], "also what another manager left without a record");
    assert!(other.balancers().is_empty());
}

/// A list that is whole only later ends the wait of those whose balancers it may have had.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_whole_later_is_not_waited_for_any_longer() {
    let mut world = World::new([node("n1"), fin(lb("web"))]);
    let other = world.add_provider("other");
    for _ in 0..7 {
        other.fail_next(method::LIST, error(method::LIST, None));
    }
    world.start();
    world.pass(Duration::from_secs(40)).await;
    assert!(world.cloud.balancers().is_empty(), "it may be the other's");
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(world.cloud.balancers().len(), 1);
}

/// The second provider says that it has the balancer of `web`, which the first has; the host is down.
async fn claimed(ip: &str, recorded: bool) -> (World, Arc<FakeProvider>) {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    world.start();
    world.pass(Duration::from_secs(3)).await;
    world.stop().await;
    let mut claim = world.cloud.balancers()["web-uid"].clone();
    ip.clone_into(&mut claim.ingress[0].ip);
    claim.applied_digest = Some("its own".to_owned());
    other.set_balancer(claim);
    if !recorded {
        world.cluster.change_service("web", |service| service["status"]["conditions"] = json!([]));
    }
    words(&other);
    (world, other)
}

/// Nor does a Service that goes wait for what only the list of another provider says, which it may never delete.
#[tokio::test(start_paused = true)]
async fn what_another_provider_claims_holds_up_no_deletion() {
    for (ip, refuses) in [("192.0.2.99", true), ("192.0.2.1", true), ("192.0.2.99", false)] {
        let (mut world, other) = claimed(ip, true).await;
        world.start();
        world.pass(A_WHILE).await;
        if refuses {
            other.fail_always(method::DELETE, Some(error(method::DELETE, None)));
        } else {
            leave(&other);
        }
        world.cluster.change_service("web", |service| {
            service["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("x/y"));
        });
        world.cluster.delete_service("web");
        world.pass(A_WHILE).await;
        assert_eq!(world.cluster.service("web").unwrap()["metadata"]["finalizers"], json!(["x/y"]), "{ip}");
        world.cluster.remove_service("web");
        world.pass(A_WHILE).await;
        assert!(world.cloud.balancers().is_empty());
        other.fail_always(method::DELETE, None);
        come(&other);
        world.pass(2 * A_SWEEP).await;
        assert!(other.balancers().is_empty(), "what it had goes all the same");
    }
}

/// Anybody can read the published address: whoever lists it first is not believed against the record.
#[tokio::test(start_paused = true)]
async fn a_published_address_that_another_provider_lists_first_moves_nothing() {
    for (ip, recorded) in [("192.0.2.1", true), ("192.0.2.99", false)] {
        let (mut world, other) = claimed(ip, recorded).await;
        world.cloud.set_latency(method::LIST, Duration::from_secs(20));
        world.start();
        world.pass(3 * A_SWEEP).await;
        assert!(!words(&other).iter().any(|word| word.starts_with("ensure")), "{ip}");
        assert!(world.cloud.balancers().contains_key("web-uid"), "{ip}");
        assert_eq!(addresses(&world.cluster.service("web").unwrap()), ["192.0.2.1"], "{ip}");
    }
}

/// Its owner of today never had it, and the provider that has it has not listed it yet.
#[tokio::test(start_paused = true)]
async fn a_service_without_a_record_goes_once_its_balancer_has_gone() {
    let (mut world, other) = had_by_the_second().await;
    world.cluster.change_service("web", |service| service["status"]["conditions"] = json!([]));
    other.set_latency(method::LIST, Duration::from_secs(100));
    world.start();
    world.pass(Duration::from_secs(1)).await;
    other.fail_always(method::DELETE, Some(error(method::DELETE, None)));
    world.cluster.delete_service("web");
    world.pass(A_WHILE).await;
    assert!(world.cluster.service("web").is_some(), "that the first had none proves nothing");
    other.fail_always(method::DELETE, None);
    world.pass(A_WHILE).await;
    assert!(world.cluster.service("web").is_none());
    assert!(other.balancers().is_empty());
}

/// What works is not given up for a provider that cannot be asked.
#[tokio::test(start_paused = true)]
async fn a_service_moves_only_once_its_new_provider_is_there() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    world.start();
    world.pass(Duration::from_secs(3)).await;
    leave(&other);
    world.cluster.change_service("web", |service| {
        service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: "other"});
    });
    world.pass(A_WHILE).await;
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), ["192.0.2.1"]);
    assert_eq!(world.cloud.balancers().len(), 1);
    come(&other);
    world.pass(A_WHILE).await;
    assert_eq!((world.cloud.balancers().len(), other.balancers().len()), (0, 1));
}

/// Without a record, what another provider claims and deletes says nothing of whoever has not listed yet, or is not there.
#[tokio::test(start_paused = true)]
async fn a_claim_frees_no_service_without_a_record() {
    for (deletes, is_away) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut world, other) = claimed("192.0.2.99", false).await;
        world.cloud.set_latency(method::LIST, Duration::from_secs(100));
        if is_away {
            leave(&world.cloud);
        }
        world.start();
        world.until("the list", |_| other.calls().iter().any(|call| word(call) == "list")).await;
        if deletes {
            world.cluster.delete_service("web");
        } else {
            world.cluster.change_service("web", |service| {
                service["spec"]["type"] = json!("ClusterIP");
                service["status"] = json!({});
            });
        }
        world.pass(A_WHILE).await;
        come(&world.cloud);
        world.pass(A_WHILE).await;
        let what = format!("deleted: {deletes}, away: {is_away}");
        assert_eq!((world.cloud.balancers().len(), other.balancers().len()), (0, 0), "{what}");
        let service = world.cluster.service("web");
        assert_eq!(service.is_none(), deletes, "{what}");
        let guarded = service.is_some_and(|service| !service["metadata"]["finalizers"].is_null());
        assert!(!guarded, "{what}");
    }
}

fn goes_to(world: &World, provider: &str) {
    world.cluster.change_service("web", |service| {
        service["spec"]["type"] = json!("LoadBalancer");
        service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: provider});
    });
}

/// The second provider has the balancer of `web`, which wanted none for a moment: the first, which has none, takes its time
/// to say so.
async fn moved_during_a_deletion() -> (World, Arc<FakeProvider>) {
    let mut web = fin(lb("web"));
    web["spec"]["type"] = json!("ClusterIP");
    let mut world = World::new([node("n1"), web]);
    let other = world.add_provider("other");
    // It is not asked to delete anything, and what it makes has no address of its own.
    other.change_info(|info| info.load_balancers = false);
    other.without_addresses();
    world.cloud.set_latency(method::DELETE, Duration::from_secs(100));
    world.start();
    world.until("the deletion", |world| world.count("delete") == 1).await;
    goes_to(&world, "other");
    come(&other);
    world.until("the other one's", |_| other.balancers().len() == 1).await;
    (world, other)
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_deletes_is_asked_for_nothing_else_meanwhile() {
    let (world, other) = moved_during_a_deletion().await;
    goes_to(&world, "cloud");
    world.pass(A_WHILE).await;
    assert!(world.cloud.overlaps().is_empty(), "{:?}", world.cloud.overlaps());
    assert_eq!((world.count("ensure"), other.balancers().len()), (1, 0), "{:?}", world.calls());
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), ["192.0.2.1"]);
}

/// What was deleted where it is no more says nothing of the address that somebody else gave it meanwhile, as kube-vip does.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_ends_late_takes_nothing_from_a_service_that_moved() {
    let (world, other) = moved_during_a_deletion().await;
    world.cluster.change_service("web", |service| {
        service["status"]["loadBalancer"] = json!({"ingress": [{"ip": "192.0.2.77"}]});
    });
    world.pass(A_WHILE).await;
    assert_eq!((world.count("delete"), other.balancers().len()), (1, 1), "{:?}", world.calls());
    assert_eq!(addresses(&world.cluster.service("web").unwrap()), ["192.0.2.77"]);
    assert_eq!(world.controller().rows.all().len(), 1, "the row goes with the call");
}

/// SW-3, as with one provider: a rollout may have lost a flag, and another one serves the class meanwhile.
#[tokio::test(start_paused = true)]
async fn a_provider_that_no_longer_looks_after_a_class_keeps_its_balancers_beside_another() {
    for restarts in [false, true] {
        let mut world = World::new([machine("n1", "cloud"), lb("web")]);
        let other = world.add_provider("other");
        world.start();
        world.pass(A_WHILE).await;
        let before = addresses(&world.cluster.service("web").unwrap());
        world.cloud.change_info(|info| info.default_load_balancer_class = false);
        if restarts {
            world.stop().await;
            world.start();
        }
        world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
        world.pass(A_SWEEP).await;
        assert_eq!((world.cloud.balancers().len(), other.balancers().len()), (1, 0), "{restarts}");
        assert_eq!(addresses(&world.cluster.service("web").unwrap()), before, "{restarts}");
        // It serves, and says why it is not edited.
        world.cluster.put(machine("n2", "cloud"));
        world.pass(A_WHILE).await;
        assert_eq!(world.cloud.backends_of("web-uid"), ["n1", "n2"], "{restarts}");
        assert!(world.events().iter().any(|event| event.contains("does not look after its class")));
        // A person may move it all the same.
        world.cluster.change_service("web", |service| {
            service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: "other"});
        });
        world.pass(A_WHILE).await;
        assert_eq!((world.cloud.balancers().len(), other.balancers().len()), (0, 1), "{restarts}");
    }
}

fn machine(name: &str, of: &str) -> serde_json::Value {
    let mut machine = node(name);
    machine["spec"]["providerID"] = json!(format!("{of}://{name}"));
    machine
}

/// The same where the second provider comes in the same restart, so that there is no record, whichever list comes first.
#[tokio::test(start_paused = true)]
async fn a_provider_that_loses_its_class_as_another_comes_keeps_its_balancers() {
    for slow in [true, false] {
        let mut world = World::settled([node("n1"), lb("web")]).await;
        world.stop().await;
        let other = world.add_provider("other");
        world.cloud.change_info(|info| info.default_load_balancer_class = false);
        let late = if slow { &world.cloud } else { &other };
        late.set_latency(method::LIST, Duration::from_secs(5));
        world.start();
        world.pass(2 * A_SWEEP).await;
        assert_eq!((world.cloud.balancers().len(), other.balancers().len()), (1, 0), "{slow}");
        let told = world.events();
        assert!(told.iter().any(|event| event.contains("does not look after its class")), "{slow}: {told:?}");
        assert_eq!(world.metric("ccm_service_pending"), "1", "{slow}");
    }
}

/// What only the list of another provider says holds up nothing: its own balancer is made again.
#[tokio::test(start_paused = true)]
async fn a_balancer_that_another_provider_claims_is_made_again_where_it_was() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    other.change_info(|info| info.default_load_balancer_class = false);
    world.start();
    world.pass(A_WHILE).await;
    let mut claimed = super::ownership::balancer("web");
    claimed.ingress = vec![ccm_kube::Ingress { ip: "192.0.2.99".to_owned(), ..Default::default() }];
    other.set_balancer(claimed);
    other.fail_always(method::DELETE, Some(error(method::DELETE, None)));
    world.pass(A_SWEEP).await;
    world.cloud.remove_balancer("web-uid");
    world.pass(2 * A_SWEEP).await;
    assert_eq!(world.cloud.balancers().len(), 1);
}

/// Nor is what its own provider's list lacks removed there, while another one makes a new one.
#[tokio::test(start_paused = true)]
async fn what_a_list_lacks_is_not_removed_from_under_a_service_that_nobody_moves() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    world.start();
    world.pass(A_WHILE).await;
    world.cloud.change_info(|info| info.default_load_balancer_class = false);
    world.cloud.hide_balancer("web-uid", true);
    world.take();
    world.pass(2 * A_SWEEP).await;
    assert_eq!((world.count("delete"), other.balancers().len()), (0, 1));
}

/// The list lacks what is half removed: a balancer is gone, and its security group is not yet.
#[tokio::test(start_paused = true)]
async fn what_a_moved_service_left_half_removed_goes_on_being_removed() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    world.start();
    world.pass(A_WHILE).await;
    let held = error(method::DELETE, Some(ErrorReason::RetryLater));
    world.cloud.fail_always(method::DELETE, Some(held));
    world.cloud.hide_balancer("web-uid", true);
    world.cluster.change_service("web", |service| {
        service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: "other"});
    });
    world.pass(2 * A_SWEEP).await;
    world.cloud.fail_always(method::DELETE, None);
    world.pass(A_SWEEP).await;
    assert!(world.cloud.balancers().is_empty());
    assert_eq!(other.balancers().len(), 1);
}

/// The command line may give them to a provider that takes none by itself.
#[tokio::test(start_paused = true)]
async fn services_of_the_default_provider_are_its_own_whatever_it_says_of_them() {
    let mut world = World::new([machine("n1", "cloud"), lb("web")]);
    world.add_provider("other").change_info(|info| info.default_load_balancer_class = false);
    world.cloud.change_info(|info| info.default_load_balancer_class = false);
    world.division.services = Some("cloud".to_owned());
    world.start();
    world.pass(A_WHILE).await;
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.cluster.put(machine("n2", "cloud"));
    world.pass(A_WHILE).await;
    assert_eq!(world.metric("ccm_service_pending"), "0");
    assert_eq!(world.cloud.backends_of("web-uid"), ["n1", "n2"]);
}

/// Nor does it win the Service by repeating the address that this publishes.
#[tokio::test(start_paused = true)]
async fn a_published_address_in_another_providers_list_wins_nothing() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    other.change_info(|info| info.default_load_balancer_class = false);
    world.start();
    world.pass(A_WHILE).await;
    other.set_balancer(world.cloud.balancers()["web-uid"].clone());
    world.pass(A_SWEEP).await;
    world.cloud.remove_balancer("web-uid");
    world.pass(2 * A_SWEEP).await;
    assert_eq!(world.cloud.balancers().len(), 1);
}
