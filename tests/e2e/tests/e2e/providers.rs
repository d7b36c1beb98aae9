//! The same history leaves the same state, whichever provider serves it: NODE-2, NODE-15, LIFE-13, LIFE-27, SVC-2,
//! SVC-6, LBN-15.

use std::path::Path;

use anyhow::{Result, ensure};
use e2e::{History, quick};
use test_cluster::{
    CloudFolder, Cluster, InventoryFile, MachinesFile, ProviderUnderTest, go, metrics::sum, python, wait,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_mock_leaves_what_must_be_left() -> Result<()> {
    History::new(quick().start().await?, "mock", Cluster::cloud).run().await
}

/// A provider written for `cloudprovider.Interface` (upstream's fake cloud), behind the Go bridge, without Kubernetes
/// credentials.
#[tokio::test(flavor = "multi_thread")]
async fn a_bridged_go_provider_leaves_the_same() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = tokio::task::spawn_blocking(|| {
        go::built("provider-sdk/go/bridge", "./examples/fake", "bridged-fake")
    })
    .await??;
    let provider = ProviderUnderTest {
        name: "fake".to_owned(),
        program,
        flags: vec![format!("--fake-cloud-dir={}", folder.path().display())],
        environment: Vec::new(),
    };
    let cluster = quick().provider_under_test(provider).start().await?;
    History::new(cluster, "fake", |_| CloudFolder::new(folder.path())).run().await
}

/// A provider in Python, whose cloud is a file that an operator edits.
#[tokio::test(flavor = "multi_thread")]
async fn a_python_provider_leaves_the_same() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = tokio::task::spawn_blocking(|| python::installed("providers/inventory-python")).await??;
    let provider = ProviderUnderTest {
        name: "inventory".to_owned(),
        program,
        flags: InventoryFile::new(folder.path())?.flags(),
        environment: Vec::new(),
    };
    let cluster = quick().provider_under_test(provider).start().await?;
    History::new(cluster, "inventory", |_| InventoryFile::new(folder.path())).run().await
}

/// A provider without an SDK, in Node.js, which serves only instances.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node.js; providers/stubs-nodejs/check installs what it needs, and .ci/run runs it"]
async fn a_provider_without_an_sdk_leaves_the_same_nodes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../providers/stubs-nodejs/serve");
    let provider = ProviderUnderTest {
        name: "stub".to_owned(),
        program,
        flags: vec![MachinesFile::new(folder.path())?.flag()],
        environment: Vec::new(),
    };
    let cluster = quick().provider_under_test(provider).start().await?;
    History::new(cluster, "stub", |_| MachinesFile::new(folder.path())).without_balancers().run().await
}

/// Controllers that it does not serve are skipped, as the log and a metric report.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node.js; providers/stubs-nodejs/check installs what it needs, and .ci/run runs it"]
async fn a_provider_without_an_sdk_need_not_serve_all_controllers() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../providers/stubs-nodejs/serve");
    let provider = ProviderUnderTest {
        name: "stub".to_owned(),
        program,
        flags: vec![MachinesFile::new(folder.path())?.flag()],
        environment: Vec::new(),
    };
    let mut cluster = quick().provider_under_test(provider).start().await?;
    wait::until("the controllers of nodes run", async || {
        let metrics = cluster.host_metrics().await?;
        let running = |name| sum(&metrics, "running_managed_controllers", &[name]) == 1.0;
        Ok((running("name=\"cloud-node\"") && running("name=\"cloud-node-lifecycle\"")).then_some(()))
    })
    .await?;
    let metrics = cluster.host_metrics().await?;
    ensure!(metrics.contains("ccm_controller_skipped{name=\"service\"} 1"), "{metrics}");
    ensure!(!metrics.contains("running_managed_controllers{name=\"service\""), "{metrics}");
    let log = cluster.host()?.output();
    ensure!(log.contains("skipped: no connected provider serves this controller"), "{log}");
    Ok(())
}
