//! A bridged Go provider behind the shipped host, without or with its own credentials for the cluster, or in the
//! process of upstream's controllers: the same life of nodes and a Service, and what it leaves behind.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result};
use e2e::{event, node, node_gone, quick, service, service_gone};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_cluster::{
    CloudFolder, Cluster, Process, ProviderUnderTest, Steered as _, go,
    nodes::{addresses, as_registered, is_uninitialized, label, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

/// Flags of upstream's manager.
const UPSTREAM: [&str; 4] = [
    "--leader-elect=false",
    "--secure-port=0",
    "--configure-cloud-routes=false",
    "--node-monitor-period=500ms",
];

const USER: &str = "system:serviceaccount:kube-system:bridged-provider";

/// The permissions that any of the providers needs, for the provider's own account.
const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bridged-provider}
rules:
  - {apiGroups: [""], resources: [nodes, services], verbs: [get, list, watch, update, patch]}
  - {apiGroups: [""], resources: [services/status], verbs: [patch]}
  - {apiGroups: [""], resources: [secrets], verbs: [list, watch]}
  - {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create]}
  - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
  - {apiGroups: [""], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bridged-provider}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bridged-provider}
subjects: [{kind: ServiceAccount, name: bridged-provider, namespace: kube-system}]
"#;

/// A provider whose cloud is a directory.
pub(crate) struct Subject {
    /// Its Go module, the package of its command, and the name of the program here.
    pub(crate) sidecar: (&'static str, &'static str, &'static str),
    /// The scheme of its provider IDs.
    pub(crate) scheme: &'static str,
    /// Its name in upstream's manager.
    pub(crate) registered: &'static str,
    /// The flag for the directory.
    pub(crate) folder: &'static str,
    /// More flags of the sidecar.
    pub(crate) flags: &'static [&'static str],
}

/// The manager of the provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manager {
    /// The shipped host, and the bridge with or without credentials.
    Host { kubeconfig: bool },
    /// Upstream's controllers, with the provider in their process.
    Upstream,
}

/// The parts of the cloud that a life must leave empty.
const PARTS: [&str; 4] = ["balancers", "ids", "rules", "ports"];

/// The state halfway through a life and at its end, in words.
pub(crate) type Left = BTreeMap<&'static str, String>;

pub(crate) struct World {
    subject: &'static Subject,
    manager: Manager,
    pub(crate) cluster: Cluster,
    cloud: CloudFolder,
    pub(crate) folder: TempDir,
    pub(crate) kubeconfig: PathBuf,
    upstream: Option<Process>,
    anchored: bool,
}

impl World {
    pub(crate) async fn start(subject: &'static Subject, manager: Manager, more: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (module, package, name) = subject.sidecar;
        let program = built(module, package, name).await?;
        let mut flags = vec![format!("{}={}", subject.folder, folder.path().display())];
        flags.extend(subject.flags.iter().chain(more).map(ToString::to_string));
        let name = subject.scheme.to_owned();
        let options =
            quick().provider_under_test(ProviderUnderTest { name, program, flags, environment: Vec::new() });
        let cluster = match manager {
            Manager::Host { .. } => options.start().await?,
            Manager::Upstream => options.start_control_plane().await?,
        };
        cluster.control_plane.apply_yaml(RIGHTS).await?;
        let kubeconfig = cluster.control_plane.kubeconfig_for(USER, &[])?;
        let cloud = CloudFolder::new(folder.path())?;
        Ok(Self { subject, manager, cluster, cloud, folder, kubeconfig, upstream: None, anchored: false })
    }

    /// Starts the provider, or upstream's manager with it, after killing the running one.
    pub(crate) async fn serve(&mut self, flags: &[String]) -> Result<()> {
        let mut flags = flags.to_vec();
        match self.manager {
            Manager::Host { kubeconfig } => {
                if kubeconfig {
                    flags.push(format!("--kubeconfig={}", self.kubeconfig.display()));
                }
                self.cluster.restart_provider_with(&flags).await
            }
            Manager::Upstream => {
                self.upstream = None;
                let kubeconfig =
                    self.cluster.control_plane.kubeconfig_for("upstream", &["system:masters"])?;
                flags.push(format!("--kubeconfig={}", kubeconfig.display()));
                flags.push(format!("{}={}", self.subject.folder, self.folder.path().display()));
                flags.push(format!("--cloud-provider={}", self.subject.registered));
                flags.extend(UPSTREAM.map(str::to_owned));
                let program = built("tests/bench/peer", "./clouds", "upstream-clouds").await?;
                let log = self.cluster.folder().join("upstream.log");
                self.upstream = Some(Process::start("upstream", &program, &flags, &[], &log)?);
                Ok(())
            }
        }
    }

