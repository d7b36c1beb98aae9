//! The whole controller against an in-memory apiserver and provider, on a paused clock.

pub(super) mod forge;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use ccm_cloud::{
    AddressType, ErrorReason, Freshness, Instance, InstanceAddress, InstanceState, InstanceView,
    fake::{Call, FakeProvider, error, instance, method},
};
use ccm_kube::{certificate_request::CertificateRequest, fixtures::node, node::Node};
use ccm_reconcile::{
    node_server::NodeServer,
    settings::CsrPolicy,
    stage::{self, Stage},
};
use forge::{Forge, request};

#[derive(derive_more::Deref)]
struct Scene(Stage);

fn registered(name: &str) -> Node {
    node(name).with_provider_id(&format!("fake://{name}"))
}

/// The host's own name and one address.
fn good(name: &str) -> Forge {
    Forge::of(name, &[name, "10.0.0.1"])
}

impl Scene {
    /// A cluster with these nodes, whose instances run and are named as they are.
    async fn start(policy: CsrPolicy, nodes: &[Node]) -> Self {
        let fake = FakeProvider::new("fake");
        for node in nodes {
            runs(&fake, &node.name);
        }
        let mut settings = stage::settings();
        settings.kubelet_serving.kubelet_serving_csr_policy = policy;
        let server = NodeServer::new(nodes.iter().cloned());
        let scene = Self(Stage::set(&REGISTRATION, server, &[fake], settings).await.run());
        scene.rest().await;
        scene
    }

    /// The kubelet of a node asks.
    fn ask(&self, node: &str, forge: &Forge) {
        self.ask_as(&format!("csr-{node}"), node, forge);
    }

    fn ask_as(&self, name: &str, node: &str, forge: &Forge) {
        let CertificateRequest { signer, username, groups, usages, pem, .. } = request(node, forge.pem());
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name, "creationTimestamp": ccm_base::clock::now()},
            "spec": {"signerName": signer, "username": username, "groups": groups, "usages": usages,
                "request": k8s_openapi::ByteString(pem)},
            "status": {},
        });
        self.server.api().world().put_value(object).unwrap();
    }

    /// The request, and then a moment for the controller.
    async fn asked(&self, node: &str, forge: &Forge) {
        self.ask(node, forge);
        self.rest().await;
    }

    fn forget(&self, name: &str) {
        self.server.api().world().remove::<CertificateSigningRequest>("", name).unwrap();
    }

    fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let world = self.server.api().world();
        let mut object = world.object::<CertificateSigningRequest>("", name).unwrap().value();
        edit(&mut object);
        world.put_value(object).unwrap();
    }

    /// Types and reasons of the conditions.
    fn decision(&self, name: &str) -> Vec<(String, String)> {
        let object = self.server.api().world().object::<CertificateSigningRequest>("", name).unwrap().value();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        conditions.iter().map(|one| (text(&one["type"]), text(&one["reason"]))).collect()
    }

    fn is_approved(&self, name: &str) -> bool {
        self.decision(name) == [("Approved".to_owned(), "KubeletServingCertificateApproved".to_owned())]
    }

    fn is_undecided(&self, name: &str) -> bool {
        self.decision(name).is_empty()
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.events.take().into_iter().map(|(_, reason, _)| reason).collect()
    }

    /// How many requests wait for this, or are blocked by it.
    fn reports(&self, reason: &str) -> Option<String> {
        let labels = ["Waiting", "Blocked", "LeftAlone"].map(|standing| {
            format!(
                "ccm_reports{{controller=\"{}\",standing=\"{standing}\",reason=\"{reason}\"}} ",
                REGISTRATION.name
            )
        });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let of = |line: &str| labels.iter().find_map(|labels| line.strip_prefix(labels)).map(str::to_owned);
        text.lines().find_map(of)
    }

    /// The sample of a metric of this controller.
    fn metric(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let name = format!("kubelet_serving_csr_controller_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned))
    }
}

