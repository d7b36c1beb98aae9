//! Labels a volume at admission, so it is never visible without labels.
//!
//! In: an AdmissionReview for a new PersistentVolume. Out: always permission, with a patch if a provider said in time what
//! to write, else with a warning: the controller labels it later. Anything else is answered with a 4xx, which the
//! apiserver treats as a failed webhook. Every replica serves it, leader or not: reads need no leadership.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use k8s_openapi::{ByteString, api::core::v1::PersistentVolume as Wire};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    Results, act, count,
    decide::{self, Basis},
};
use ccm_base::metric::Declare as _;
use ccm_cloud::Providers;
use ccm_kube::{
    cache::Slim as _,
    keep::{Interner, Keep},
    patch::volume_admission,
    persistent_volume::PersistentVolume,
};
use ccm_reconcile::{Parts, Report};

/// What the configuration calls.
pub(super) const PATH: &str = "/mutate-v1-persistentvolume";

/// For everything; less than the configuration's `timeoutSeconds`.
const DEADLINE: Duration = Duration::from_secs(2);

/// Ten times a large volume: anybody who reaches the port may send bodies. The controller labels what is larger.
const LARGEST: usize = 128 << 10;

/// An apiserver sends a UUID.
const LONGEST_UID: usize = 64;

/// Reviews at once, from the first byte of the body on; whoever comes next is refused, and the apiserver goes on.
const AT_ONCE: usize = 64;

const LATER: &str = "the topology labels of this volume will be added later";

/// The route, for all replicas.
pub(super) fn router(parts: &Parts, registry: &mut Registry) -> Router {
    let results = registry.metric(
        "persistent_volume_label_webhook_reviews",
        "Reviews of new PersistentVolumes: labelled, unchanged, or left to the controller (unlabelled, late); busy and invalid ones were refused",
    );
    routes(parts.providers.clone(), results)
}

pub(super) fn routes(providers: Providers, results: Results) -> Router {
    let places = Semaphore::new(AT_ONCE);
    Router::new().route(PATH, post(answer)).with_state(Arc::new(Desk { providers, results, places }))
}

struct Desk {
    providers: Providers,
    results: Results,
    places: Semaphore,
}

/// What is read of an AdmissionReview.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: AdmissionRequest,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionRequest {
    uid: String,
    kind: ResourceKind,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    operation: String,
    object: Wire,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct ResourceKind {
    group: String,
    version: String,
    kind: String,
}

/// The answer to a review: its name in metrics, what to write, and what to say.
#[derive(Debug, Default)]
struct Admitted {
    result: &'static str,
    patch: Option<Value>,
    warning: Option<String>,
}

impl Admitted {
    fn unchanged() -> Self {
        Self { result: "unchanged", ..Self::default() }
    }

    fn later(result: &'static str, why: &str) -> Self {
        Self { result, patch: None, warning: Some(format!("{LATER}: {why}")) }
    }
}

async fn answer(State(desk): State<Arc<Desk>>, request: Request) -> Response {
    let deadline = Instant::now() + DEADLINE;
    let Ok(_place) = desk.places.try_acquire() else {
        let why = "too many volumes are being created at once".to_owned();
        return desk.refuse("busy", (StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let asked = match timeout_at(deadline, read(request.into_body())).await {
        Ok(Ok(asked)) => asked,
        Ok(Err(refusal)) => return desk.refuse("invalid", refusal),
        Err(_) => {
            let why = "the body took too long".to_owned();
            return desk.refuse("invalid", (StatusCode::REQUEST_TIMEOUT, why));
        }
    };
    let uid = asked.uid.clone();
    let admitted = timeout_at(deadline, admit(&desk.providers, asked))
        .await
        .unwrap_or_else(|_| Admitted::later("late", "no provider answered in time"));
    count(&desk.results, admitted.result);
    let mut response = json!({"uid": uid, "allowed": true});
    if let Some(patch) = admitted.patch {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(ByteString(patch.to_string().into_bytes()));
    }
    if let Some(warning) = admitted.warning {
        // Not louder: whoever reaches the port could fill the log. The metric counts it.
        tracing::debug!(uid, warning, "volume admitted without labels");
        response["warnings"] = json!([warning]);
    }
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Json(review).into_response()
}

impl Desk {
    fn refuse(&self, result: &'static str, (code, why): (StatusCode, String)) -> Response {
        count(&self.results, result);
        tracing::debug!(code = code.as_u16(), why, "a review of a volume is refused");
        (code, format!("{why}\n")).into_response()
    }
}

async fn read(body: Body) -> Result<AdmissionRequest, (StatusCode, String)> {
    let bytes = to_bytes(body, LARGEST)
        .await
        .map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {LARGEST} bytes")))?;
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let review: Review = serde_json::from_slice(&bytes)
        .map_err(|error| bad(format!("no AdmissionReview of a volume: {error}")))?;
    if (review.api_version.as_str(), review.kind.as_str()) != ("admission.k8s.io/v1", "AdmissionReview") {
        return Err(bad("only AdmissionReviews of admission.k8s.io/v1 are answered".to_owned()));
    }
    let asked = review.request;
    if asked.uid.len() > LONGEST_UID {
        return Err(bad(format!("the uid of the review is longer than {LONGEST_UID} bytes")));
    }
    let ResourceKind { group, version, kind } = &asked.kind;
    if (group.as_str(), version.as_str(), kind.as_str()) != ("", "v1", "PersistentVolume") {
        return Err(bad("only PersistentVolumes are answered for".to_owned()));
    }
    Ok(asked)
}

async fn admit(providers: &Providers, asked: AdmissionRequest) -> Admitted {
    if asked.operation != "CREATE" || !asked.sub_resource.is_empty() {
        return Admitted::unchanged();
    }
    let mut wire = asked.object;
    let affinity = wire.spec.as_ref().and_then(|spec| spec.node_affinity.clone());
    // One with a name to be made up is known to the provider by the beginning of its name.
    let named = [wire.metadata.name.take(), Some(asked.name), wire.metadata.generate_name.take()];
    wire.metadata.name = named.into_iter().flatten().find(|name| !name.is_empty());
    let volume = PersistentVolume::project(wire, &Keep::default(), &Interner::default());
    let labels = match decide::basis(&volume) {
        Basis::Nothing => return Admitted::unchanged(),
        Basis::Trusted(labels) => labels,
        Basis::Ask(query) if query.name.is_empty() => return Admitted::later("unlabelled", "it has no name"),
        Basis::Ask(query) => match act::ask(providers, query).await {
            Ok((labels, _)) => labels,
            Err(reports) => {
                let why = reports.first().map(Report::words);
                return why.map_or_else(Admitted::unchanged, |why| Admitted::later("unlabelled", &why));
            }
        },
    };
    match decide::plan(&volume, labels) {
        Ok(plan) => match volume_admission(&volume, &plan.labels, plan.affinity(affinity).as_ref()) {
            Some(patch) => Admitted { result: "labelled", patch: Some(patch), warning: None },
            None => Admitted::unchanged(),
        },
        Err(why) => Admitted::later("unlabelled", &why),
    }
}
