//! An apiserver that dies, comes back and hangs, while the requests of users are counted.

use std::{collections::BTreeMap, net::TcpListener, time::Duration};

use anyhow::Result;
use control_plane::{ControlPlane, Options};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, WatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

const USER: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

#[tokio::test]
async fn a_restarted_apiserver_has_its_address_and_its_data() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let nodes = Api::<Node>::all(cp.admin_client()?);
    cp.apply_yaml("{apiVersion: v1, kind: Node, metadata: {name: n1}}").await?;
    let (uid, url, pid) = (nodes.get("n1").await?.metadata.uid, cp.url().to_owned(), cp.apiserver_pid());

    cp.stop_apiserver()?;
    assert!(nodes.get("n1").await.is_err());
    assert_eq!(cp.apiserver_pid(), None);
    assert!(cp.stop_apiserver().is_err());
    cp.start_apiserver().await?;

    assert_eq!(nodes.get("n1").await?.metadata.uid, uid);
    assert_eq!(cp.url(), url);
    assert_ne!(cp.apiserver_pid(), pid);
    assert!(cp.start_apiserver().await.is_err(), "it runs already");
    Ok(())
}

#[tokio::test]
async fn a_paused_apiserver_answers_nothing_until_it_goes_on() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let nodes = Api::<Node>::all(cp.admin_client()?);
    nodes.list(&ListParams::default()).await?;

    cp.pause_apiserver()?;
    let params = ListParams::default();
    let mut request = std::pin::pin!(nodes.list(&params));
    assert!(timeout(Duration::from_millis(500), &mut request).await.is_err());
    cp.resume_apiserver()?;
    assert!(request.await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn requests_of_an_audited_user_are_counted_and_of_nobody_else() -> Result<()> {
    let cp = Options::default().audit_user(USER).start().await?;
    cp.apply_yaml("{apiVersion: v1, kind: Node, metadata: {name: n1}}").await?;
    let nodes = Api::<Node>::all(cp.client_for(USER, &["system:masters"])?);
    nodes.get("n1").await?;
    nodes.get("n1").await?;
    let patch = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    nodes.patch_status("n1", &PatchParams::default(), &patch).await?;
    // Still open when it is counted.
    let _watch = nodes.watch(&WatchParams::default(), "0").await?;

    let key = |verb: &str, resource: &str| (verb.to_owned(), resource.to_owned());
    let expected = [(key("get", "nodes"), 2), (key("patch", "nodes/status"), 1), (key("watch", "nodes"), 1)];
    let expected = BTreeMap::from(expected);
    let deadline = Instant::now() + Duration::from_secs(60);
    while cp.audit_counts(USER)? != expected && Instant::now() < deadline {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(cp.audit_counts(USER)?, expected);
    assert!(cp.audit_counts("admin")?.is_empty());
    let events = cp.audit_events()?;
    assert!(events.iter().all(|event| event.code == 200 && event.user == USER), "{events:?}");
    assert!(events.iter().any(|event| event.verb == "patch" && event.name == "n1"));

    // The log continues after a restart.
    cp.stop_apiserver()?;
    cp.start_apiserver().await?;
    assert_eq!(cp.audit_counts(USER)?[&key("get", "nodes")], 2);
    Ok(())
}

#[tokio::test]
async fn without_an_audited_user_counting_is_an_error() -> Result<()> {
    let cp = ControlPlane::start().await?;
    assert!(cp.audit_events().unwrap_err().to_string().contains("Options::audit_user"));
    Ok(())
}

#[tokio::test]
async fn a_port_that_somebody_else_has_is_told_from_other_failures() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let flag = format!("--secure-port={}", taken.local_addr()?.port());
    // Our port is random and retried; this one is always taken.
    let error = Options::default().apiserver_flag(flag).start().await.unwrap_err();
    assert!(error.to_string().contains("another process took the port"), "{error:#}");
    Ok(())
}
