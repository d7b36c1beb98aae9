//! People query the host, and a provider, with `ccmctl`.

use std::{fs, path::PathBuf, process::Output};

use anyhow::{Context as _, Result, ensure};
use e2e::{event, join, node, node_gone, nothing_was_forbidden, service};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{ListParams, Patch, PostParams},
};
use serde_json::{Value, json};
use test_cluster::{
    Cluster,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

const PERSON: &str =
    "{apiVersion: v1, kind: ServiceAccount, metadata: {name: person, namespace: kube-system}}";

/// As in docs/ccmctl.md.
const MAY_LOOK: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ccm-viewer}
rules: [{nonResourceURLs: [/state, /state/*, /status, /shadow], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ccm-viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ccm-viewer}
subjects: [{kind: ServiceAccount, name: person, namespace: kube-system}]
"#;

/// A caller, and its way to the host.
struct Person<'a> {
    cluster: &'a Cluster,
    kubeconfig: PathBuf,
}

impl<'a> Person<'a> {
    fn administrator(cluster: &'a Cluster) -> Self {
        Self { cluster, kubeconfig: cluster.control_plane.admin_kubeconfig() }
    }

    async fn run(&self, words: &str) -> Result<Output> {
        let way = self.cluster.ccmctl_way()?;
        let words = words.split(' ').chain(way.iter().map(String::as_str)).collect::<Vec<_>>();
        self.cluster.ccmctl(&self.kubeconfig, &words).await
    }

    /// The exit code and the output.
    async fn ask(&self, words: &str) -> Result<(i32, String, String)> {
        said(self.run(words).await?)
    }

    async fn json(&self, words: &str) -> Result<Value> {
        let (code, out, error) = self.ask(&format!("{words} -o json")).await?;
        ensure!(matches!(code, 0 | 3), "{words}: {code} {error}");
        Ok(serde_json::from_str(&out)?)
    }

    /// Waits until an explanation of the node has this reason and this exit code; returns the table.
    async fn explained(&self, name: &str, reason: &str, exit: i32) -> Result<String> {
        let words = format!("explain node {name}");
        wait::until(&format!("{name} is explained by {reason}"), async || {
            let (code, out, error) = self.ask(&words).await?;
            ensure!(matches!(code, 0 | 3), "{code} {error}");
            Ok((code == exit && out.contains(&format!("({reason})"))).then_some(out))
        })
        .await
    }
}

fn said(output: Output) -> Result<(i32, String, String)> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code().context("no exit code")?, text(&output.stdout), text(&output.stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_is_shown_to_whom_the_apiserver_allows() -> Result<()> {
    let cluster = quick().host_flag("--authorization-webhook-cache-unauthorized-ttl=0s").start().await?;
    cluster.control_plane.apply_yaml(PERSON).await?;
    let person = Person { cluster: &cluster, kubeconfig: cluster.service_account("person").await? };

    let (code, _, error) = person.ask("provider status").await?;
    ensure!(
        code == 1 && error.contains("system:serviceaccount:kube-system:person") && error.contains("/state"),
        "without the right: {code} {error}"
    );
    let forged = cluster.folder().join("forged-token");
    fs::write(&forged, "forged\n")?;
    let (code, _, error) = person.ask(&format!("provider status --token-file {}", forged.display())).await?;
    ensure!(code == 1 && error.contains("401"), "a forged token: {code} {error}");

    cluster.control_plane.apply_yaml(MAY_LOOK).await?;
    wait::until("the apiserver knows of the new right", async || {
        Ok((person.ask("provider status").await?.0 == 0).then_some(()))
    })
    .await?;
    let providers = person.json("provider status").await?;
    ensure!(providers[0]["status"] == "Serving" && providers[0]["info"]["name"] == "mock", "{providers}");
    let called = |providers: &Value| providers[0]["calls"].as_array().is_some_and(|calls| !calls.is_empty());
    ensure!(called(&providers), "{providers}");

    let (code, _, error) = person.ask("resync").await?;
    ensure!(code == 1 && error.contains("cannot post path"), "looking is not doing: {code} {error}");

    // Client certificates, as in an administrator's kubeconfig.
    let (code, out, error) = Person::administrator(&cluster).ask("provider info").await?;
    ensure!(code == 0 && out.contains("v1alpha1.Clusters"), "{code} {out} {error}");

    // No token is sent to a server that has not authenticated.
    let server = cluster.ccmctl_way()?[0].clone();
    let (code, _, error) = said(cluster.ccmctl(&person.kubeconfig, &["guard", "show", &server]).await?)?;
    ensure!(code == 1 && error.contains("--certificate-authority"), "{code} {error}");
    let anybody = ["guard", "show", &server, "--insecure-skip-tls-verify"];
    let (code, _, error) = said(cluster.ccmctl(&person.kubeconfig, &anybody).await?)?;
    ensure!(code == 0, "{code} {error}");
    let stranger = cluster.folder().join("stranger.crt");
    fs::write(&stranger, cluster.control_plane.ca_pem())?;
    let other = format!("--certificate-authority={}", stranger.display());
    let wrong = ["guard", "show", &server, &other];
    let (code, _, error) = said(cluster.ccmctl(&person.kubeconfig, &wrong).await?)?;
    ensure!(code == 1 && error.contains("--certificate-authority"), "another CA: {code} {error}");
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_explained_from_its_first_to_its_last_day() -> Result<()> {
    let mut cluster = quick().start().await?;
    // The first command may have to build ccmctl; the node's backoff would grow meanwhile.
    Person::administrator(&cluster).json("provider status").await?;

    register(&cluster.client, as_registered("node-a")).await?;
    {
        let person = Person::administrator(&cluster);
        let text = person.explained("node-a", "InstanceAbsent", 3).await?;
        ensure!(
            text.contains("no instance for this node") && text.contains("failures in a row"),
            "new, without an instance: {text}"
        );
        let listed = person.cluster.host_get("/state").await?.1;
        let listed: Value = serde_json::from_str(&listed)?;
        ensure!(listed["nodes"][0]["standing"] == "Blocked", "{listed:#}");

        cluster.cloud()?.create_instance("node-a", "zone-a").await?;
        node(&cluster, "node-a", "initialised", |node| !is_uninitialized(node)).await?;
        set_ready(&cluster.client, "node-a", "True").await?;
        let text = person.explained("node-a", "Initialized", 0).await?;
        ensure!(text.contains("nothing is to be done"), "healthy: {text}");

        let (code, _, error) = person.ask("explain node nobody").await?;
        ensure!(code == 4 && error.contains("there is no node \"nobody\""), "unknown: {code} {error}");
    }

    cluster.provider()?.kill()?;
    {
        let person = Person::administrator(&cluster);
        let text = person.explained("node-a", "ProviderDisconnected", 3).await?;
        ensure!(text.contains("connects again by itself"), "provider down: {text}");
        let (code, out, _) = person.ask("provider status").await?;
        ensure!(code == 3 && out.contains("disconnected"), "{code} {out}");
        let (code, _, error) = person.ask("provider instances").await?;
        ensure!(code == 1 && error.contains("502"), "{code} {error}");
    }
    cluster.start_provider().await?;
    Person::administrator(&cluster).explained("node-a", "Initialized", 0).await?;

    // On probation: absent in the cloud, but too recently for the guard.
    cluster.restart_host_with(&["--node-deletion-grace=1h".to_owned()]).await?;
    set_ready(&cluster.client, "node-a", "Unknown").await?;
    cluster.cloud()?.terminate_instance("node-a").await?;
    let person = Person::administrator(&cluster);
    wait::until("the grace is told", async || {
        let (_, out, _) = person.ask("explain node node-a").await?;
        Ok(out.contains("younger than --node-deletion-grace").then_some(()))
    })
    .await?;
    nothing_was_forbidden(&cluster)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sees_what_the_guard_holds_and_confirms_one_node() -> Result<()> {
    let cluster = quick().start().await?;
    let names: Vec<String> = (0..20).map(|number| format!("node-{number:02}")).collect();
    join(&cluster, &names).await?;
    cluster.cloud()?.fault("absent,method=BatchGetInstances").await?;
    for name in &names {
        set_ready(&cluster.client, name, "Unknown").await?;
    }
    let person = Person::administrator(&cluster);
    let held = wait::until("the guard holds nodes back", async || {
        let guards = person.json("guard show").await?;
        let absent = guards[0]["absent"].as_array().cloned().unwrap_or_default();
        let held: Vec<String> = absent
            .iter()
            .filter(|one| one["rule"] == "TooManyDeletions")
            .filter_map(|one| one["name"].as_str().map(str::to_owned))
            .collect();
        Ok((!held.is_empty()).then_some(held))
    })
    .await?;
    let (code, table, _) = person.ask("guard show").await?;
    ensure!(code == 3 && table.contains("TooManyDeletions"), "{code}\n{table}");
    let chosen = held.last().context("one")?;
    let text = person.explained(chosen, "TooManyDeletions", 3).await?;
    ensure!(text.contains(&format!("ccmctl guard confirm {chosen}")), "{text}");
    event(&cluster, chosen, "NodeDeletionBlocked").await?;

    let (code, out, error) = person.ask(&format!("guard confirm {chosen}")).await?;
    ensure!(code == 3 && out.contains("TooManyDeletions") && out.contains("--yes"), "{code} {out} {error}");
    let api = Api::<Node>::all(cluster.client.clone());
    let annotated = api.list(&ListParams::default()).await?.items.iter().any(|node| {
        node.metadata.annotations.iter().flatten().any(|(key, _)| key == "cloudprovider.ccm/confirm-deletion")
    });
    ensure!(!annotated, "without --yes nothing is written");
    let (code, _, error) = person.ask("guard confirm nobody --yes").await?;
    ensure!(code == 4, "{code} {error}");

    let (code, out, error) = person.ask(&format!("guard confirm {chosen} --yes")).await?;
    ensure!(code == 0 && out.contains("confirmed"), "{code} {out} {error}");
    node_gone(&cluster, chosen).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_says_the_same_through_the_host_and_directly() -> Result<()> {
    let cluster = quick()
        .host_flag("--cluster-cidr=10.244.0.0/16")
        .host_flag("--allocate-node-cidrs")
        .host_flag("--controllers=*,nodeipam")
        .start()
        .await?;
    join(&cluster, &["node-a"]).await?;
    create(&cluster.client, load_balancer("web")).await?;
    service(&cluster, "web", "has an address", |service| !ingress(service).is_empty()).await?;
    let cloud = cluster.cloud()?;
    let put = |value: Value| serde_json::from_value(value);
    cloud.door().put_cluster(&put(json!({ "name": "shop", "host": "api.example", "port": 6443 }))?).await?;
    let volume = json!({
        "id": "vol-1", "plugin": "kubernetes.io/mock", "zones": ["zone-a"], "region": "", "labels": {},
    });
    cloud.door().put_volume(&serde_json::from_value(volume)?).await?;
    let person = Person::administrator(&cluster);
    wait::until("the route is there", async || {
        let routes = person.json("provider routes").await?;
        Ok(routes["items"]["routes"].as_array().is_some_and(|routes| !routes.is_empty()).then_some(()))
    })
    .await?;

    let socket = format!("unix://{}", cluster.socket().display());
    for (verb, word) in [
        ("instances", "zone-a"),
        ("load-balancers", "default/web"),
        ("routes", "10.244."),
        ("volumes --plugin kubernetes.io/mock vol-1 vol-2", "topology.kubernetes.io/zone=zone-a"),
        ("clusters", "shop"),
        ("clusters shop", "api.example:6443"),
    ] {
        let through = person.json(&format!("provider {verb}")).await?;
        let direct = person.json(&format!("provider {verb} --provider {socket}")).await?;
        ensure!(through["items"] == direct["items"], "{verb}: {through:#}\nand {direct:#}");
        ensure!(through.to_string().contains(word), "{verb}: {through:#}");
        let (code, table, error) = person.ask(&format!("provider {verb}")).await?;
        ensure!(code == 0 && table.contains(word), "{verb}: {code}\n{table}{error}");
    }
    let (code, _, error) = person.ask("provider clusters nowhere").await?;
    ensure!(code == 1 && error.contains("CLUSTER_NOT_FOUND"), "{code} {error}");
    let (code, _, error) = person.ask("provider status --provider gcp").await?;
    ensure!(code == 4 && error.contains("this host has mock"), "{code} {error}");
    let (code, out, error) = person.ask(&format!("provider info --provider {socket}")).await?;
    ensure!(code == 0 && out.contains("INSTANCES_LIST"), "{code} {out} {error}");

    let state: Value = serde_json::from_str(&cluster.host_get("/state").await?.1)?;
    ensure!(state["services"][0]["standing"] == "Settled", "{state:#}");
    ensure!(state["routes"][0]["list"] == "Whole", "{state:#}");
    ensure!(state["host"]["leadership"] == "Always", "{state:#}");
    nothing_was_forbidden(&cluster)
}

/// Without a kubelet nothing can be forwarded, so the test goes as far as the apiserver's answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_leaders_pod_is_found_by_its_lease() -> Result<()> {
    let cluster = quick().start().await?;
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), "kube-system");
    for name in ["ccm-a", "ccm-b"] {
        let pod = json!({
            "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "cloud-controller-manager" } },
            "spec": { "nodeName": "nowhere", "containers": [{ "name": "ccm-host", "image": "none" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let running = json!({ "status": { "phase": "Running" } });
        pods.patch_status(name, &Default::default(), &Patch::Merge(running)).await?;
    }
    let kubeconfig = cluster.control_plane.admin_kubeconfig();
    let status = async || said(cluster.ccmctl(&kubeconfig, &["provider", "status"]).await?);
    let (code, _, error) = status().await?;
    ensure!(code == 1 && error.contains("nobody holds the Lease, and 2 pods run"), "{code} {error}");

    let lease = json!({
        "metadata": { "name": "cloud-controller-manager" },
        "spec": { "holderIdentity": "ccm-b_3f0c" },
    });
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-system");
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let (code, _, error) = status().await?;
    ensure!(
        code == 1 && error.contains("no port-forward to pod kube-system/ccm-b port 10258"),
        "{code} {error}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_explained_while_nothing_backs_it_and_once_something_does() -> Result<()> {
    let cluster = quick().start().await?;
    let person = Person::administrator(&cluster);
    create(&cluster.client, load_balancer("web")).await?;
    let explained = async |standing: &str, word: &str, exit: i32| {
        wait::until(&format!("web is {standing}: {word}"), async || {
            let (code, out, error) = person.ask("explain service default/web").await?;
            ensure!(matches!(code, 0 | 3 | 4), "{code} {error}");
            Ok((code == exit && out.contains(standing) && out.contains(word)).then_some(out))
        })
        .await
    };
    explained("blocked", "no available nodes", 3).await?;
    join(&cluster, &["node-a"]).await?;
    let text = explained("nothing is to be done", "mock", 0).await?;
    let web = service(&cluster, "web", "an address", |service| !ingress(service).is_empty()).await?;
    let address = ingress(&web)[0].clone();
    ensure!(text.contains(&address), "{address}: {text}");
    for (what, word) in [("last call", "done"), ("nodes behind it", "1"), ("balancer", "as last applied")] {
        let line = text.lines().find(|line| line.starts_with(what)).with_context(|| text.clone())?;
        ensure!(line.contains(word), "{line}");
    }
    let state = person.json("explain service default/web").await?;
    ensure!(state["kind"] == "ServiceState" && state["standing"] == "Settled", "{state}");

    let ensures = async || {
        let calls = cluster.cloud()?.call_counts().await?;
        anyhow::Ok(calls.iter().find(|(method, _)| method == "EnsureLoadBalancer").map(|(_, count)| *count))
    };
    let before = ensures().await?;
    let (code, out, error) = person.ask("resync").await?;
    ensure!(code == 0 && out.starts_with("1 load balancers are ensured again"), "{code} {out} {error}");
    wait::until("it is ensured again", async || Ok((ensures().await? > before).then_some(()))).await?;
    explained("nothing is to be done", "mock", 0).await?;
    let (code, _, error) = person.ask("explain service nobody").await?;
    ensure!(code == 4 && error.contains("no Service default/nobody"), "{code} {error}");
    Ok(())
}
