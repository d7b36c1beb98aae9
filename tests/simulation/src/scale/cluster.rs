//! The cluster and the cloud around the host.

use std::{
    collections::BTreeMap,
    fs::Permissions,
    net::SocketAddr,
    ops::Range,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use anyhow::Result;
use apiserver::{ApiServer, Options, Write};
use cloudprovider_sdk::{Endpoint, ServeOptions};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use provider_mock::{
    cloud::{ANNOTATION_PREFIX, Cloud, NewInstances, Settings, State, Store},
    serve::Mock,
};
use serde_json::json;
use tokio::task::JoinHandle;

use super::serve::serve;
use crate::{kubelets::UNINITIALIZED, world::EXCLUDE};

/// How many changes of one kind a watch may lag behind.
const HISTORY: usize = 400_000;

/// Ends when dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) apiserver: SocketAddr,
    pub(super) provider: String,
    server: ApiServer,
    mock: Mock,
    left: Arc<Left>,
    serving: [JoinHandle<()>; 2],
    _folder: Arc<tempfile::TempDir>,
}

/// The work that the host has left.
#[derive(Debug, Default)]
struct Left {
    nodes: AtomicI64,
    services: AtomicI64,
}

/// Calls to the provider.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    pub(super) calls: u64,
    pub(super) items: u64,
}

impl Calls {
    pub(super) fn since(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, items: self.items - before.items }
    }
}

fn name(number: u32) -> String {
    format!("node-{number}")
}

impl Cluster {
    pub(super) async fn new() -> Result<Self> {
        let server = ApiServer::new(Options {
            clock: Some(Arc::new(Timestamp::now)),
            history: HISTORY,
            journal: 0,
            keep_requests: false,
            ..Options::default()
        });
        let left = Arc::new(Left::default());
        let written = Arc::clone(&left);
        server.on_write(move |write| written.see(write));
        let (apiserver, requests) = serve(&server).await?;
        let cloud = Cloud::new(State::new(Settings::default()), Store::default());
        // A provider that reads every label of a node, as one behind the bridge does.
        let mock = Mock { advertised: "node-label=*".parse()?, ..Mock::new(cloud, Timestamp::now) };
        // A provider refuses a socket in a directory that others may enter.
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()?;
        let socket = folder.path().join("provider.sock");
        let provider = format!("unix://{}", socket.display());
        let (process, handle) = mock.server("life-1", ServeOptions::new(Endpoint::Unix(socket)))?;
        let process = process.bind().await?;
        let alive = mock.clone();
        let calls = tokio::spawn(async move {
            tokio::select! {
                _ended = process.run() => {}
                never = alive.live(handle) => match never {},
            }
        });
        Ok(Self {
            apiserver,
            provider,
            server,
            mock,
            left,
            serving: [requests, calls],
            _folder: Arc::new(folder),
        })
    }