    /// Kills upstream's manager.
    pub(crate) fn stop_upstream(&mut self) {
        self.upstream = None;
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.cluster.client.clone(), "default")
    }

    pub(crate) async fn join(&self, name: &str, address: &str) -> Result<()> {
        self.register(name, address, as_registered(name)).await
    }

    /// A Ready node behind no balancer stays throughout: the host deletes no node while none is Ready.
    pub(crate) async fn anchor(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.anchored, true) {
            let mut node = as_registered("anchor");
            node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] = json!("");
            self.register("anchor", "10.1.0.9", node).await?;
        }
        Ok(())
    }

    async fn register(&self, name: &str, address: &str, node_as_registered: Value) -> Result<()> {
        self.cloud.create_machine(name, "zone-a", address).await?;
        register(&self.cluster.client, node_as_registered).await?;
        set_ready(&self.cluster.client, name, "True").await?;
        node(&self.cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
        Ok(())
    }

    pub(crate) async fn leave(&self, name: &str) -> Result<()> {
        self.cloud.terminate_machine(name).await?;
        set_ready(&self.cluster.client, name, "Unknown").await?;
        node_gone(&self.cluster, name).await
    }

    pub(crate) async fn behind(&self, service: &str, wanted: &[&str]) -> Result<()> {
        wait::until(&format!("{wanted:?} behind {service}"), async || {
            let backends = self.cloud.backends().await?;
            Ok(backends.get(&format!("default/{service}")).is_some_and(|found| found == wanted).then_some(()))
        })
        .await
    }

    pub(crate) async fn has_file(&self, part: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let path = self.folder.path().join(part);
        let mut seen = String::new();
        wait::until(&format!("{part} of the cloud"), async || {
            seen = fs::read_to_string(&path).unwrap_or_default();
            Ok(wanted(&seen).then_some(()))
        })
        .await
        .with_context(|| format!("it is {seen:?}"))
    }

    /// A node joins, the Service is created, edited and survives a restart, another node joins, and everything is
    /// deleted. `flags` are those of this provider's start.
    pub(crate) async fn life(&mut self, name: &str, wish: Value, flags: &[String]) -> Result<Left> {
        let (first, second) = (format!("{name}-a"), format!("{name}-b"));
        self.serve(flags).await?;
        self.anchor().await?;
        self.join(&first, "10.1.0.1").await?;
        self.made(name, wish).await?;
        self.behind(name, &[&first]).await?;

        self.edit(name, 8080).await?;
        self.has_file(&format!("ports/{name}"), |text| text.contains("8080")).await?;

        self.serve(flags).await?;
        self.join(&second, "10.1.0.2").await?;
        self.behind(name, &[&first, &second]).await?;
        let mut left = self.look(name, &first).await?;

        self.services().delete(name, &Default::default()).await?;
        service_gone(&self.cluster, name).await?;
        self.leave(&first).await?;
        self.leave(&second).await?;
        left.insert("at last", format!("{:?}", self.parts()?));
        Ok(left)
    }

    /// Gives the Service another port.
    pub(crate) async fn edit(&self, name: &str, port: u16) -> Result<()> {
        let edit = json!({ "spec": { "ports": [{ "name": "http", "protocol": "TCP", "port": port }] } });
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(edit)).await?;
        Ok(())
    }

    /// The Service gets its address, and whatever the provider's habit adds.
    async fn made(&self, name: &str, wish: Value) -> Result<()> {
        let hang = self.folder.path().join("hang");
        if name == "hangs" {
            fs::write(&hang, name)?;
        }
        create(&self.cluster.client, wish).await?;
        if name == "hangs" {
            // Another Service does not wait for it.
            create(&self.cluster.client, load_balancer("other")).await?;
            service(&self.cluster, "other", "an address", |one| !ingress(one).is_empty()).await?;
            self.services().delete("other", &Default::default()).await?;
            service_gone(&self.cluster, "other").await?;
            fs::remove_file(hang)?;
        }
        service(&self.cluster, name, "an address", |one| !ingress(one).is_empty()).await?;
        match name {
            "runs-loops" => self.has_file("firewall", |text| text.starts_with("default/runs-loops ")).await,
            "tells-events" => event(&self.cluster, name, "Making").await.map(drop),
            "panics" => event(&self.cluster, name, "SyncLoadBalancerFailed").await.map(drop),
            _ => Ok(()),
        }
    }

    /// The names in a part of the cloud, without random IDs.
    pub(crate) fn names(&self, part: &str) -> Result<Vec<String>> {
        let mut names = self.cloud.names(part)?;
        if part == "ids" {
            names.iter_mut().for_each(|name| name.truncate(2));
        }
        Ok(names)
    }

    /// What each part of the cloud has.
    fn parts(&self) -> Result<Vec<Vec<String>>> {
        PARTS.iter().map(|part| self.names(part)).collect()
    }

    async fn look(&self, habit: &str, first: &str) -> Result<Left> {
        if habit == "writes-nodes" && self.manager != (Manager::Host { kubeconfig: false }) {
            node(&self.cluster, first, "the provider's label", |node| {
                label(node, "difficult.example/host").is_some()
            })
            .await?;
        }
        let node = Api::<Node>::all(self.cluster.client.clone()).get(first).await?;
        let service = self.services().get(habit).await?;
        let metadata = &service.metadata;
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        finalizers.sort();
        let spec = node.spec.as_ref();
        // Other controllers add and remove the taints of nodes that are not ready.
        let ours = |key: &&str| !key.starts_with("node.kubernetes.io/");
        let taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let taints: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).filter(ours).collect();
        let keys: Vec<&str> = metadata.annotations.iter().flatten().map(|(key, _)| key.as_str()).collect();
        Ok(Left::from([
            ("provider ID", format!("{:?}", spec.and_then(|spec| spec.provider_id.as_ref()))),
            ("addresses", format!("{:?}", addresses(&node, "InternalIP"))),
            ("label", format!("{:?}", label(&node, "difficult.example/host"))),
            ("zone", format!("{:?}", label(&node, "topology.kubernetes.io/zone"))),
            ("taints", taints.join(" ")),
            ("ingress", format!("{:?}", ingress(&service))),
            ("annotations", keys.join(" ")),
            ("finalizers", finalizers.join(" ")),
            ("cloud", format!("{:?}", self.parts()?.iter().map(Vec::len).collect::<Vec<_>>())),
        ]))
    }

    pub(crate) fn tail(&self) -> String {
        match &self.upstream {
            Some(upstream) => upstream.tail(),
            None => format!("{:?}", self.cluster.parts()),
        }
    }
}

async fn built(module: &'static str, package: &'static str, name: &'static str) -> Result<PathBuf> {
    tokio::task::spawn_blocking(move || go::built(module, package, name)).await?
}
