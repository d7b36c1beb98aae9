//! `CloudAllocator`.

use super::*;
use ccm_cloud::{
    ErrorReason, Freshness, Instance, InstanceState, InstanceView,
    fake::{Call, error, instance, method},
};
use ccm_reconcile::SLOW_RETRY;

/// A cloud that allots, with these cluster CIDRs.
fn cloud(cluster: &[&str]) -> CidrSettings {
    let cluster = cluster.iter().map(|text| cidr::parse(text).unwrap()).collect();
    CidrSettings { cluster, allocation: Some(Allocation::Cloud) }
}

fn allotted(fake: &FakeProvider, name: &str, cidrs: &[&str]) {
    let pod_cidrs = cidrs.iter().map(|text| text.parse().unwrap()).collect();
    fake.set_instance(name, InstanceState::Running, Instance { pod_cidrs, ..instance("fake://1") });
}

/// IPAM-21, as it was before 1.31: no cluster CIDR is needed; the client of the contract takes care of CLD-5.
#[tokio::test(start_paused = true)]
async fn a_node_gets_what_its_provider_says() {
    let nodes = [node("a"), node("b").with_provider_id("fake://b"), node("c").with_pod_cidr("10.9.0.0/24")];
    let scene = Scene::start_with(cloud(&[]), "", nodes, |scene| {
        allotted(&scene.fake, "a", &["10.128.1.0/24"]);
        allotted(&scene.fake, "b", &["fd00:1::/64", "10.128.2.0/24"]);
        allotted(&scene.fake, "c", &["10.128.3.0/24"]);
    })
    .await;
    assert_eq!(scene.cidrs("a"), json!(["10.128.1.0/24"]));
    assert_eq!(scene.cidrs("b"), json!(["fd00:1::/64", "10.128.2.0/24"]));
    assert_eq!(scene.server.part("b", "/spec/podCIDR"), json!("fd00:1::/64"));
    assert_eq!(scene.cidrs("c"), json!(["10.9.0.0/24"]), "what a node has, it keeps");
    let asked: Vec<_> = scene.fake.calls();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let whole = |call: &Call| {
        matches!(call, Call::Instance { view: InstanceView::All, freshness: Freshness::ReadThrough, .. })
    };
    assert!(asked.iter().all(whole), "{asked:?}");
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_has_allotted_nothing_yet_is_asked_until_it_has() {
    let scene = Scene::start_with(cloud(&[]), "", [node("a")], |scene| {
        allotted(&scene.fake, "a", &[]);
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    let told = "the cloud has not allocated the pod CIDRs: the instance has none (yet)".to_owned();
    assert_eq!(scene.events(), [(EventType::Warning, "CIDRNotAvailable", told)], "once");
    assert!(scene.problems("NotAllotted", 1));
    assert!(scene.fake.calls().len() > 3, "asked again and again");
    allotted(&scene.fake, "a", &["10.128.1.0/24"]);
    sleep(Controller::BACKOFF.max).await;
    assert_eq!(scene.cidrs("a"), json!(["10.128.1.0/24"]));
    assert!(scene.problems("NotAllotted", 0));
    scene.stop().await;
}

/// N12: podCIDRs are permanent, so an incomplete set is not written.
#[tokio::test(start_paused = true)]
async fn a_node_waits_for_the_families_of_its_cluster() {
    let scene = Scene::start_with(cloud(&["10.128.0.0/16", "fd00::/48"]), "", [node("a")], |scene| {
        allotted(&scene.fake, "a", &["10.128.1.0/24"]);
    })
    .await;
    assert_eq!(scene.cidrs("a"), Value::Null);
    let told = "the cloud has not allocated the pod CIDRs: the instance has 10.128.1.0/24, but none (yet) of the family of \
                fd00::/48 in --cluster-cidr"
        .to_owned();
    assert_eq!(scene.events(), [(EventType::Warning, "CIDRNotAvailable", told)]);
    assert!(scene.problems("NotAllotted", 1));
    allotted(&scene.fake, "a", &["fd00:0:0:1::/64", "10.128.1.0/24"]);
    sleep(Controller::BACKOFF.max).await;
    assert_eq!(
        scene.cidrs("a"),
        json!(["10.128.1.0/24", "fd00:0:0:1::/64"]),
        "the cluster's first family leads"
    );
    assert!(scene.problems("NotAllotted", 0));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_says_when_it_wants_to_be_asked_again() {
    let scene = Scene::start_with(cloud(&[]), "", [node("a")], |scene| {
        allotted(&scene.fake, "a", &["10.128.1.0/24"]);
        let limited = error(method::INSTANCE, Some(ErrorReason::RateLimited));
        let limited = ccm_cloud::CloudError { retry_after: Some(Duration::from_secs(30)), ..limited };
        scene.fake.fail_next(method::INSTANCE, limited);
    })
    .await;
    assert_eq!(scene.reasons(), ["CIDRNotAvailable"]);
    sleep(Duration::from_secs(29)).await;
    assert_eq!(scene.fake.calls().len(), 1);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.cidrs("a"), json!(["10.128.1.0/24"]));
    scene.stop().await;
}

/// IPAM-26: a late answer about a deleted node is not reported, and so need not be withdrawn.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_its_node_went_is_not_told() {
    let scene = Scene::start_with(cloud(&[]), "", [node("a"), node("b")], |scene| {
        allotted(&scene.fake, "a", &[]);
        allotted(&scene.fake, "b", &[]);
        scene.fake.set_latency(method::INSTANCE, Duration::from_secs(5));
    })
    .await;
    scene.server.delete("a");
    scene.server.put(&node("b").uid("newer"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.reasons(), ["CIDRNotAvailable"], "of the newer b only");
    assert!(scene.problems("NotAllotted", 1));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_of_nobody_is_hardly_asked_about() {
    let scene = Scene::start_with(
        cloud(&[]),
        "",
        [node("foreign").with_provider_id("other://1"), node("not-owned")],
        |scene| scene.fake.set_state("not-owned", InstanceState::NotOwned),
    )
    .await;
    sleep(SLOW_RETRY * 3 / 2).await;
    assert_eq!(scene.server.take_lines(), [""; 0]);
    assert_eq!(scene.fake.calls().len(), 2);
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

/// One wrong answer is not for ever: a provider with the wrong project, or the wrong prefix, is put right again.
#[tokio::test(start_paused = true)]
async fn a_node_of_nobody_becomes_somebodys() {
    let nodes = [node("denied"), node("foreign").with_provider_id("other://1")];
    let scene = Scene::start_with(cloud(&[]), "", nodes, |scene| {
        scene.fake.set_state("denied", InstanceState::NotOwned);
        allotted(&scene.fake, "foreign", &["10.128.2.0/24"]);
    })
    .await;
    allotted(&scene.fake, "denied", &["10.128.1.0/24"]);
    scene.fake.change_info(|info| info.provider_id_prefixes = vec!["other://".to_owned()]);
    scene.fake.request_sweep();
    scene.rest().await;
    assert_eq!(scene.cidrs("denied"), json!(["10.128.1.0/24"]));
    assert_eq!(scene.cidrs("foreign"), json!(["10.128.2.0/24"]));
    scene.stop().await;
}

/// A prefix that is put right without a new connection is noticed, too.
#[tokio::test(start_paused = true)]
async fn a_node_of_nobody_is_looked_at_again_by_itself() {
    let nodes = [node("foreign").with_provider_id("other://1")];
    let scene = Scene::start_with(cloud(&[]), "", nodes, |scene| {
        allotted(&scene.fake, "foreign", &["10.128.2.0/24"]);
    })
    .await;
    scene.fake.change_info(|info| info.provider_id_prefixes = vec!["other://".to_owned()]);
    sleep(SLOW_RETRY).await;
    assert_eq!(scene.cidrs("foreign"), json!(["10.128.2.0/24"]));
    scene.stop().await;
}

/// N4.
#[tokio::test(start_paused = true)]
async fn sweeps_that_are_wished_all_the_time_become_rare() {
    let scene = Scene::start_with(cloud(&[]), "", [node("a")], |scene| {
        allotted(&scene.fake, "a", &[]);
    })
    .await;
    sleep(SLOW_RETRY).await;
    scene.fake.take_calls();
    for _ in 0..360 {
        scene.fake.request_sweep();
        sleep(Duration::from_secs(5)).await;
    }
    let asked = scene.fake.take_calls().len();
    assert!(asked <= 30, "asked {asked} times in half an hour, of which 15 are its backoff's");
    scene.stop().await;
}

/// Root on one worker changes labels of its Node all the time: what the cloud allows for all is not spent on it.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_all_the_time_has_its_cloud_asked_now_and_then() {
    let scene = Scene::start_with(cloud(&[]), "zone", [node("a").with_label("zone", "0")], |scene| {
        allotted(&scene.fake, "a", &[]);
    })
    .await;
    for number in 0..600 {
        scene.server.edit("a", |node| node["metadata"]["labels"]["zone"] = json!(number.to_string()));
        scene.rest().await;
    }
    let asked = scene.fake.calls().len();
    assert!(asked < 60, "{asked} questions");
    scene.stop().await;
}
