//! What a person does by the docs, on a cluster of machines: real kubelets, containers from our images, the real Helm.
//!
//! In: `docs/operate.md`, whose commands are typed as they stand. The cluster needs root and Debian's packages, and its
//! programs are built once, which takes minutes; `.ci/run` runs these tests where all that is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use deploy_tests::Helm;
use serde_json::{Value, json};
use test_cluster::{
    Cloud, Process,
    machines::{INSIDE, Machines, MachinesOptions, SWITCH, in_a_room},
    wait,
};

const PAGE: &str = include_str!("../../../docs/operate.md");
const RELEASE: &str = "cloud-controller-manager";

/// Runs the body beside a cluster of one control plane machine and some workers.
fn on_machines(test: &str, workers: u8, body: impl AsyncFnOnce(Person) -> Result<()>) -> Result<()> {
    in_a_room(&["--exact", test, "--ignored", "--nocapture"], prepare, async || {
        body(Person::new(MachinesOptions { control_plane: 1, workers }.start().await?)?).await
    })
}

/// What needs the network, or a compiler: once, since another test's machines read what it writes.
fn prepare() -> Result<()> {
    static PREPARED: Mutex<bool> = Mutex::new(false);
    let mut is_prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_prepared {
        return Ok(());
    }
    Helm::built()?;
    test_cluster::program("ccmctl")?;
    // `dist` would take a quarter of an hour.
    let status = Command::new(programs::root().join("deploy/images/build")).env("PROFILE", "dev").status()?;
    ensure!(status.success(), "the images cannot be built ({status})");
    *is_prepared = true;
    Ok(())
}

/// An administrator who sits at a machine of the control plane, in a folder with the checkout's files.
struct Person {
    machines: Machines,
    folder: PathBuf,
}

impl Person {
    fn new(machines: Machines) -> Result<Self> {
        let folder = machines.control_plane.dir().join("home");
        fs::create_dir(&folder)?;
        for name in ["deploy", "target"] {
            let there = if name == "target" { programs::target() } else { programs::root().join(name) };
            std::os::unix::fs::symlink(there, folder.join(name))?;
        }
        Ok(Self { machines, folder })
    }

    /// Types commands, and returns what they print.
    fn types(&self, commands: &str) -> Result<String> {
        let machine = self.machines.all().first().context("no machine")?;
        let mut shell = self.machines.on(machine, "sh");
        let target = programs::target();
        let start = format!("cd {}; PATH={1}/go:{1}/debug:$PATH\n", self.folder.display(), target.display());
        let done = shell
            .args(["-euc", &format!("{start}{commands}")])
            .env("HOME", &self.folder)
            .output()
            .context("cannot run a shell on the machine")?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{}: {commands}\n{said}{complaint}", done.status);
        Ok(said)
    }

    fn writes(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.join(name), text)?)
    }

    /// Objects, as `kubectl get` shows them.
    fn sees(&self, what: &str) -> Result<Vec<Value>> {
        let list: Value = serde_json::from_str(&self.types(&format!("kubectl get {what} -o json"))?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The pods that are ready, with the host's arguments.
    fn ready_hosts(&self) -> Result<Vec<String>> {
        let pods = self.sees("pods -n kube-system -l app.kubernetes.io/name=cloud-controller-manager")?;
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut all = conditions.into_iter().flatten();
            pod["metadata"]["deletionTimestamp"].is_null()
                && all.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        Ok(pods.iter().filter(is_ready).map(|pod| pod["spec"]["containers"][0]["args"].to_string()).collect())
    }

    async fn waits_for_host(&self, with: &str) -> Result<()> {
        wait::until(&format!("a ready host with {with}"), async || {
            Ok(self.ready_hosts()?.iter().any(|arguments| arguments.contains(with)).then_some(()))
        })
        .await
        .with_context(|| {
            self.types("kubectl -n kube-system get pods -o wide; kubectl get events -A | tail")
                .unwrap_or_default()
        })
    }
}

/// The blocks of a section, each with its language, without the indentation of the list they stand in.
fn blocks(section: &str) -> Result<Vec<(&'static str, String)>> {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).with_context(|| format!("no {section}"))?;
    let section = rest.split("\n## ").next().unwrap_or_default();
    let mut blocks = Vec::new();
    let mut lines = section.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let inner = lines.by_ref().take_while(|line| line.trim() != "```");
        let text: Vec<&str> = inner.map(|line| line.get(indent..).unwrap_or_default()).collect();
        blocks.push((language, text.join("\n")));
    }
    ensure!(!blocks.is_empty(), "no block in {section}");
    Ok(blocks)
}