fn runs(fake: &FakeProvider, name: &str) {
    let mut known = instance(&format!("fake://{name}"));
    known.addresses.push(InstanceAddress { kind: AddressType::Hostname, address: name.to_owned() });
    fake.set_instance(name, InstanceState::Running, known);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_cloud_bears_out_is_approved_once() {
    let scene = Scene::start(CsrPolicy::Approve, &[registered("a")]).await;
    scene.asked("a", &good("a")).await;
    assert!(scene.is_approved("csr-a"));
    assert_eq!(scene.reasons(), ["KubeletServingCertificateApproved"]);
    assert_eq!(scene.metric("requests_total{result=\"approved\",reason=\"Approved\"}").as_deref(), Some("1"));
    let all_of_it_now =
        Call::Instance { node: "a".to_owned(), view: InstanceView::All, freshness: Freshness::ReadThrough };
    assert_eq!(scene.fake.calls(), [all_of_it_now]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(scene.fake.calls().len(), 1, "what is decided is left alone");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_node() {
    let uninitialised = node("a").tainted_uninitialized();
    let scene = Scene::start(CsrPolicy::ApproveAndDeny, &[uninitialised]).await;
    scene.asked("a", &good("a")).await;
    assert!(scene.is_undecided("csr-a"));
    assert_eq!(scene.reports("NodeUninitialized").as_deref(), Some("1"));
    assert_eq!(scene.fake.calls().len(), 0, "the cloud is not asked before");

    scene.server.edit("a", |node| node["spec"] = json!({"providerID": "fake://a"}));
    scene.rest().await;
    assert!(scene.is_approved("csr-a"), "at once");
    assert_eq!(scene.reports("NodeUninitialized").as_deref(), Some("0"));
    assert_eq!(scene.reasons(), ["KubeletServingCertificateApproved"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_policy_says_what_becomes_of_the_others() {
    let foreign = Forge::of("a", &["a", "10.0.0.2"]);
    let scene = Scene::start(CsrPolicy::ApproveAndDeny, &[registered("a")]).await;
    scene.asked("a", &foreign).await;
    assert_eq!(scene.decision("csr-a"), [("Denied".to_owned(), "NotReported".to_owned())]);
    assert_eq!(scene.reasons(), ["KubeletServingCertificateRefused"]);
    assert_eq!(
        scene.metric("requests_total{result=\"denied\",reason=\"NotReported\"}").as_deref(),
        Some("1")
    );
    scene.stop().await;

    let scene = Scene::start(CsrPolicy::Approve, &[registered("a")]).await;
    scene.asked("a", &foreign).await;
    sleep(Duration::from_secs(60)).await;
    assert!(scene.is_undecided("csr-a"));
    assert_eq!(scene.reasons(), ["KubeletServingCertificateRefused"], "told once");
    assert_eq!(scene.reports("NotReported").as_deref(), Some("1"));
    assert!(scene.fake.calls().len() > 1, "the cloud may report it later");
    let mut known = instance("fake://a");
    for (kind, address) in [(AddressType::Hostname, "a"), (AddressType::ExternalIp, "10.0.0.2")] {
        known.addresses.push(InstanceAddress { kind, address: address.to_owned() });
    }
    scene.fake.set_instance("a", InstanceState::Running, known);
    sleep(Duration::from_secs(60)).await;
    assert!(scene.is_approved("csr-a"));
    scene.stop().await;
}

/// What was judged is what is approved: neither another request of the same name, nor another version.
#[tokio::test(start_paused = true)]
async fn a_decision_is_only_for_what_was_looked_at() {
    let scene = Scene::start(CsrPolicy::Approve, &[registered("a")]).await;
    scene.fake.set_latency(method::INSTANCE, Duration::from_secs(5));
    scene.asked("a", &good("a")).await;
    scene.forget("csr-a");
    scene.ask("a", &Forge::of("a", &["kubernetes.default.svc"]));
    sleep(Duration::from_secs(60)).await;
    assert!(scene.is_undecided("csr-a"), "replaced while the cloud was asked");

    scene.ask_as("denied", "a", &good("a"));
    scene.rest().await;
    scene.edit("denied", |object| {
        object["status"] = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "ByHand"}]});
    });
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.decision("denied"), [("Denied".to_owned(), "ByHand".to_owned())]);

    scene.ask_as("labelled", "a", &good("a"));
    scene.rest().await;
    scene.edit("labelled", |object| object["metadata"]["labels"] = json!({"seen": "yes"}));
    sleep(Duration::from_secs(60)).await;
    assert!(scene.is_approved("labelled"), "looked at again");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_while_the_cloud_is_asked_is_looked_at_again() {
    type Change = (&'static str, fn(&NodeServer));
    let changes: [Change; 3] = [
        ("replaced", |server| server.put(&registered("a").uid("newer").created_at(jiff::Timestamp::now()))),
        ("contested", |server| server.put(&node("b").with_provider_id("fake://a"))),
        ("gone", |server| server.delete("a")),
    ];
    for (name, change) in changes {
        let scene = Scene::start(CsrPolicy::ApproveAndDeny, &[registered("a")]).await;
        scene.fake.set_latency(method::INSTANCE, Duration::from_secs(5));
        scene.asked("a", &good("a")).await;
        change(&scene.server);
        sleep(Duration::from_millis(5_200)).await;
        assert!(scene.is_undecided("csr-a"), "{name}");
        scene.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_contested_instance_is_for_a_person_to_sort_out() {
    let thief = node("b").with_provider_id("fake://a");
    let scene = Scene::start(CsrPolicy::ApproveAndDeny, &[registered("a"), thief]).await;
    scene.ask("b", &Forge::of("b", &["a", "10.0.0.1"]));
    scene.asked("a", &good("a")).await;
    assert!(scene.is_undecided("csr-a") && scene.is_undecided("csr-b"));
    assert_eq!(scene.reasons(), ["KubeletServingCertificateWaiting"; 2], "on both nodes");
    assert_eq!(scene.fake.calls().len(), 0);
    scene.server.delete("b");
    sleep(Duration::from_secs(30)).await;
    assert!(scene.is_approved("csr-a") && scene.is_undecided("csr-b"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_is_asked_again() {
    let scene = Scene::start(CsrPolicy::ApproveAndDeny, &[registered("a")]).await;
    scene.fake.fail_next(method::INSTANCE, error(method::INSTANCE, Some(ErrorReason::CloudApiUnavailable)));
    scene.asked("a", &good("a")).await;
    assert!(scene.is_undecided("csr-a"));
    sleep(Duration::from_secs(2)).await;
    assert!(scene.is_approved("csr-a"));
    scene.stop().await;
}

/// A write of unknown outcome is looked at again, and done once.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_no_harm() {
    let scene = Scene::start(CsrPolicy::Approve, &[registered("a")]).await;
    let faults = scene.server.api().faults_of("host");
    let refusal = ccm_kube::fixtures::refusal(504, "Timeout");
    faults.next(|asked| asked.subresource == "approval", ::apiserver::Fault::RefuseAfter(refusal));
    scene.asked("a", &good("a")).await;
    sleep(Duration::from_secs(60)).await;
    assert!(scene.is_approved("csr-a"));
    let requests = scene.server.api().take_requests();
    assert_eq!(requests.iter().filter(|asked| asked.subresource == "approval").count(), 1);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_request_that_is_gone() {
    let scene = Scene::start(CsrPolicy::Approve, &[]).await;
    scene.asked("a", &good("a")).await;
    assert_eq!(scene.reports("NoNode").as_deref(), Some("1"));
    scene.forget("csr-a");
    scene.rest().await;
    assert_eq!(scene.reports("NoNode").as_deref(), Some("0"));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_request_that_goes_while_the_cloud_is_asked() {
    let scene = Scene::start(CsrPolicy::Approve, &[registered("a")]).await;
    scene.fake.set_latency(method::INSTANCE, Duration::from_secs(5));
    let away = error(method::INSTANCE, Some(ErrorReason::CloudApiUnavailable));
    scene.fake.fail_always(method::INSTANCE, Some(away));
    scene.asked("a", &good("a")).await;
    scene.forget("csr-a");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.reports("ProviderFailed").as_deref(), Some("0"));
    scene.stop().await;
}

/// An instance that a node merely says to be its own.
#[tokio::test(start_paused = true)]
async fn a_provider_id_alone_makes_no_node() {
    let scene = Scene::start(CsrPolicy::Approve, &[node("thief").with_provider_id("fake://victim")]).await;
    let mut victim = instance("fake://victim");
    victim.addresses.push(InstanceAddress { kind: AddressType::Hostname, address: "victim".to_owned() });
    scene.fake.set_instance("thief", InstanceState::Running, Instance { name: String::new(), ..victim });
    scene.asked("thief", &Forge::of("thief", &["victim", "10.0.0.1"])).await;
    assert!(scene.is_undecided("csr-thief"));
    assert_eq!(scene.reports("NodeNotNamed").as_deref(), Some("1"));
    scene.stop().await;
}

/// A provider may have the address from where a thief could write it.
#[tokio::test(start_paused = true)]
async fn an_address_of_one_other_node_is_for_a_person_to_sort_out() {
    let reports = |fake: &FakeProvider, name: &str, addresses: &[&str]| {
        let mut known = instance(&format!("fake://{name}"));
        known.addresses = vec![InstanceAddress { kind: AddressType::Hostname, address: name.to_owned() }];
        let ip = |address: &&str| InstanceAddress {
            kind: AddressType::InternalIp,
            address: (*address).to_owned(),
        };
        known.addresses.extend(addresses.iter().map(ip));
        fake.set_instance(name, InstanceState::Running, known);
    };
    let with_address = |name: &str| registered(name).with_address("InternalIP", "10.0.0.2");
    let nodes = [registered("a"), with_address("b"), with_address("c")];
    let scene = Scene::start(CsrPolicy::ApproveAndDeny, &nodes).await;
    reports(&scene.fake, "a", &["10.0.0.1", "10.0.0.2"]);
    reports(&scene.fake, "b", &["10.0.0.2"]);
    reports(&scene.fake, "c", &["10.0.0.3"]);
    scene.asked("a", &Forge::of("a", &["a", "10.0.0.2"])).await;
    assert!(scene.is_undecided("csr-a"));
    assert_eq!(scene.reports("AddressOfOtherNode").as_deref(), Some("1"));
    assert_eq!(scene.reasons(), ["KubeletServingCertificateWaiting"]);

    reports(&scene.fake, "c", &["10.0.0.2"]);
    sleep(Duration::from_secs(30)).await;
    assert!(scene.is_approved("csr-a"), "an address of several is that of a gateway");
    scene.ask("b", &Forge::of("b", &["b", "10.0.0.2"]));
    reports(&scene.fake, "a", &["10.0.0.1"]);
    reports(&scene.fake, "c", &["10.0.0.3"]);
    sleep(Duration::from_secs(30)).await;
    assert!(scene.is_approved("csr-b"), "what another kubelet says of itself is no matter");
    scene.stop().await;
}

/// A kubelet that asks for the addresses of all others makes nobody ask the cloud about them.
#[tokio::test(start_paused = true)]
async fn an_address_that_the_cloud_does_not_report_is_no_reason_to_ask_about_others() {
    let nodes = ["a", "b", "c"].map(|name| registered(name).with_address("InternalIP", "10.0.0.9"));
    let scene = Scene::start(CsrPolicy::Approve, &nodes).await;
    scene.asked("a", &Forge::of("a", &["a", "10.0.0.9"])).await;
    assert!(scene.is_undecided("csr-a"));
    let asked = scene.fake.calls();
    let about = |call: &Call| matches!(call, Call::Instance { node, .. } if node == "a");
    assert!(!asked.is_empty() && asked.iter().all(about), "{asked:?}");
    scene.stop().await;
}

/// Many vendors report a Node's own addresses and name back: what a kubelet wrote proves nothing.
#[tokio::test(start_paused = true)]
async fn a_provider_that_reads_the_node_is_believed_only_if_the_flag_says_so() {
    for trusted in [false, true] {
        let fake = FakeProvider::new("fake");
        fake.change_info(|info| info.reads_kubelets_words = true);
        runs(&fake, "a");
        let mut settings = stage::settings();
        settings.kubelet_serving.kubelet_serving_csr_trust_node_readers = trusted;
        let server = NodeServer::new([registered("a")]);
        let scene = Scene(Stage::set(&REGISTRATION, server, &[fake], settings).await.run());
        scene.rest().await;
        scene.asked("a", &good("a")).await;
        assert_eq!(scene.is_approved("csr-a"), trusted);
        let told =
            if trusted { "KubeletServingCertificateApproved" } else { "KubeletServingCertificateWaiting" };
        assert_eq!(scene.reasons(), [told]);
    }
}

/// Whoever is root on a worker leaves a request open, and changes its Node all the time.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_all_the_time_has_the_cloud_asked_now_and_then() {
    let scene = Scene::start(CsrPolicy::Approve, &[registered("n")]).await;
    scene.asked("n", &Forge::of("n", &["n", "192.0.2.99"])).await;
    let questions = || {
        let calls = scene.fake.take_calls();
        calls.iter().filter(|call| matches!(call, Call::Instance { .. })).count()
    };
    questions();
    // An open request is looked at by itself, too.
    sleep(Duration::from_secs(60)).await;
    let by_itself = questions();
    for number in 0..600 {
        let address = json!([{"type": "InternalIP", "address": format!("192.0.2.{}", number % 200)}]);
        scene.server.edit("n", |node| node["status"]["addresses"] = address);
        scene.rest().await;
    }
    let asked = questions();
    assert!(asked < by_itself + 40, "{asked} in a minute, and {by_itself} without a change");
}

/// Nor does one request after the other have it asked more often. The kubelet waits for the last one alone.
#[tokio::test(start_paused = true)]
async fn a_node_that_asks_all_the_time_has_the_cloud_asked_now_and_then() {
    let scene = Scene::start(CsrPolicy::Approve, &[registered("n")]).await;
    scene.fake.take_calls();
    let forge = Forge::of("n", &["n", "192.0.2.99"]);
    for number in 0..600 {
        scene.ask_as(&format!("csr-{number}"), "n", &forge);
        sleep(Duration::from_secs(1)).await;
    }
    let asked = scene.fake.take_calls().len();
    assert!((1..=80).contains(&asked), "{asked} questions in ten minutes");
    scene.asked("n", &good("n")).await;
    sleep(Duration::from_secs(30)).await;
    assert!(scene.is_approved("csr-n"), "in its turn");
    scene.stop().await;
}

/// However many requests wait for a provider that hangs, those of another's nodes are still approved.
#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_leaves_the_others_their_places() {
    let (stuck, other) = (FakeProvider::new("stuck"), FakeProvider::new("fake"));
    stuck.set_latency(method::INSTANCE, Duration::from_secs(3600));
    runs(&other, "n");
    let names: Vec<_> = (0..Controller::AT_ONCE).map(|index| format!("s-{index}")).collect();
    let nodes = names.iter().map(|name| node(name).with_provider_id(&format!("stuck://{name}")));
    let server = NodeServer::new(nodes.chain([registered("n")]));
    let scene = Scene(Stage::set(&REGISTRATION, server, &[stuck, other], stage::settings()).await.run());
    names.iter().for_each(|name| scene.ask(name, &good(name)));
    scene.rest().await;
    scene.asked("n", &good("n")).await;
    assert!(scene.is_approved("csr-n"));
    scene.stop().await;
}
