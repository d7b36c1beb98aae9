//! What an operator does by the docs, on a cluster of machines: real kubelets, containers from our images, the real Helm.
//!
//! In: `docs/operate.md`, whose commands are typed as they stand. The cluster needs root and Debian's packages, and its
//! programs are built once, which takes minutes; `.ci/run` runs these tests where all that is.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::deploy::operator::{Operator, RELEASE, blocks, helm, on_machines, prepare};
use serde_json::json;
use test_cluster::{
    Process,
    machines::{INSIDE, MachinesOptions},
    wait,
};

/// From nothing to a Service with an address, an upgrade, one that fails, and the removal.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn an_operator_follows_the_page() -> Result<()> {
    on_machines("an_operator_follows_the_page", MachinesOptions::of_workers(1), prepare, async |operator| {
        let mut said = String::new();
        for (language, text) in blocks("Install")? {
            // A registry that the nodes can reach is the reader's; here the images lie on the nodes.
            let text =
                text.replace("registry.example/", "localhost/").replace("busybox:1.37", "localhost/pause:1");
            if language == "yaml" {
                operator.writes("values.yaml", &text)?;
            } else {
                said = operator.types(&text)?;
                eprintln!("$ {text}\n{said}");
            }
        }
        ensure!(said.lines().any(|line| line.starts_with("web-")), "no pod answered: {said}");
        initialised(&operator)?;
        let log = operator
            .types(&format!("kubectl -n kube-system logs daemonset/{RELEASE} -c ccm-host --tail=-1"))?;
        ensure!(log.contains("leads") && log.contains("started"), "{log}");
        let services = operator.sees("services")?;
        ensure!(
            services.iter().any(|one| one["status"]["loadBalancer"]["ingress"][0]["ip"].is_string()),
            "{services:#?}"
        );
        let explained = operator.types("ccmctl explain node worker-1; ccmctl provider status")?;
        ensure!(explained.contains("worker-1"), "{explained}");

        let (_, health) = blocks("What health says")?.remove(0);
        let health = operator
            .types(&format!("{}\nkill $!", health.replace("POD", &format!("daemonset/{RELEASE}"))))?;
        ensure!(health.contains("readyz check passed"), "{health}");

        let values = fs::read_to_string(operator.folder.join("values.yaml"))?;
        operator.writes("values.yaml", &format!("{values}\nlogVerbosity: 3\n"))?;
        let (_, upgrade) = blocks("Upgrade")?.remove(0);
        operator.types(&upgrade)?;
        operator.waits_for_host("--v=3").await?;

        let hopeless = upgrade.replace("--values", "--set image.tag=9.9.9 --values").replace("3m", "10s");
        let said = operator.types(&hopeless)?;
        ensure!(said.contains("Rollback was a success"), "{said}");
        operator.waits_for_host("--v=3").await?;

        let (_, removal) = blocks("Remove")?.remove(0);
        operator.types(&removal)?;
        let pods = "kubectl -n kube-system get pods -o name";
        wait::until("no pod", async || Ok(operator.types(pods)?.is_empty().then_some(()))).await?;
        initialised(&operator)?;
        let service = operator.types("kubectl get service web -o json")?;
        ensure!(service.contains("load-balancer-cleanup") && service.contains("192.0.2."), "{service}");
        Ok(())
    })
}

fn initialised(operator: &Operator) -> Result<()> {
    for node in operator.sees("nodes")? {
        let taints = node["spec"]["taints"].to_string();
        let has_id = node["spec"]["providerID"].as_str().is_some_and(|id| id.starts_with("mock://"));
        ensure!(has_id && !taints.contains("uninitialized"), "{node:#}");
    }
    Ok(())
}

/// One replica runs, the others find no free node: an upgrade must not wait for them, nor for the new ones that find none.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn a_deployment_of_three_replicas_for_one_node_can_be_upgraded() -> Result<()> {
    on_machines(
        "a_deployment_of_three_replicas_for_one_node_can_be_upgraded",
        MachinesOptions::of_workers(0),
        prepare,
        async |operator| {
            operator.loads_images()?;
            let tag = env!("CARGO_PKG_VERSION");
            let image = |name: &str| json!({ "repository": format!("localhost/{name}"), "tag": tag });
            let values = json!({
                "kind": "Deployment", "replicaCount": 3, "image": image("ccm-host"),
                "providers": { "mock": { "image": image("provider-mock") } },
            });
            operator.writes("values.yaml", &values.to_string())?;
            operator.types(&helm("install"))?;
            operator.waits_for_host("--v=2").await?;
            operator.types(&format!("{} --set logVerbosity=3", helm("upgrade")))?;
            operator.waits_for_host("--v=3").await?;
            ensure!(operator.ready_hosts()?.len() == 1, "one node was meant to have room for one");
            Ok(())
        },
    )
}

