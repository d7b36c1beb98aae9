//! A control plane is ready when `start` returns, and gives each user exactly the permissions it was granted.

use std::{future::Future, os::unix::fs::PermissionsExt as _, time::Duration};

use anyhow::{Context as _, Result};
use control_plane::ControlPlane;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::time::{sleep, timeout};

const USER: &str = "system:serviceaccount:kube-system:tester";
const GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];

const MAY_LIST_NODES: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lists-nodes}
rules:
- {apiGroups: [''], resources: [nodes], verbs: [list]}
";

fn binding(kind: &str, name: &str) -> String {
    format!(
        "---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: lists-nodes}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lists-nodes}}
subjects:
- {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: '{name}'}}
"
    )
}

async fn is_refused(client: &Client) -> bool {
    let nodes = Api::<Node>::all(client.clone());
    match nodes.list(&ListParams::default()).await {
        Ok(_) => false,
        Err(kube::Error::Api(status)) if status.code == 403 => true,
        Err(error) => panic!("neither a list nor 403: {error:?}"),
    }
}

/// The authorizer sees a new binding through its watch, a moment later.
async fn until<F: Future<Output = bool>>(condition: impl Fn() -> F) -> Result<()> {
    let waiting = async {
        while !condition().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), waiting).await.context("the condition never held")
}

#[tokio::test]
async fn the_namespaces_are_there_when_it_starts() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let namespaces = Api::<Namespace>::all(cp.admin_client()?);
    let uid = namespaces.get("kube-system").await?.metadata.uid;
    assert!(uid.is_some_and(|uid| !uid.is_empty()));
    namespaces.get("default").await?;
    Ok(())
}

#[tokio::test]
async fn a_user_has_no_rights_until_they_are_granted_to_it_or_its_group() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let client = cp.client_for(USER, &GROUPS)?;
    assert!(is_refused(&client).await);

    // The apiserver knows all groups, not only the first, and the user.
    for (kind, name) in [("Group", GROUPS[0]), ("Group", GROUPS[1]), ("User", USER)] {
        let applied = cp.apply_yaml(&format!("{MAY_LIST_NODES}{}", binding(kind, name))).await?;
        assert_eq!(applied.len(), 2);
        until(async || !is_refused(&client).await).await?;
        cp.apply_yaml(&binding("User", "nobody")).await?;
        until(async || is_refused(&client).await).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_is_private_and_says_who_the_user_is() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let path = cp.kubeconfig_for(USER, &GROUPS)?;
    assert_eq!(path.metadata()?.permissions().mode() & 0o777, 0o600);
    assert_eq!(cp.admin_kubeconfig().metadata()?.permissions().mode() & 0o777, 0o600);
    assert_eq!(cp.dir().metadata()?.permissions().mode() & 0o777, 0o700);

    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(&path)?, &options).await?;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&review)?)?;
    let answer: serde_json::Value = Client::try_from(config)?.request(request).await?;
    let user = &answer["status"]["userInfo"];
    assert_eq!(user["username"], USER);
    assert_eq!(user["groups"], json!([GROUPS[0], GROUPS[1], "system:authenticated"]));
    Ok(())
}

#[tokio::test]
async fn two_at_once_share_nothing() -> Result<()> {
    let (one, two) = tokio::try_join!(ControlPlane::start(), ControlPlane::start())?;
    one.apply_yaml("{apiVersion: v1, kind: Node, metadata: {name: only-here}}").await?;
    let nodes = async |cp: &ControlPlane| -> Result<Vec<String>> {
        let list = Api::<Node>::all(cp.admin_client()?).list(&ListParams::default()).await?;
        Ok(list.items.into_iter().filter_map(|node| node.metadata.name).collect())
    };
    assert_eq!(nodes(&one).await?, ["only-here"]);
    assert!(nodes(&two).await?.is_empty());
    // Neither trusts the other's certificates.
    let mut config = Config::from_custom_kubeconfig(
        Kubeconfig::read_from(one.admin_kubeconfig())?,
        &KubeConfigOptions::default(),
    )
    .await?;
    config.cluster_url = two.url().parse()?;
    assert!(Api::<Node>::all(Client::try_from(config)?).list(&ListParams::default()).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_manifest_that_is_refused_is_named() -> Result<()> {
    let cp = ControlPlane::start().await?;
    let error =
        cp.apply_yaml("{apiVersion: v1, kind: Node, metadata: {name: Not-A-Name}}").await.unwrap_err();
    assert!(format!("{error:#}").contains("cannot apply v1 Node Not-A-Name"), "{error:#}");
    let unknown =
        cp.apply_yaml("{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}").await.unwrap_err();
    assert!(format!("{unknown:#}").contains("example.com/v1 Thing a"), "{unknown:#}");
    // Without a namespace it goes to `default`, where anybody would look.
    cp.apply_yaml("{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}")
        .await?;
    let services = Api::<k8s_openapi::api::core::v1::Service>::namespaced(cp.admin_client()?, "default");
    assert!(services.get("s").await?.spec.is_some_and(|spec| spec.cluster_ip.is_some()));
    // The ordinary verbs work for the administrator, too.
    let node = Node {
        metadata: kube::core::ObjectMeta { name: Some("n".into()), ..Default::default() },
        ..Default::default()
    };
    Api::<Node>::all(cp.admin_client()?).create(&PostParams::default(), &node).await?;
    Ok(())
}
