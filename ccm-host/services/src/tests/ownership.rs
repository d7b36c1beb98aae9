//! Services of other implementations are left alone, and so are balancers that may belong to someone else.

use std::time::Duration;

use serde_json::json;

use super::{
    cluster::{deleting, fin, lb, node, published},
    restarting::A_SWEEP,
    world::{A_WHILE, World, word},
};
use ccm_cloud::{
    LoadBalancer, LoadBalancerState, Ownership, PROVIDER_ANNOTATION, Provider as _, ProviderStatus,
    SyncState,
    fake::{FakeProvider, error, method},
};
use ccm_kube::service::ObjectKey;

pub(super) fn balancer(name: &str) -> LoadBalancer {
    LoadBalancer {
        key: ObjectKey::new("default", name),
        service_uid: format!("{name}-uid"),
        id: format!("lb-{name}"),
        name: String::new(),
        state: LoadBalancerState::Active,
        ingress: Vec::new(),
        applied_digest: None,
        sync_state: SyncState::Unspecified,
        ownership: Ownership::ByUid,
        rejected: Vec::new(),
    }
}

fn of_another(mut service: serde_json::Value) -> serde_json::Value {
    service["spec"]["loadBalancerClass"] = json!("other/lb");
    service
}

/// SVC-1, SVC-5, SVC-31: no calls, no writes.
#[tokio::test(start_paused = true)]
async fn what_is_no_concern_of_ours_costs_nothing() {
    let mut plain = lb("plain");
    plain["spec"]["type"] = json!("ClusterIP");
    let foreign = of_another(published(fin(lb("foreign"))));
    let world = World::new([node("n1"), plain, foreign]);
    world.cloud.set_balancer(balancer("foreign"));
    let mut world = world;
    world.start();
    world.pass(A_WHILE).await;
    world.cluster.change_service("foreign", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.cluster.put(node("n2"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["list"]);
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// SVC-32, SW-4: cleaned up only if a provider of ours reports that the balancer is ours.
#[tokio::test(start_paused = true)]
async fn a_deleted_service_of_another_class_is_cleaned_up_only_if_its_balancer_is_ours() {
    let world = World::settled([node("n1"), fin(lb("x"))]).await;
    world.cluster.put(deleting(of_another(fin(lb("theirs")))));
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.take(), ["get theirs"]);
    let finalizers = world.cluster.service("theirs").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers.as_array().unwrap().len(), 1);

    world.cloud.set_balancer(balancer("ours"));
    world.cluster.put(deleting(of_another(fin(lb("ours")))));
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.take(), ["get ours", "delete ours-uid", "finalizer removed"]);

    world.cloud.set_balancer(LoadBalancer { ownership: Ownership::ByLegacyName, ..balancer("former") });
    world.cluster.put(deleting(of_another(fin(lb("former")))));
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.take(), ["get former"], "not ours beyond doubt");
}

/// SW-3: LoadBalancer, ClusterIP, and LoadBalancer of another class, all while no host ran. The listed digest tells
/// for which class the balancer was made. Others' finalizers stay, and so does what another implementation published.
#[tokio::test(start_paused = true)]
async fn a_balancer_left_behind_by_a_change_of_class_is_removed_after_a_restart() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    world.cluster.change_service("web", |service| {
        service["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("other/one"));
        service["spec"]["ports"][0]["nodePort"] = json!(31_000);
        service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.7", "ipMode": "VIP"}]}});
        *service = of_another(service.clone());
    });
    world.start();
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert_eq!(story, ["list", "delete web-uid", "finalizer removed"]);
    assert_eq!(events, ["DeletingLoadBalancer", "DeletedLoadBalancer"]);
    let service = world.cluster.service("web").unwrap();
    assert_eq!(service["metadata"]["finalizers"], json!(["other/one"]));
    assert_eq!(service["status"]["loadBalancer"]["ingress"][0]["ip"], "198.51.100.7");
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// SW-4: without proof nothing changes: a class that no provider owns any more, and digests of others.
#[tokio::test(start_paused = true)]
async fn a_balancer_that_may_be_in_use_is_kept_after_a_restart() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    world.cloud.change_info(|info| info.default_load_balancer_class = false);
    world.cluster.put(of_another(fin(lb("theirs"))));
    world
        .cloud
        .set_balancer(LoadBalancer { applied_digest: Some("theirs".to_owned()), ..balancer("theirs") });
    world.start();
    world.pass(A_WHILE).await;
    assert_eq!(world.take(), ["list"]);
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

/// The balancer is at a provider that owns another class: it is removed there, and made at the owner of its class.
#[tokio::test(start_paused = true)]
async fn a_change_of_class_between_two_providers_moves_the_balancer_after_a_restart() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    let other = world.add_provider("other");
    other.change_info(|info| {
        info.default_load_balancer_class = false;
        info.load_balancer_classes = vec!["other/lb".to_owned()];
    });
    world.cluster.change_service("web", |service| *service = of_another(service.clone()));
    world.start();
    world.pass(A_WHILE).await;
    assert_eq!(world.calls(), ["list", "delete web-uid"]);
    let of_other: Vec<_> = other.calls().iter().map(word).collect();
    assert_eq!(of_other.last().unwrap(), "ensure web ", "it has no nodes: {of_other:?}");
}

