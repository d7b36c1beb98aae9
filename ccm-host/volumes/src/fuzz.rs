//! Whoever reaches the webhook's port may send it anything.

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use k8s_openapi::ByteString;
use serde_json::Value;
use tokio::runtime::Builder;
use tower::ServiceExt as _;

use super::{
    Results,
    webhook::{PATH, routes},
};
use ccm_cloud::Providers;

/// A body: what is a review is permitted, with a patch of labels and affinity at most; all else is refused.
pub fn reviews(body: &[u8]) {
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else { return };
    let router = routes(Providers::new(Vec::new()), Results::default());
    let (code, answer) = runtime.block_on(async {
        let Ok(request) = Request::post(PATH).body(Body::from(body.to_vec())) else { return (0, None) };
        let Ok(answer) = router.oneshot(request).await;
        let code = answer.status().as_u16();
        (code, to_bytes(answer.into_body(), usize::MAX).await.ok())
    });
    assert!([200, 400, 413].contains(&code), "status {code}");
    if code != 200 {
        return;
    }
    // What the host skips need not be UTF-8.
    let Ok(asked) = serde_json::from_slice::<Value>(body) else { return };
    let answer: Value = answer.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&asked["request"]["uid"], &Value::Bool(true)));
    if let (Value::String(_), Ok(patch)) =
        (&response["patch"], serde_json::from_value::<ByteString>(response["patch"].clone()))
    {
        let patch: Vec<Value> = serde_json::from_slice(&patch.0).unwrap_or_default();
        assert!(!patch.is_empty(), "a patch that is none");
        for change in patch {
            let path = change["path"].as_str().unwrap_or_default();
            let places = ["/metadata/labels", "/metadata/annotations", "/spec/nodeAffinity"];
            assert!(places.iter().any(|place| path.starts_with(place)), "a patch of {path:?}");
        }
    }
}