/// From nothing to a Service with an address, an upgrade, one that fails, and the removal.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn an_operator_follows_the_page() -> Result<()> {
    on_machines("an_operator_follows_the_page", 1, async |person| {
        for (language, text) in blocks("Install")? {
            // A registry that the nodes can reach is the reader's; here the images lie on the nodes.
            let text = text.replace("registry.example/", "localhost/");
            if language == "yaml" {
                person.writes("values.yaml", &text)?;
            } else {
                eprintln!("$ {text}\n{}", person.types(&text)?);
            }
        }
        initialised(&person)?;
        let log = person
            .types(&format!("kubectl -n kube-system logs daemonset/{RELEASE} -c ccm-host --tail=-1"))?;
        ensure!(log.contains("leads") && log.contains("started"), "{log}");
        let services = person.sees("services")?;
        ensure!(
            services.iter().any(|one| one["status"]["loadBalancer"]["ingress"][0]["ip"].is_string()),
            "{services:#?}"
        );
        let explained = person.types("ccmctl explain node worker-1; ccmctl provider status")?;
        ensure!(explained.contains("worker-1"), "{explained}");

        let (_, health) = blocks("What health says")?.remove(0);
        let health =
            person.types(&format!("{}\nkill $!", health.replace("POD", &format!("daemonset/{RELEASE}"))))?;
        ensure!(health.contains("readyz check passed"), "{health}");

        let values = fs::read_to_string(person.folder.join("values.yaml"))?;
        person.writes("values.yaml", &format!("{values}\nlogVerbosity: 3\n"))?;
        let (_, upgrade) = blocks("Upgrade")?.remove(0);
        person.types(&upgrade)?;
        person.waits_for_host("--v=3").await?;

        let hopeless = upgrade.replace("--values", "--set image.tag=9.9.9 --values").replace("3m", "10s");
        let said = person.types(&hopeless)?;
        ensure!(said.contains("Rollback was a success"), "{said}");
        person.waits_for_host("--v=3").await?;

        let (_, removal) = blocks("Remove")?.remove(0);
        person.types(&removal)?;
        let pods = "kubectl -n kube-system get pods -o name";
        wait::until("no pod", async || Ok(person.types(pods)?.is_empty().then_some(()))).await?;
        initialised(&person)?;
        let service = person.types("kubectl get service web -o json")?;
        ensure!(service.contains("load-balancer-cleanup") && service.contains("192.0.2."), "{service}");
        Ok(())
    })
}

fn initialised(person: &Person) -> Result<()> {
    for node in person.sees("nodes")? {
        let taints = node["spec"]["taints"].to_string();
        let has_id = node["spec"]["providerID"].as_str().is_some_and(|id| id.starts_with("mock://"));
        ensure!(has_id && !taints.contains("uninitialized"), "{node:#}");
    }
    Ok(())
}

/// One replica runs, the other finds no free node: an upgrade must not wait for that one.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn a_deployment_of_two_replicas_for_one_node_can_be_upgraded() -> Result<()> {
    on_machines("a_deployment_of_two_replicas_for_one_node_can_be_upgraded", 0, async |person| {
        let (_, images) = blocks("Install")?.remove(0);
        person.types(&images)?;
        let image = |name: &str| json!({ "repository": format!("localhost/{name}"), "tag": "0.1.0" });
        let values = json!({
            "kind": "Deployment", "replicaCount": 2, "image": image("ccm-host"),
            "providers": { "mock": { "image": image("provider-mock") } },
        });
        person.writes("values.yaml", &values.to_string())?;
        let helm = |verb: &str| {
            let chart = Path::new("deploy/chart/ccm-host").display();
            format!("helm {verb} {RELEASE} {chart} --namespace kube-system --values values.yaml")
        };
        person.types(&helm("install"))?;
        person.waits_for_host("--v=2").await?;
        person.types(&format!("{} --set logVerbosity=3", helm("upgrade")))?;
        person.waits_for_host("--v=3").await?;
        ensure!(person.ready_hosts()?.len() == 1, "one node was meant to have room for one");
        Ok(())
    })
}