/// A Service is served by the provider that owns its class.
#[tokio::test(start_paused = true)]
async fn a_service_goes_to_the_provider_of_its_class() {
    let mut world = World::new([node("n1"), lb("web")]);
    let other = world.add_provider("other");
    other.change_info(|info| {
        info.default_load_balancer_class = false;
        info.load_balancer_classes = vec!["other/lb".to_owned()];
    });
    world.cluster.put(of_another(lb("classy")));
    world.start();
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.calls(), ["list", "ensure web n1"]);
    let of_other: Vec<_> = other.calls().iter().map(word).collect();
    assert_eq!(of_other, ["list", "ensure classy "], "it has no nodes");
    // The class is cleared with the type; the provider that has the balancer is known.
    world.cluster.change_service("classy", |service| {
        service["spec"]["type"] = json!("ClusterIP");
        service["spec"].as_object_mut().unwrap().remove("loadBalancerClass");
    });
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.count("delete"), 0);
    assert_eq!(word(other.calls().last().unwrap()), "delete classy-uid");
}

/// The annotation moves a Service between providers; a wrong one changes nothing, and says so.
#[tokio::test(start_paused = true)]
async fn a_service_goes_to_the_provider_that_its_annotation_names() {
    let mut foreign = node("n2");
    foreign["spec"]["providerID"] = json!("other://n2");
    let mut world = World::new([node("n1"), foreign, lb("web")]);
    let other = world.add_provider("other");
    other.change_info(|info| {
        info.default_load_balancer_class = false;
        info.instances = true;
    });
    world.start();
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.calls(), ["list", "ensure web n1"], "only its own nodes");
    let name = |service: &mut serde_json::Value, name: &str| {
        service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: name});
    };

    world.take_with_events();
    world.cluster.change_service("web", |service| name(service, "typo"));
    world.cluster.put(node("n3"));
    world.pass(A_WHILE).await;
    let (story, events) = world.take_with_events();
    assert!(events[0].contains("\"typo\" is not a provider of this host"), "{events:?}");
    assert_eq!(story.last().unwrap(), "update web n1,n3", "nodes still follow: {story:?}");

    world.cluster.change_service("web", |service| name(service, "other"));
    world.pass(A_WHILE).await;
    assert_eq!(world.calls(), ["delete web-uid"]);
    let of_other: Vec<_> = other.calls().iter().map(word).collect();
    assert_eq!(of_other.last().unwrap(), "ensure web n2", "{of_other:?}");
}

/// A provider whose configuration drops a class keeps the balancers that it made.
#[tokio::test(start_paused = true)]
async fn a_provider_that_no_longer_looks_after_a_class_keeps_its_balancers() {
    let world = World::settled([node("n1"), lb("web")]).await;
    world.cloud.change_info(|info| info.default_load_balancer_class = false);
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.pass(A_WHILE).await;
    assert!(world.take().is_empty());
}

fn turned_off(service: &mut serde_json::Value) {
    service["spec"]["type"] = json!("ClusterIP");
    service["spec"].as_object_mut().unwrap().remove("loadBalancerClass");
}

/// S10: the class is cleared with the type, but the finalizer protects the other implementation's balancer.
#[tokio::test(start_paused = true)]
async fn another_implementations_finalizer_survives_a_change_of_type() {
    let world = World::settled([node("n1"), of_another(fin(lb("theirs")))]).await;
    world.cluster.change_service("theirs", turned_off);
    world.pass(A_SWEEP).await;
    world.cluster.delete_service("theirs");
    world.pass(A_WHILE).await;
    let story: Vec<_> =
        world.take().into_iter().filter(|word| word != "list" && word != "get theirs").collect();
    assert!(story.is_empty(), "{story:?}");
    let finalizers = world.cluster.service("theirs").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers.as_array().unwrap().len(), 1);
    assert_eq!(world.metric("ccm_service_pending"), "0");
}

pub(super) fn come(provider: &FakeProvider) {
    provider.change_info(|info| {
        info.instances = true;
        info.provider_id_prefixes = vec![format!("{}://", provider.name())];
        info.load_balancers = true;
        info.default_load_balancer_class = true;
    });
    provider.set_status(ProviderStatus::Serving);
}

