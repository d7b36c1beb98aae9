//! Sends the same requests to kube-apiserver and to this crate, and compares the answers.
//!
//! It compares the status, the reason, which fields are wrong and why, and the objects; not what differs by nature
//! (uids, times, addresses from a pool, version numbers), and not the wording.

mod parity_table;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use apiserver::ApiServer;
use control_plane::ControlPlane;
use http::{Request, header};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use parity_table::{Step, table};
use serde_json::{Value, json};
use tokio::time::timeout;

/// The longest watch takes five seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// One server under test, and the names it assigned.
struct Side {
    client: Client,
    /// Remembered versions and tokens, by the name that the table gives them.
    names: BTreeMap<&'static str, String>,
}

impl Side {
    fn fill(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("<{name}>"), value))
    }

    async fn ask(&mut self, step: &Step) -> Result<Value> {
        let request = Request::builder()
            .method(step.method)
            .uri(self.fill(step.path))
            .header(header::CONTENT_TYPE, step.content_type)
            .header(header::ACCEPT, step.accept)
            .body(Body::from(self.fill(&step.body).into_bytes()))?;
        let answered = async {
            let answer = self.client.send(request).await?;
            let code = answer.status().as_u16();
            anyhow::Ok((code, answer.into_body().collect().await?.to_bytes()))
        };
        let late = || format!("no answer to {} {}", step.method, step.path);
        let (code, body) = match timeout(PATIENCE, answered).await {
            Ok(answered) => answered.with_context(late)?,
            Err(_) => return Ok(json!(late())),
        };
        let text = String::from_utf8(body.to_vec())?;
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| json!(line))).collect();
        if let Some((name, path)) = step.remember {
            let value = lines[0].pointer(path).and_then(Value::as_str).with_context(|| {
                format!("{} {} has no {path} to remember: {text}", step.method, step.path)
            })?;
            self.names.insert(name, value.to_owned());
        }
        let seen: Vec<_> = lines.into_iter().map(comparable).collect();
        Ok(json!({"code": code, "body": seen}))
    }
}

/// The parts on which both must agree.
fn comparable(body: Value) -> Value {
    let mut body = body;
    if body["status"] == "Failure" {
        let details = &body["details"];
        let mut causes: Vec<_> = details["causes"].as_array().cloned().unwrap_or_default();
        causes.iter_mut().for_each(|cause| _ = cause.as_object_mut().map(|cause| cause.remove("message")));
        causes.sort_by_key(Value::to_string);
        causes.dedup();
        return json!({
            "code": body["code"], "reason": body["reason"], "causes": causes,
            "about": [details["name"], details["group"], details["kind"]], "after": details["retryAfterSeconds"],
        });
    }
    if body["type"] == "ERROR" {
        body["object"] = comparable(body["object"].take());
        return body;
    }
    strip(&mut body);
    body
}

const BY_NATURE: [&str; 14] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
    "continue",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    // Zero values that the real apiserver writes out.
    "nodeInfo",
    "daemonEndpoints",
    "deprecatedSource",
    "source",
];

fn strip(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(fields) => fields.retain(|key, value| {
            if BY_NATURE.contains(&key.as_str()) {
                // Only its presence is compared, not its value.
                let there = !value.is_null() && key != "managedFields" && !value.is_object();
                *value = json!("…");
                return there;
            }
            strip(value);
            !value.is_null()
        }),
        _ => {}
    }
}

/// The administrator's client, which does not retry.
async fn administrator(control_plane: &ControlPlane) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(control_plane.admin_kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

#[tokio::test]
async fn both_apiservers_answer_alike() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let ours = ApiServer::default();
    let mut real = Side { client: administrator(&control_plane).await?, names: BTreeMap::new() };
    let mut fake = Side { client: ours.client("test"), names: BTreeMap::new() };
    let mut differences = Vec::new();
    for step in table() {
        // A watch lasts a second at each.
        let (wanted, found) = tokio::try_join!(real.ask(&step), fake.ask(&step))?;
        if wanted != found {
            let Step { method, path, body, .. } = &step;
            differences.push(format!("{method} {path} {body}\n  real: {wanted}\n  ours: {found}"));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    Ok(())
}