    /// Creates machines and their new nodes; those from number `targets` on are excluded from balancers.
    pub(super) fn add_nodes(&self, numbers: Range<u32>, targets: u32) -> Result<()> {
        let (objects, now) = (self.server.world().named("kubelet"), Timestamp::now());
        let wish = NewInstances {
            count: Some(numbers.end - numbers.start),
            first: Some(numbers.start),
            ..NewInstances::default()
        };
        self.mock.cloud.alter(now, |state| state.create_instances(&wish, now).map(drop))?;
        self.left.nodes.fetch_add(i64::from(numbers.end - numbers.start), Ordering::SeqCst);
        for number in numbers {
            let name = name(number);
            let mut labels =
                BTreeMap::from([("kubernetes.io/hostname", name.as_str()), ("kubernetes.io/os", "linux")]);
            if number >= targets {
                labels.insert(EXCLUDE, "true");
            }
            objects.create_value(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": name, "labels": labels },
                "spec": { "taints": [{ "key": UNINITIALIZED, "value": "true", "effect": "NoSchedule" }] },
                "status": {
                    "addresses": [{ "type": "Hostname", "address": name }],
                    "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
                    "nodeInfo": {
                        "machineID": name, "systemUUID": "", "bootID": "", "kernelVersion": "6.1", "osImage": "linux",
                        "containerRuntimeVersion": "containerd://2", "kubeletVersion": "v1.37.2", "kubeProxyVersion": "",
                        "operatingSystem": "linux", "architecture": "amd64",
                    },
                },
            }))?;
        }
        Ok(())
    }

    pub(super) fn add_services(&self, count: u32) -> Result<()> {
        let objects = self.server.world().named("user");
        self.left.services.fetch_add(i64::from(count), Ordering::SeqCst);
        for number in 0..count {
            objects.create_value(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": format!("service-{number}"), "namespace": "default" },
                "spec": {
                    "type": "LoadBalancer", "selector": { "app": "web" },
                    "ports": [{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080 }],
                },
            }))?;
        }
        Ok(())
    }

    /// A user labels all nodes with something that no provider reads.
    pub(super) fn label_all(&self) -> Result<()> {
        let objects = self.server.world().named("user");
        for node in objects.objects::<Node>() {
            objects.change::<Node>("", node.key().name(), |node| {
                let labels = node.metadata.labels.get_or_insert_default();
                labels.insert("example.com/color".to_owned(), "blue".to_owned());
            })?;
        }
        Ok(())
    }

    /// Tenants give every label and annotation of nodes and Services a name that nobody used before. Every 25th Service's
    /// annotations are for the provider, which is asked for a change each time.
    pub(super) fn rename_all(&self, round: u32) -> Result<()> {
        let objects = self.server.world().named("tenant");
        const OURS: &str = "renamed-";
        let renamed = |map: &mut Option<BTreeMap<String, String>>, number: usize, prefix: &str| {
            let map = map.get_or_insert_default();
            map.retain(|key, _| !key.contains(OURS));
            map.extend((0..30).map(|part| {
                let key = format!("{prefix}{OURS}{number}-{round}-{part}");
                (key, format!("{round:x>60}"))
            }));
        };
        for (number, node) in objects.objects::<Node>().into_iter().enumerate() {
            objects.change::<Node>("", node.key().name(), |node| {
                renamed(&mut node.metadata.labels, number, "example.com/");
                renamed(&mut node.metadata.annotations, number, "example.com/");
            })?;
        }
        for (number, service) in objects.objects::<Service>().into_iter().enumerate() {
            let prefix = if number % 25 == 0 { ANNOTATION_PREFIX } else { "example.com/" };
            objects.change::<Service>("default", service.key().name(), |service| {
                renamed(&mut service.metadata.labels, number, "example.com/");
                renamed(&mut service.metadata.annotations, number, prefix);
            })?;
        }
        Ok(())
    }

    /// Whether every node is initialised and every Service has its balancer.
    pub(super) fn is_served(&self) -> bool {
        self.left.nodes.load(Ordering::SeqCst) <= 0 && self.left.services.load(Ordering::SeqCst) <= 0
    }

    pub(super) fn left(&self) -> String {
        format!("{:?}, calls {:?}", self.left, self.mock.calls.methods())
    }

    /// Whether the node is behind all balancers.
    pub(super) fn is_behind_all(&self, number: u32) -> bool {
        let name = name(number);
        self.mock.cloud.read(Timestamp::now(), |state| {
            state.balancers().all(|balancer| balancer.backends.iter().any(|backend| backend.node == name))
        })
    }

    /// Health and status are queried whether or not there is work.
    pub(super) fn calls(&self) -> Calls {
        let methods = self.mock.calls.methods();
        let work = methods
            .iter()
            .filter(|(name, _)| !["GetInfo", "GetCapabilities", "GetStatus"].contains(&name.as_str()));
        work.fold(Calls::default(), |sum, (_, seen)| Calls {
            calls: sum.calls + seen.calls,
            items: sum.items + seen.items,
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

impl Left {
    fn see(&self, write: &Write) {
        let (Some(before), Some(after)) = (&write.before, &write.after) else { return };
        let holds = |object: &apiserver::Object, text: &str| {
            std::str::from_utf8(object.body()).is_ok_and(|body| body.contains(text))
        };
        let (count, was, is) = match write.resource {
            "nodes" => (&self.nodes, holds(before, UNINITIALIZED), holds(after, UNINITIALIZED)),
            "services" => (&self.services, !holds(before, "\"ingress\""), !holds(after, "\"ingress\"")),
            _ => return,
        };
        if was && !is {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
