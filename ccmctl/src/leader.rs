//! Finds the pod of the replica that leads.
//!
//! In: the Lease, and the host's pods. Out: the leader's pod and port. Its holder is written `NAME_UNIQUE`: the name of
//! the pod if its manifest passes that on as `POD_NAME`, as ours do, else the host name, which is the machine's if the
//! pod uses the node's network.

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{Api, Client, api::ListParams};

use crate::cli::Way;

/// The port of a host that names none.
const USUAL_PORT: u16 = 10258;
/// What the chart calls the port.
const PORT_NAME: &str = "https";

/// Where the leader serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) pod: String,
    pub(crate) port: u16,
}

pub(crate) async fn find(client: &Client, way: &Way) -> Result<Leader> {
    let holder = holder(client, way).await?;
    let pods = Api::<Pod>::namespaced(client.clone(), &way.namespace)
        .list(&ListParams::default().labels(&way.selector))
        .await
        .with_context(|| format!("the pods in {} cannot be listed: you need the right to", way.namespace))?;
    choose(&holder, &pods.items).with_context(|| {
        format!(
            "the leader is not found by Lease {} and pods {} in {}: correct --lease, --selector and --namespace, or give \
             --server",
            way.lease, way.selector, way.namespace
        )
    })
}

/// Empty if nobody holds the Lease, or there is none.
async fn holder(client: &Client, way: &Way) -> Result<String> {
    if way.lease.is_empty() {
        return Ok(String::new());
    }
    let (namespace, name) = way
        .lease
        .split_once('/')
        .with_context(|| format!("--lease is {:?}: give NAMESPACE/NAME", way.lease))?;
    let lease = Api::<Lease>::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await
        .with_context(|| format!("the Lease {} cannot be read: you need the right to get it", way.lease))?;
    Ok(lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity).unwrap_or_default())
}

/// The holder's pod; without a holder, the only one that runs.
fn choose(holder: &str, pods: &[Pod]) -> Result<Leader> {
    let running: Vec<&Pod> = pods.iter().filter(|pod| phase(pod) == "Running").collect();
    if holder.is_empty() {
        return match running.as_slice() {
            [only] => leader(only),
            [] => bail!("no pod runs"),
            several => bail!("nobody holds the Lease, and {} pods run", several.len()),
        };
    }
    let host = holder.rsplit_once('_').map_or(holder, |(host, _)| host);
    let node = |pod: &Pod| {
        let spec = pod.spec.as_ref().filter(|spec| spec.host_network == Some(true))?;
        spec.node_name.clone()
    };
    let only = |is_it: &dyn Fn(&Pod) -> bool| match running
        .iter()
        .filter(|pod| is_it(pod))
        .collect::<Vec<_>>()[..]
    {
        [pod] => Some(*pod),
        _ => None,
    };
    let pod = only(&|pod| pod.metadata.name.as_deref() == Some(host))
        .or_else(|| only(&|pod| node(pod).as_deref() == Some(host)))
        .or_else(|| only(&|pod| node(pod).is_some_and(|node| first_label(&node) == first_label(host))))
        .ok_or_else(|| {
            anyhow!(
                "{host:?} holds the Lease, and none of the {} running pods has that name or runs on a node of that name; \
                 set POD_NAME in the environment of a pod whose machine is named otherwise than its node",
                running.len()
            )
        })?;
    leader(pod)
}

/// A machine may know its name with the domain and the cluster without, or the other way round.
fn first_label(name: &str) -> &str {
    name.split_once('.').map_or(name, |(first, _)| first)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn leader(pod: &Pod) -> Result<Leader> {
    let name = pod.metadata.name.clone().context("a pod without a name")?;
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
    let port = port.and_then(|port| u16::try_from(port.container_port).ok()).unwrap_or(USUAL_PORT);
    Ok(Leader { pod: name, port })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, host_network: bool, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "nodeName": node, "hostNetwork": host_network,
                "containers": [{ "name": "ccm-host", "ports": [{ "name": "https", "containerPort": 10300 }] }],
            },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn the_holder_of_the_lease_is_found() {
        let pods = [
            pod("ccm-a", "node-1", false, "Running"),
            pod("ccm-b", "node-2", false, "Running"),
            pod("ccm-c", "node-3.example", true, "Running"),
            pod("ccm-d", "node-4", false, "Failed"),
        ];
        let twins = [pod("a", "node-1.east", true, "Running"), pod("b", "node-1.west", true, "Running")];
        let rows: [(&str, &[Pod], Result<&str, &str>); 12] = [
            ("node-1.west_3f", &twins, Ok("b")),
            ("node-1_3f", &twins, Err("\"node-1\" holds the Lease")),
            ("ccm-c_3f", &pods, Ok("ccm-c")),
            ("node-3.other_3f", &pods, Ok("ccm-c")),
            ("ccm-b_3f", &pods, Ok("ccm-b")),
            ("node-3.example_3f", &pods, Ok("ccm-c")),
            ("node-3_3f", &pods, Ok("ccm-c")),
            ("node-1_3f", &pods, Err("\"node-1\" holds the Lease")),
            ("ccm-d_3f", &pods, Err("\"ccm-d\" holds the Lease")),
            ("", &pods, Err("3 pods run")),
            ("", &pods[3..], Err("no pod runs")),
            ("", &pods[..1], Ok("ccm-a")),
        ];
        for (holder, pods, want) in rows {
            match (choose(holder, pods), want) {
                (Ok(leader), Ok(name)) => assert_eq!(leader, Leader { pod: name.to_owned(), port: 10300 }),
                (Err(error), Err(word)) => assert!(error.to_string().contains(word), "{holder}: {error}"),
                (seen, want) => panic!("{holder}: {seen:?}, not {want:?}"),
            }
        }
    }
}
