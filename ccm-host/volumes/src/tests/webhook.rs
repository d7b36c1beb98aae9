//! The webhook without a port: reviews in, answers out, on a paused clock.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{
    super::{
        Results,
        decide::{REGION, ZONE},
        webhook::{PATH, routes},
    },
    *,
};
use ccm_cloud::{
    ErrorReason, Provider, Providers, VolumeState,
    fake::{FakeProvider, error, method, volume},
};

struct Desk {
    fake: Arc<FakeProvider>,
    router: Router,
}

impl Desk {
    /// One provider, which has `disk` in zones b and a of region r.
    fn new() -> Self {
        let fake = FakeProvider::new("fake");
        fake.change_info(|info| info.volumes = true);
        fake.set_volume("disk", volume(VolumeState::Present, &[(ZONE, "b__a"), (REGION, "r")]));
        let providers = Providers::new(vec![Arc::clone(&fake) as Arc<dyn Provider>]);
        Self { fake, router: routes(providers, Results::default()) }
    }

    async fn post(&self, body: impl Into<Body>) -> (u16, Vec<u8>) {
        let request = Request::post(PATH).body(body.into()).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        (code, to_bytes(answer.into_body(), usize::MAX).await.unwrap().to_vec())
    }

    /// The response to a review that must be answered.
    async fn review(&self, review: &Value) -> Value {
        let (code, body) = self.post(review.to_string()).await;
        assert_eq!(code, 200, "{}", String::from_utf8_lossy(&body));
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&answer["apiVersion"], &answer["kind"]),
            (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
        );
        let response = answer["response"].take();
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("review-1"), &json!(true)));
        response
    }

    /// The volume as the apiserver has it after the review, and the warnings.
    async fn made(&self, object: Value) -> (Value, Value) {
        let mut response = self.review(&asked(object.clone())).await;
        let mut made = object;
        if !response["patch"].is_null() {
            assert_eq!(response["patchType"], "JSONPatch");
            let patch: k8s_openapi::ByteString = serde_json::from_value(response["patch"].take()).unwrap();
            let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
            json_patch::patch(&mut made, &patch).unwrap();
        }
        (made, response["warnings"].take())
    }
}

fn asked(object: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": "", "version": "v1", "kind": "PersistentVolume"},
            "resource": {"group": "", "version": "v1", "resource": "persistentvolumes"},
            "name": "pv", "operation": "CREATE", "userInfo": {}, "object": object, "oldObject": null,
            "dryRun": false, "options": {"kind": "CreateOptions"},
        },
    })
}