/// A client outside sees pods, the pods see the client, and neither loses the other with a node, or with the mode of the
/// address. What a deleted balancer leaves is silent.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn a_client_reaches_pods_through_a_balancer() -> Result<()> {
    on_machines(
        "a_client_reaches_pods_through_a_balancer",
        MachinesOptions::of_workers(2),
        prepare,
        async |operator| {
            let (_mock, cloud) = operator.installs_with_a_cloud_outside(&json!({})).await?;
            let address = operator.serves_web()?;
            operator
                .is_answered(&address, "to the client itself", |answer| answer.starts_with("172.30.0.2 web-"))
                .await?;

            operator.types("kubectl annotate service web mock.cloudprovider.ccm/ip-mode=Proxy")?;
            operator.types(
                r#"kubectl patch service web --patch '{"spec": {"externalTrafficPolicy": "Cluster"}}'"#,
            )?;
            operator.is_answered(&address, "to a proxy", |answer| answer.starts_with("10.")).await?;
            operator.types("kubectl annotate service web mock.cloudprovider.ccm/ip-mode-")?;
            operator.types(
                r#"kubectl patch service web --patch '{"spec": {"externalTrafficPolicy": "Local"}}'"#,
            )?;
            operator
                .is_answered(&address, "to the client again", |answer| answer.starts_with("172.30.0.2 "))
                .await?;

            operator.loses("worker-1", &cloud).await?;
            for _ in 0..3 {
                operator
                    .is_answered(&address, "from the other machine", |answer| {
                        answer.starts_with("172.30.0.2 ")
                    })
                    .await?;
            }
            operator.waits_for_the_end_of("worker-1").await?;
            operator
                .is_answered(&address, "without the node", |answer| answer.starts_with("172.30.0.2 "))
                .await?;

            operator.types("kubectl delete service web --timeout=60s")?;
            wait::until("silence", async || Ok(operator.asks(&address).is_none().then_some(()))).await
        },
    )
}

/// A control plane of three loses one machine after the other, each time with whatever runs on it, and every Service
/// made meanwhile gets its balancer. The provider is there only after the chart.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn any_of_three_control_plane_machines_may_be_lost() -> Result<()> {
    let options = MachinesOptions { control_plane: 3, ..MachinesOptions::default() };
    on_machines("any_of_three_control_plane_machines_may_be_lost", options, prepare, async |mut operator| {
        operator.installs_without_its_cloud(&json!({}))?;
        wait::until("three hosts that wait for the provider", async || {
            let pods = operator
                .types(&format!("kubectl -n kube-system get pods -o name | grep -c {RELEASE} || true"))?;
            Ok((pods.trim() == "3").then_some(()))
        })
        .await?;
        ensure!(operator.ready_hosts()?.is_empty(), "no host is ready without its provider");
        let (_mock, _cloud) = operator.starts_the_cloud().await?;
        operator.waits_for_the_rollout()?;

        for lost in 0..3 {
            operator.seat = (lost + 1) % 3;
            let name = format!("during-{lost}");
            operator.machines.cut_off(&operator.machines.all()[lost])?;
            operator.types(&format!(
                "kubectl create service loadbalancer {name} --tcp=80
                 kubectl wait service {name} --for=jsonpath='{{.status.loadBalancer.ingress}}' --timeout=60s"
            ))?;
            operator.machines.plug_in(&operator.machines.all()[lost])?;
            operator.types(&format!(
                "kubectl wait node control-plane-{} --for=condition=Ready --timeout=60s",
                lost + 1
            ))?;
            operator.waits_for_the_rollout()?;
        }
        initialised(&operator)
    })
}

