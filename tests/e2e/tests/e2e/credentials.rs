//! `--use-service-account-credentials`: controllers write under their own ServiceAccounts, however these come and go.

use anyhow::{Context as _, Result};
use e2e::{node, service};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use test_cluster::{
    Cluster, Options,
    nodes::{as_registered, is_uninitialized, register},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

const ACCOUNT: &str = "system:serviceaccount:kube-system:node-controller";
const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: credentials, namespace: kube-system}
rules:
  - {apiGroups: [""], resources: [serviceaccounts], verbs: [create]}
  - apiGroups: [""]
    resources: [serviceaccounts/token]
    resourceNames: [node-controller, service-controller, route-controller]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: credentials, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: credentials}
subjects: [{kind: ServiceAccount, name: cloud-controller-manager, namespace: kube-system}]
"#;

fn options() -> Options {
    let control_plane = control_plane::Options::default().audit_user(ACCOUNT);
    Options { control_plane, ..quick().host_flag("--use-service-account-credentials") }
}

async fn arrives(cluster: &Cluster, name: &str) -> Result<Node> {
    cluster.cloud()?.create_instance(name, "zone-a").await?;
    register(&cluster.client, as_registered(name)).await?;
    node(cluster, name, "initialised", |node| !is_uninitialized(node)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_to_tokens_is_named_and_waited_for() -> Result<()> {
    let mut cluster = options().start_without_host().await?;
    cluster.start_host()?;
    for said in [
        "[-]service-account-node-controller failed: no token: this process may not create serviceaccounts/token of \
         node-controller in kube-system",
        "install the chart with useServiceAccountCredentials",
    ] {
        wait::until(&format!("/readyz that says {said:?}"), async || {
            Ok(cluster
                .host_get("/readyz?verbose")
                .await
                .is_ok_and(|(_, body)| body.contains(said))
                .then_some(()))
        })
        .await
        .with_context(|| format!("{:?}", cluster.parts()))?;
    }
    assert_eq!(cluster.host_get("/livez").await?.0, 200, "waiting is no reason to be killed");

    cluster.control_plane.apply_yaml(RIGHTS).await?;
    cluster.host_ready().await?;
    arrives(&cluster, "node-a").await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    let requests = cluster.control_plane.audit_events()?;
    let writers: Vec<_> = requests
        .iter()
        .filter(|request| request.verb == "patch" && request.resource == "nodes")
        .map(|request| (request.user.as_str(), request.user_agent.ends_with(ACCOUNT)))
        .collect();
    assert!(!writers.is_empty() && writers.iter().all(|writer| *writer == (ACCOUNT, true)), "{writers:?}");
    Ok(())
}

/// Its tokens are deleted with it: the apiserver rejects them.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_that_is_deleted_is_created_again() -> Result<()> {
    let mut cluster = options().start_without_host().await?;
    cluster.control_plane.apply_yaml(RIGHTS).await?;
    cluster.start_host()?;
    cluster.host_ready().await?;
    arrives(&cluster, "node-a").await?;

    let accounts = Api::<ServiceAccount>::namespaced(cluster.client.clone(), "kube-system");
    let former = accounts.get("node-controller").await?.metadata.uid;
    accounts.delete("node-controller", &Default::default()).await?;
    // The apiserver caches for a few seconds that it has accepted a token.
    let mut number = 0;
    wait::until("another ServiceAccount", async || {
        number += 1;
        arrives(&cluster, &format!("node-b{number}")).await?;
        let account = accounts.get_opt("node-controller").await?;
        Ok(account.filter(|account| account.metadata.uid != former))
    })
    .await?;
    arrives(&cluster, "node-c").await.map(drop)
}