pub(super) fn leave(provider: &FakeProvider) {
    provider.forget_info();
    provider.set_status(ProviderStatus::Disconnected("no socket".to_owned()));
}

pub(super) fn words(provider: &FakeProvider) -> Vec<String> {
    provider.take_calls().iter().map(word).collect()
}

/// S1: both own Services without a class. The first on the command line comes late, and loses none.
#[tokio::test(start_paused = true)]
async fn a_late_provider_keeps_its_services() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    let other = world.add_provider("other");
    leave(&world.cloud);
    world.start();
    world.pass(A_WHILE).await;
    assert_eq!(words(&other), ["list"], "it may be the other's");
    world.cluster.change_service("web", |service| service["spec"]["ports"][0]["port"] = json!(81));
    world.pass(A_WHILE).await;
    come(&world.cloud);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.take(), ["list", "ensure web n1"]);
    assert!(words(&other).is_empty());
}

/// S1: one provider has a balancer, another owns the Service: left behind, and removed once the owner has its own.
#[tokio::test(start_paused = true)]
async fn a_balancer_at_a_provider_that_does_not_own_the_service_goes() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    let other = world.add_provider("other");
    let mut another = world.cloud.balancers()["web-uid"].clone();
    another.ingress[0].ip = "192.0.2.99".to_owned();
    other.set_balancer(another);
    world.start();
    world.pass(2 * A_SWEEP).await;
    let of_other = words(&other);
    assert_eq!(of_other.iter().filter(|word| *word == "delete web-uid").count(), 1, "{of_other:?}");
    assert!(other.balancers().is_empty());
    let story: Vec<_> = world.take().into_iter().filter(|word| word != "list").collect();
    assert!(story.is_empty(), "{story:?}");
    assert_eq!(world.cloud.balancers().len(), 1);
}

/// While one provider of a cloud replaces another, both list the same balancer.
#[tokio::test(start_paused = true)]
async fn a_balancer_that_two_providers_see_is_not_left_behind() {
    let mut world = World::settled([node("n1"), lb("web")]).await;
    world.stop().await;
    let other = world.add_provider("other");
    other.set_balancer(world.cloud.balancers()["web-uid"].clone());
    world.start();
    world.pass(2 * A_SWEEP).await;
    let of_other = words(&other);
    assert!(of_other.iter().all(|word| word == "list"), "{of_other:?}");
    assert_eq!(other.balancers().len(), 1);
}

/// SVC-32: whoever does not answer is asked again; whoever has it is asked at once.
#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_keeps_no_service_of_another_class_that_another_has() {
    let mut world = World::new([node("n1"), deleting(fin(of_another(lb("web"))))]);
    let other = world.add_provider("other");
    other.set_balancer(balancer("web"));
    world.cloud.fail_always(method::GET, Some(error(method::GET, None)));
    for cloud in world.clouds() {
        cloud.fail_always(method::LIST, Some(error(method::LIST, None)));
    }
    world.start();
    world.pass(A_WHILE).await;
    assert!(other.balancers().is_empty());
    assert!(world.cluster.service("web").is_none());
}

/// Complete lists lack a balancer, and the annotation names nobody: there is nothing to wait for, whoever looks after the class.
#[tokio::test(start_paused = true)]
async fn a_service_whose_annotation_names_nobody_can_be_deleted() {
    for has_default in [true, false] {
        let mut typo = fin(lb("web"));
        typo["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: "typo"});
        let mut world = World::new([node("n1"), typo]);
        world.cloud.change_info(|info| info.default_load_balancer_class = has_default);
        world.start();
        world.pass(Duration::from_secs(3)).await;
        world.cluster.delete_service("web");
        world.pass(2 * A_SWEEP).await;
        assert!(world.cluster.service("web").is_none(), "{has_default}: {:?}", world.take());
    }
}

/// Nothing but its finalizer says that there is a balancer, of a provider that does not claim the class: its list decides.
#[tokio::test(start_paused = true)]
async fn a_deleted_service_is_not_freed_before_the_provider_that_it_names_has_listed() {
    let mut world = World::new([node("n1"), lb("web")]);
    world.cloud.change_info(|info| info.default_load_balancer_class = false);
    world.cluster.change_service("web", |service| {
        service["metadata"]["annotations"] = json!({PROVIDER_ANNOTATION: "cloud"});
    });
    world.start();
    world.pass(A_WHILE).await;
    world.stop().await;
    assert_eq!(world.cloud.balancers().len(), 1);
    world.cluster.delete_service("web");
    world.cloud.set_latency(method::LIST, Duration::from_secs(30));
    world.start();
    world.pass(A_WHILE).await;
    assert!(world.cluster.service("web").is_none() && world.cloud.balancers().is_empty());
}