/// Kubelets that ask for their serving certificates get them, and `kubectl logs` works from then on. A volume gets its
/// labels in the create itself: the apiserver reaches the webhook.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn kubelets_get_certificates_and_volumes_their_labels() -> Result<()> {
    let options = MachinesOptions { kubelets: "serverTLSBootstrap: true", ..MachinesOptions::default() };
    on_machines("kubelets_get_certificates_and_volumes_their_labels", options, prepare, async |operator| {
        let values = json!({
            "controllers": ["*", "kubelet-serving-csr", "persistent-volume-label"],
            "webhooks": ["persistent-volume-label"],
        });
        let (_mock, cloud) = operator.installs_with_a_cloud_outside(&values).await?;
        let logs = format!("kubectl -n kube-system logs daemonset/{RELEASE} -c ccm-host --tail=-1");
        let refused = operator.types(&logs).map_err(|error| format!("{error:#}")).err().unwrap_or_default();
        ensure!(refused.contains("tls: internal error"), "without a certificate, logs say {refused:?}");
        wait::until("requests that say why they wait", async || {
            let events = operator.types("kubectl get events -A -o wide")?;
            Ok(events.contains("KubeletServingCertificateWaiting").then_some(()))
        })
        .await?;
        // The mock tells what its operator wrote, and nothing that a kubelet could have written.
        operator.types(&format!(
            "{} --set extraArgs.kubelet-serving-csr-trust-node-readers=true",
            helm("upgrade")
        ))?;
        operator.waits_for_the_rollout()?;
        wait::until("logs", async || Ok(operator.types(&logs).ok().filter(|log| log.contains("leads"))))
            .await?;
        let ca = operator.machines.control_plane.dir().join("ca.crt");
        let verified = operator.types(&format!(
            "curl --silent --show-error --cacert {} --output /dev/null --write-out '%{{http_code}}' https://10.77.0.12:10250/healthz",
            ca.display()
        ))?;
        ensure!(verified == "401", "the kubelet answers a stranger {verified}");

        let disk = json!({
            "id": "vol-1", "plugin": "kubernetes.io/aws-ebs", "zones": ["zone-a"], "region": "", "labels": {},
        });
        cloud.door().put_volume(&serde_json::from_value(disk)?).await?;
        operator.writes("volume.yaml", VOLUME)?;
        // One that is made before the apiserver knows the webhook gets its labels a moment later.
        wait::until("a volume that has its labels when it is made", async || {
            let made = operator.types("kubectl create -f volume.yaml -o json")?;
            Ok(made.contains(r#""topology.kubernetes.io/zone": "zone-a""#).then_some(()))
        })
        .await
    })
}

const VOLUME: &str = "
apiVersion: v1
kind: PersistentVolume
metadata: {generateName: disk-}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  awsElasticBlockStore: {volumeID: vol-1}
";

/// Also of one whose program was killed: the kernel ends the room.
#[tokio::test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
async fn nothing_is_left_of_a_cluster_that_was_killed() -> Result<()> {
    tokio::task::spawn_blocking(test_cluster::machines::build).await??;
    let program = test_cluster::program("machines")?;
    let log = tempfile::NamedTempFile::new()?;
    let mut cluster =
        Process::start("machines", &program, &["1".to_owned(), "0".to_owned()], &[], log.path())?;
    let marker = format!("{INSIDE}={}", cluster.id());
    wait::until("a machine", async || Ok(cluster.output().contains("nsenter").then_some(())))
        .await
        .with_context(|| cluster.tail())?;
    ensure!(processes(&marker)? > 5, "a cluster has more processes");
    cluster.kill()?;
    wait::until("the end of the last process", async || Ok((processes(&marker)? == 0).then_some(()))).await
}

/// Where two run at once, too: their machines have the same names.
#[tokio::test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
async fn the_shell_that_a_cluster_prints_is_in_that_cluster() -> Result<()> {
    tokio::task::spawn_blocking(test_cluster::machines::build).await??;
    let program = test_cluster::program("machines")?;
    let folder = tempfile::tempdir()?;
    let mut clusters = Vec::new();
    for number in ["1", "2"] {
        let arguments = ["1".to_owned(), "0".to_owned()];
        clusters.push(Process::start("machines", &program, &arguments, &[], &folder.path().join(number))?);
    }
    let mut shells = Vec::new();
    for cluster in &clusters {
        let printed = async || {
            let output = cluster.output();
            Ok(output.lines().find(|line| line.starts_with("nsenter")).map(str::to_owned))
        };
        shells.push(wait::until("a machine", printed).await.with_context(|| cluster.tail())?);
    }
    for (cluster, shell) in clusters.iter().zip(shells) {
        // The first process of a room knows who keeps it open.
        let typed = format!("{shell} -c 'tr \\\\0 \\\\n </proc/1/environ'");
        let ran = std::process::Command::new("sh").args(["-c", &typed]).output()?;
        let said = String::from_utf8_lossy(&ran.stdout);
        let own = format!("{INSIDE}={}", cluster.id());
        ensure!(said.lines().any(|line| line == own), "{typed}: {own} is not in\n{said}\n{ran:?}");
    }
    Ok(())
}

/// How many processes have this in their environment.
fn processes(marker: &str) -> Result<usize> {
    let all = fs::read_dir("/proc")?.flatten();
    // Some end while they are looked at.
    let environments = all.filter_map(|process| fs::read(process.path().join("environ")).ok());
    Ok(environments.filter(|one| one.split(|byte| *byte == 0).any(|part| part == marker.as_bytes())).count())
}
