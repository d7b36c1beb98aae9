//! The published provider of Google Compute Engine over its vendor's in-memory mock, behind the bridge with credentials
//! for the cluster, and in the process of upstream's controllers: external and internal balancers leave the same state.

use anyhow::{Result, ensure};
use e2e::nothing_was_forbidden;
use serde_json::json;
use test_cluster::services::load_balancer;

use crate::bridged::{Left, Manager, Subject, World};

const GCE: Subject = Subject {
    sidecar: ("providers/bridged-gce", "./cmd/gce-mock", "bridged-gce-mock"),
    scheme: "gce",
    registered: "gce-mock",
    folder: "--mock-dir",
    flags: &[],
};

async fn lives(world: &mut World) -> Result<[Left; 2]> {
    let external = world.life("external", load_balancer("external"), &[]).await?;
    let mut wish = load_balancer("internal");
    wish["metadata"]["annotations"] = json!({ "networking.gke.io/load-balancer-type": "Internal" });
    let internal = world.life("internal", wish, &[]).await?;
    let left = std::fs::read_to_string(world.folder.path().join("left"))?;
    ensure!(left.is_empty(), "left in the cloud: {left}");
    Ok([external, internal])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the libraries of Google; .ci/run runs it"]
async fn a_bridged_gce_balancer_lives_as_in_upstreams_process() -> Result<()> {
    let mut world = World::start(&GCE, Manager::Host { kubeconfig: true }, &[]).await?;
    let ours = lives(&mut world).await?;
    nothing_was_forbidden(&world.cluster)?;
    drop(world);
    let theirs = lives(&mut World::start(&GCE, Manager::Upstream, &[]).await?).await?;
    ensure!(ours == theirs, "the bridge leaves\n{ours:#?}\nand upstream's controllers\n{theirs:#?}");
    Ok(())
}
