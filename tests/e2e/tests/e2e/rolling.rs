//! A provider is rolled to the next version, and back, while users work: they notice nothing.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::skew::{Proxy, Skew};
use e2e::{node, service, service_gone, start_behind_a_proxy, warnings};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use test_cluster::{
    Cluster, metrics,
    nodes::{as_registered, is_uninitialized, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

use crate::quick;

/// How many nodes and Services are created with each version.
const ARRIVALS: usize = 5;

/// A release of the provider: its version, its protocol, and its capabilities.
struct Release {
    version: &'static str,
    skew: Skew,
    flags: &'static [&'static str],
}

/// Replaces it as a kubelet replaces a container: SIGTERM, then the next one starts.
async fn roll(cluster: &mut Cluster, proxy: &mut Option<Proxy>, release: &Release) -> Result<()> {
    cluster.provider()?.terminate().await?;
    *proxy = None;
    // The former provider's socket, which the proxy had moved aside.
    fs::remove_file(cluster.socket().with_extension("behind"))?;
    let version = format!("--report-version={}", release.version);
    let flags = [version].into_iter().chain(release.flags.iter().map(ToString::to_string));
    cluster.set_provider_flags(flags.collect());
    cluster.start_provider().await?;
    *proxy = Some(Proxy::in_front_of(&cluster.socket(), release.skew)?);
    Ok(())
}

async fn shown(cluster: &Cluster, version: &str) -> Result<()> {
    wait::until(&format!("version {version}, and no other, in the metrics"), async || {
        let text = cluster.host_metrics().await?;
        let of = |labels: &[&str]| metrics::sum(&text, "cloudprovider_provider_info", labels);
        Ok((of(&[]) == 1.0 && of(&[&format!("version=\"{version}\"")]) == 1.0).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reconcile_fails_visibly_while_a_provider_is_rolled_to_another_version() -> Result<()> {
    let options = quick().provider_flag("--report-version=1.0.0");
    let (mut cluster, proxy) = start_behind_a_proxy(options, Skew::First).await?;
    let mut proxy = Some(proxy);
    shown(&cluster, "1.0.0").await?;
    let process = cluster.host()?.id();
    let releases = [
        Release { version: "1.1.0", skew: Skew::None, flags: &["--advertise=max-batch-instances=2"] },
        Release {
            version: "2.0.0",
            skew: Skew::Later,
            flags: &["--no-pod-cidrs", "--advertise=page-size=3"],
        },
        // Back again: the host has seen answers that this version cannot give.
        Release { version: "1.0.0", skew: Skew::First, flags: &[] },
    ];
    let mut names = Vec::new();
    for release in &releases {
        for number in 0..ARRIVALS {
            let name = format!("{}-{number}", release.version.replace('.', "-"));
            cluster.cloud()?.create_instance(&name, "zone-a").await?;
            register(&cluster.client, as_registered(&name)).await?;
            set_ready(&cluster.client, &name, "True").await?;
            create(&cluster.client, load_balancer(&format!("web-{name}"))).await?;
            names.push(name);
            // During the work.
            if number == ARRIVALS / 2 {
                roll(&mut cluster, &mut proxy, release).await?;
            }
        }
        shown(&cluster, release.version).await?;
    }
    for name in &names {
        node(&cluster, name, "initialised", |node| !is_uninitialized(node)).await?;
        let web = format!("web-{name}");
        service(&cluster, &web, "an address", |service| !ingress(service).is_empty()).await?;
        wait::until(&format!("all nodes behind {web}"), async || {
            Ok((cluster.cloud()?.backends_of(&web).await?.len() == names.len()).then_some(()))
        })
        .await?;
    }
    ensure!(cluster.cloud()?.balancers().await?.len() == names.len(), "one balancer for each Service");
    let services = Api::<Service>::namespaced(cluster.client.clone(), "default");
    services.delete("web-1-1-0-0", &Default::default()).await?;
    service_gone(&cluster, "web-1-1-0-0").await?;
    let (code, readiness) = cluster.host_get("/readyz?verbose").await?;
    ensure!(code == 200 && readiness.contains("[+]provider-mock ok"), "{readiness}");
    ensure!(cluster.host()?.is_running() && cluster.host()?.id() == process, "the host ended");

    let warnings = warnings(&mut cluster).await?;
    ensure!(warnings.is_empty(), "{warnings:#?}");
    Ok(())
}
