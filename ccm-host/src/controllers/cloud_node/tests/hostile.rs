//! Whatever a provider answers, from its introduction on: nodes get nothing that the contract forbids, and lose nothing
//! that is somebody else's.

use std::net::IpAddr;

use serde_json::Value;

use super::*;
use crate::{
    cloud::{ClusterRef, ProviderConfig, RemoteProvider, hostile::Hostile},
    manager::flags::Endpoint,
};

const NAMES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];

/// Each seed is a provider of its own; `HOSTILE_ANSWERS=1000000` makes a long run.
#[tokio::test(start_paused = true)]
async fn whatever_a_provider_answers_no_node_is_spoilt() {
    let wanted =
        std::env::var("HOSTILE_ANSWERS").ok().and_then(|value| value.parse().ok()).unwrap_or(2000_u64);
    let (mut given, mut seed, mut initialised) = (0, 1, 0);
    while given < wanted {
        let hostile = Hostile::new(seed);
        let cancel = CancellationToken::new();
        let mut config =
            ProviderConfig::new("p", Endpoint::Unix("/run/p.sock".into()), ClusterRef::default());
        config.dialer = Some(hostile.dialer());
        let provider = RemoteProvider::spawn(config, &CloudMetrics::default(), cancel.clone());
        let server =
            NodeServer::new(NAMES.map(|name| {
                new_node(name).with_label("kubernetes.io/hostname", name).with_label("mine", "1")
            }));
        let (recorder, events) = recorder();
        let controller = Controller::new(Context {
            nodes: server.cache(keep(&settings()), &cancel).await,
            writer: server.writer(),
            providers: Providers::new(vec![provider as Arc<dyn Provider>]),
            recorder,
            metrics: CloudNodeMetrics::register(&mut Registry::default()),
            cloud_metrics: CloudMetrics::default(),
            queue_metrics: QueueMetrics::default(),
            settings: settings(),
        });
        let running = tokio::spawn(controller.run(cancel.clone()));
        for _ in 0..30 {
            sleep(Duration::from_secs(240)).await;
            NAMES.iter().for_each(|name| initialised += u64::from(check(&server, name, seed)));
            events.take();
            assert!(!running.is_finished(), "HOSTILE_SEED={seed}");
        }
        cancel.cancel();
        running.await.unwrap().unwrap();
        given += hostile.answers();
        seed += 1;
    }
    assert!(initialised > 0, "nothing was tried");
}

/// Whether it is initialised; fails if it is not as it may be.
fn check(server: &NodeServer, name: &str, seed: u64) -> bool {
    let that =
        |holds: bool, what: &str| assert!(holds, "{what} of {name} (seed {seed}): {:?}", server.node(name));
    let labels = server.part(name, "/metadata/labels");
    that(labels["mine"] == "1" && labels["kubernetes.io/hostname"] == *name, "labels");
    for (key, value) in labels.as_object().unwrap() {
        let (domain, bare) = key.split_once('/').unwrap_or(("", key));
        that(!bare.is_empty() && bare.len() <= 63 && domain.len() <= 253, "a label");
        that(domain != "node-role.kubernetes.io", "a role");
        let value = value.as_str().unwrap_or(" ");
        that(
            value.len() <= 63 && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)),
            "a value",
        );
    }
    let addresses = server.part(name, "/status/addresses");
    let addresses = addresses.as_array().cloned().unwrap_or_default();
    for address in &addresses {
        let text = address["address"].as_str().unwrap_or_default();
        let ip = address["type"].as_str().is_some_and(|kind| kind.ends_with("IP"));
        that(!text.is_empty() && (!ip || text.parse::<IpAddr>().is_ok()), "an address");
    }
    let id = server.part(name, "/spec/providerID");
    that(id.is_null() || id.as_str().is_some_and(|id| !id.is_empty() && id.len() <= 1024), "the provider ID");
    let tainted = matches!(server.part(name, "/spec/taints"), Value::Array(taints) if !taints.is_empty());
    // A node is never schedulable without the addresses that its kubelet or its cloud gave it.
    that(tainted || !addresses.is_empty(), "the taint");
    !tainted
}