fn of_disk(id: &str) -> Value {
    let spec = json!({"awsElasticBlockStore": {"volumeID": id}});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_labelled_before_anybody_sees_it() {
    let desk = Desk::new();
    let (made, warnings) = desk.made(of_disk("disk")).await;
    assert_eq!(made["metadata"]["labels"], json!({ZONE: "a__b", REGION: "r"}));
    let expressions = json!([
        {"key": REGION, "operator": "In", "values": ["r"]},
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
    ]);
    let terms = &made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    assert_eq!((terms, warnings), (&json!([{"matchExpressions": expressions}]), Value::Null));

    let (again, _) = desk.made(made.clone()).await;
    assert_eq!(again, made, "a second review finds nothing left");
    assert_eq!(desk.fake.calls().len(), 1);
}

/// PV-9, PV-14.
#[tokio::test(start_paused = true)]
async fn every_term_of_the_user_is_narrowed() {
    let desk = Desk::new();
    let rack = json!({"key": "rack", "operator": "In", "values": ["7"]});
    let mut object = of_disk("disk");
    object["metadata"]["labels"] = json!({"x/y~z": "1", REGION: "mine"});
    object["spec"]["nodeAffinity"] =
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [rack]}, {"matchFields": [rack]}]}});
    let (made, _) = desk.made(object).await;
    assert_eq!(made["metadata"]["labels"], json!({"x/y~z": "1", REGION: "mine", ZONE: "a__b"}));
    let zone = json!({"key": ZONE, "operator": "In", "values": ["a", "b"]});
    assert_eq!(
        made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"],
        json!([{"matchExpressions": [rack, zone]}, {"matchFields": [rack], "matchExpressions": [zone]}])
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_is_not_clear_is_made_all_the_same() {
    let desk = Desk::new();
    let unchanged = async |object: Value, is_warned: bool| {
        let (made, warnings) = desk.made(object.clone()).await;
        assert_eq!((made, !warnings.is_null()), (object.clone(), is_warned), "{object} {warnings}");
    };
    unchanged(of_disk("absent"), true).await;
    let mut csi = of_disk("disk");
    csi["spec"] = json!({"csi": {"driver": "d", "volumeHandle": "disk"}});
    unchanged(csi, false).await;
    desk.fake.set_volume("foreign", volume(VolumeState::NotOwned, &[]));
    unchanged(of_disk("foreign"), false).await;
    desk.fake.set_volume("odd", volume(VolumeState::Present, &[(ZONE, "a__")]));
    unchanged(of_disk("odd"), true).await;
    let failing = error(method::VOLUME_LABELS, Some(ErrorReason::CloudApiUnavailable));
    desk.fake.fail_next(method::VOLUME_LABELS, failing);
    unchanged(of_disk("disk"), true).await;
    desk.fake.set_latency(method::VOLUME_LABELS, Duration::from_secs(3600));
    unchanged(of_disk("disk"), true).await;
    desk.fake.forget_info();
    unchanged(of_disk("disk"), true).await;

    let mut nameless = of_disk("disk");
    nameless["metadata"] = json!({});
    let mut review = asked(nameless);
    review["request"]["name"] = json!("");
    assert!(!desk.review(&review).await["warnings"].is_null());
    for (key, value) in [("operation", json!("UPDATE")), ("subResource", json!("status"))] {
        let mut review = asked(of_disk("disk"));
        review["request"][key] = value;
        assert_eq!(desk.review(&review).await, json!({"uid": "review-1", "allowed": true}));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_review_of_a_volume_is_refused() {
    let desk = Desk::new();
    let with = |pointer: &str, value: Value| {
        let mut review = asked(of_disk("disk"));
        *review.pointer_mut(pointer).unwrap() = value;
        review.to_string()
    };
    let rows = [
        (String::new(), 400),
        ("{".to_owned(), 400),
        ("[[[[".repeat(10_000), 400),
        ("null".to_owned(), 400),
        (json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(), 400),
        (with("/request", Value::Null), 400),
        (with("/request/object", Value::Null), 400),
        (with("/request/object/spec", json!("x")), 400),
        (with("/request/kind/kind", json!("Pod")), 400),
        (with("/request/uid", json!(7)), 400),
        (with("/apiVersion", json!("admission.k8s.io/v1beta1")), 400),
        (with("/kind", json!("ConversionReview")), 400),
        (" ".repeat((128 << 10) + 1), 413),
    ];
    for (body, want) in rows {
        let shown: String = body.chars().take(80).collect();
        assert_eq!(desk.post(body).await.0, want, "{shown}");
    }
    let silent = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    assert_eq!(desk.post(silent).await.0, 408);
    let get = Request::get(PATH).body(Body::empty()).unwrap();
    assert_eq!(desk.router.clone().oneshot(get).await.unwrap().status().as_u16(), 405);
    assert_eq!(desk.fake.calls().len(), 0, "nobody was asked");
}

#[tokio::test(start_paused = true)]
async fn many_volumes_at_once_are_not_all_asked_about() {
    let desk = Desk::new();
    desk.fake.set_latency(method::VOLUME_LABELS, Duration::from_secs(1));
    let review = asked(of_disk("disk")).to_string();
    let posted = (0..100).map(|_| desk.post(review.clone()));
    let codes: Vec<u16> = futures::future::join_all(posted).await.into_iter().map(|(code, _)| code).collect();
    let with = |code: u16| codes.iter().filter(|one| **one == code).count();
    assert_eq!((with(200), with(503), desk.fake.calls().len()), (64, 36, 64));
}

/// Whoever reaches the port may begin any number of bodies; what is read of them takes memory.
#[tokio::test(start_paused = true)]
async fn no_body_is_read_without_a_place() {
    let desk = Desk::new();
    let silent = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let held = futures::future::join_all((0..64).map(|_| desk.post(silent())));
    let further = async {
        tokio::task::yield_now().await;
        let unread = futures::stream::poll_fn(|_| -> std::task::Poll<Option<std::io::Result<Vec<u8>>>> {
            panic!("it is read")
        });
        desk.post(Body::from_stream(unread)).await.0
    };
    let (held, further) = tokio::join!(held, further);
    assert!(held.iter().all(|(code, _)| *code == 408), "{held:?}");
    assert_eq!(further, 503);
}