/// Each pod answers with the address of whoever asks it, and with its own name.
const PODS: &str = r##"
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {who: "#!/bin/sh\necho; echo $REMOTE_ADDR $(busybox hostname)"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]
      containers:
        - name: web
          image: localhost/pause:1
          imagePullPolicy: Never
          args: [httpd, -f, -p, "0.0.0.0:8080", -h, /www]
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
          volumeMounts: [{name: web, mountPath: /www/cgi-bin}]
      volumes: [{name: web, configMap: {name: web, defaultMode: 0755}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"##;

impl Person {
    /// Installs the chart with a mock that is not in the cluster: it is the router in front of the machines, and carries
    /// the traffic of its balancers.
    async fn installs_with_a_cloud_outside(&self) -> Result<(Process, Cloud)> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec![SWITCH.to_string()])?.self_signed(&key)?;
        for (name, pem) in [("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem())] {
            self.writes(name, &pem)?;
        }
        let file = |name: &str| self.folder.join(name).display().to_string();
        let flags = [
            format!("--endpoint=tcp://{SWITCH}:8443"),
            format!("--tls-cert-file={}", file("tls.crt")),
            format!("--tls-key-file={}", file("tls.key")),
            format!("--tls-client-ca-file={}", file("tls.crt")),
            "--admin-address=127.0.0.1:0".to_owned(),
            format!("--admin-address-file={}", file("door")),
            "--carry-traffic".to_owned(),
        ];
        let program = programs::target().join("images/provider-mock");
        let process = Process::start("provider-mock", &program, &flags, &[], &self.folder.join("mock.log"))?;
        let cloud =
            wait::until("the door of the cloud", async || Ok(Cloud::behind(&self.folder.join("door")).ok()))
                .await
                .with_context(|| process.tail())?;
        for machine in self.machines.all() {
            cloud.create_instance(&machine.name, "zone-a").await?;
            cloud.set_internal_ip(&machine.name, &machine.address.to_string()).await?;
        }
        let values = json!({
            "image": { "repository": "localhost/ccm-host", "tag": "0.1.0" },
            // By default no node goes that is younger than five minutes.
            "extraArgs": { "node-deletion-grace": "1s" },
            "providers": { "mock": { "endpoint": format!("https://{SWITCH}:8443"), "tlsSecretName": "mock" } },
        });
        self.writes("values.yaml", &values.to_string())?;
        let (_, images) = blocks("Install")?.remove(0);
        self.types(&images)?;
        self.types(
            "kubectl -n kube-system create secret generic mock \
             --from-file=ca.crt=tls.crt --from-file=tls.crt --from-file=tls.key",
        )?;
        self.types(&format!(
            "helm install {RELEASE} deploy/chart/ccm-host --namespace kube-system --values values.yaml
             kubectl -n kube-system rollout status daemonset/{RELEASE} --timeout=2m
             kubectl wait node --all --for=jsonpath='{{.spec.providerID}}' --timeout=60s"
        ))?;
        Ok((process, cloud))
    }

    /// What a client outside reads from the Service, if it is answered.
    fn asks(&self, address: &str) -> Option<String> {
        let url = format!("http://{address}/cgi-bin/who");
        let curl = self.machines.client("curl").args(["--silent", "--max-time", "2", &url]).output().ok()?;
        curl.status.success().then(|| String::from_utf8_lossy(&curl.stdout).trim().to_owned())
    }

    /// Waits until the answer is as wanted, and returns it.
    async fn is_answered(&self, address: &str, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let mut last = None;
        wait::until(&format!("an answer {what} at {address}"), async || {
            last = self.asks(address);
            Ok(last.clone().filter(|answer| wanted(answer)))
        })
        .await
        .with_context(|| format!("last: {last:?}"))
    }
}

/// A client outside sees pods, the pods see the client, and neither loses the other with a node, or with the mode of the
/// address. What a deleted balancer leaves is silent.
#[test]
#[ignore = "needs root, packages and minutes; .ci/run runs it"]
fn a_client_reaches_pods_through_a_balancer() -> Result<()> {
    on_machines("a_client_reaches_pods_through_a_balancer", 2, async |person| {
        let (_mock, cloud) = person.installs_with_a_cloud_outside().await?;
        person.writes("pods.yaml", PODS)?;
        person.types(
            "kubectl apply -f pods.yaml
             kubectl rollout status deployment/web --timeout=60s
             kubectl wait service web --for=jsonpath='{.status.loadBalancer.ingress}' --timeout=60s",
        )?;
        let address =
            person.types("kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'")?;
        person
            .is_answered(&address, "to the client itself", |answer| answer.starts_with("172.30.0.2 web-"))
            .await?;

        person.types("kubectl annotate service web mock.cloudprovider.ccm/ip-mode=Proxy")?;
        person
            .types(r#"kubectl patch service web --patch '{"spec": {"externalTrafficPolicy": "Cluster"}}'"#)?;
        person.is_answered(&address, "to a proxy", |answer| answer.starts_with("10.")).await?;
        person.types("kubectl annotate service web mock.cloudprovider.ccm/ip-mode-")?;
        person
            .types(r#"kubectl patch service web --patch '{"spec": {"externalTrafficPolicy": "Local"}}'"#)?;
        person
            .is_answered(&address, "to the client again", |answer| answer.starts_with("172.30.0.2 "))
            .await?;

        // The machine of a pod goes: the kubelet first, as its instance is terminated.
        let lost = &person.machines.all()[1];
        person.machines.on(lost, "sh").args(["-c", "ip link set eth0 down"]).status()?;
        cloud.terminate_instance(&lost.name).await?;
        for _ in 0..3 {
            person
                .is_answered(&address, "from the other machine", |answer| answer.starts_with("172.30.0.2 "))
                .await?;
        }
        wait::until(
            "the end of the lost node",
            async || Ok((person.sees("nodes")?.len() == 2).then_some(())),
        )
        .await?;
        person.is_answered(&address, "without the node", |answer| answer.starts_with("172.30.0.2 ")).await?;

        person.types("kubectl delete service web --timeout=60s")?;
        wait::until("silence", async || Ok(person.asks(&address).is_none().then_some(()))).await
    })
}

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

/// How many processes have this in their environment.
fn processes(marker: &str) -> Result<usize> {
    let all = fs::read_dir("/proc")?.flatten();
    // Some end while they are looked at.
    let environments = all.filter_map(|process| fs::read(process.path().join("environ")).ok());
    Ok(environments.filter(|one| one.split(|byte| *byte == 0).any(|part| part == marker.as_bytes())).count())
}
