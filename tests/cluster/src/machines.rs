//! A cluster of machines: real kubelets with containers and kube-proxy, kube-controller-manager and a scheduler, around
//! a real etcd and kube-apiserver.
//!
//! In: [`MachinesOptions`]. Out: [`Machines`], whose nodes have registered and wait for a cloud controller manager. A
//! machine is a network namespace with containerd in it; they share a switch, pods reach each other without SNAT, and
//! the apiserver is at the switch's address, outside of all machines, as is CoreDNS.
//!
//! It exists only in a room ([`in_a_room`]): namespaces of its own, which end with whoever made them and leave nothing.

use std::{
    env, fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use control_plane::{Assets, ControlPlane};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{Process, wait};

const ROOM: &str = include_str!("machines/room.sh");
const MACHINE: &str = include_str!("machines/machine.sh");
const PAUSE: &str = include_str!("machines/pause.Containerfile");
/// Set in a room, to the process that keeps it open.
pub const INSIDE: &str = "CCM_TEST_ROOM";
/// The room's own file system.
const FOLDER: &str = "/mnt";
/// Where containerd puts containers that are given no other group.
const GROUP: &str = "k8s.io";
/// Debian's packages with the programs that are needed.
const NEEDED: [(&str, &str); 14] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("sysctl", "procps"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("buildah", "buildah"),
    ("busybox", "busybox-static"),
    ("musl-gcc", "musl-tools"),
    ("curl", "curl"),
    ("go", "golang"),
    ("rustup", "rustup"),
];
/// What machines do, on a small scale.
const PROBE: &str = "
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/lower /mnt/upper /mnt/work /mnt/both
    mount -t overlay overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work /mnt/both
    ip link add switch type bridge
    ip link add port type veth peer name eth0
    iptables -t nat -L
    sysctl -qw net.ipv4.ip_forward=1
    groups=/sys/fs/cgroup
    if [ -d $groups/memory ]; then groups=$groups/memory; fi
    # Several may look at once, each as process 1 of its room.
    rmdir $(mktemp --directory $groups/probe-XXXXXX)";
/// Generous, for loaded machines: alone, it takes about seven seconds.
const START: Duration = Duration::from_secs(120);

/// Why there can be no cluster of machines here, in one line.
pub fn missing() -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let there = |program: &str| env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let mut packages: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !there(program)).map(|(_, package)| *package).collect();
    packages.dedup();
    if !rustix::process::geteuid().is_root() {
        return Some("a cluster of machines needs root".to_owned());
    }
    if !packages.is_empty() {
        return Some(format!("a cluster of machines needs {}", packages.join(", ")));
    }
    let room = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-euc", PROBE];
    let made = Command::new("unshare").args(room).stdout(Stdio::null()).stderr(Stdio::null()).status();
    (!made.is_ok_and(|status| status.success())).then(|| {
        "a cluster of machines needs namespaces, file systems, networks and cgroups of its own, which are refused here"
            .to_owned()
    })
}

/// Runs `body` in a room: runs this program again there, with `arguments`. Outside it only calls `prepare`, since the
/// room has no network, and the result is that of the program in the room.
pub fn in_a_room<F: Future<Output = Result<()>>>(
    arguments: &[&str],
    prepare: impl FnOnce() -> Result<()>,
    body: impl FnOnce() -> F,
) -> Result<()> {
    if env::var_os(INSIDE).is_some() {
        return tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(body());
    }
    if let Some(missing) = missing() {
        anyhow::bail!("{missing}");
    }
    build()?;
    prepare()?;
    let mut room = Command::new("sh")
        .args(["-c", ROOM, "room", GROUP])
        .arg(env::current_exe()?)
        .args(arguments)
        .env(INSIDE, std::process::id().to_string())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run sh for the room")?;
    let _held_open = room.stdin.take();
    let status = room.wait()?;
    ensure!(status.success(), "the room ended with {status}; its output stands above");
    Ok(())
}

/// Builds what a cluster of machines runs, unless it is built.
pub fn build() -> Result<()> {
    Assets::find()?;
    Assets::machines()?;
    Assets::dns()?;
    pause()?;
    Ok(())
}

/// The archive of the image that stands in for pause.
fn pause() -> Result<PathBuf> {
    let folder = programs::target().join("images");
    let archive = folder.join("pause.tar");
    fs::create_dir_all(&folder)?;
    let lock = fs::File::create(folder.join("pause.lock"))?;
    lock.lock()?;
    let recipe = folder.join("pause.Containerfile");
    if archive.exists() && fs::read_to_string(&recipe).is_ok_and(|made_from| made_from == PAUSE) {
        return Ok(archive);
    }
    fs::write(recipe, PAUSE)?;
    let script = r#"cp "$(command -v busybox)" "$1/busybox"
        buildah bud --quiet --isolation chroot --file "$1/pause.Containerfile" --tag localhost/pause:1 "$1" >/dev/null
        buildah push --quiet localhost/pause:1 "oci-archive:$1/pause.tar:localhost/pause:1" >/dev/null"#;
    let status = Command::new("sh").args(["-euc", script, "pause"]).arg(&folder).status()?;
    ensure!(status.success(), "the image pause cannot be made ({status})");
    Ok(archive)
}

/// How many machines, and of what kind.
#[derive(Debug, Clone)]
pub struct MachinesOptions {
    /// Machines with the label and the taint of control plane nodes.
    pub control_plane: u8,
    /// Other machines.
    pub workers: u8,
    /// More lines of the kubelets' configuration.
    pub kubelets: &'static str,
}

impl Default for MachinesOptions {
    fn default() -> Self {
        Self { control_plane: 1, workers: 1, kubelets: "" }
    }
}

/// A running cluster of machines. Ends with the room.
#[expect(missing_debug_implementations, reason = "kube's client has none")]
pub struct Machines {
    /// The etcd and the apiserver.
    pub control_plane: ControlPlane,
    /// The administrator's client.
    pub client: Client,
    programs: PathBuf,
    machines: Vec<Machine>,
    _around: Vec<Process>,
}

/// One machine.
#[derive(Debug)]
pub struct Machine {
    /// The name of its Node.
    pub name: String,
    /// Its files.
    home: PathBuf,
    /// Its address, and its kubelet's.
    pub address: Ipv4Addr,
    /// Its port of the switch.
    port: String,
    kubelet: Process,
}

/// The switch: the machines' gateway, and where the apiserver listens.
pub const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

impl MachinesOptions {
    /// One machine of the control plane, and these workers.
    pub fn of_workers(workers: u8) -> Self {
        Self { workers, ..Self::default() }
    }

    /// Starts it, and returns when all nodes have registered and are ready. Only in a room.
    pub async fn start(&self) -> Result<Machines> {
        ensure!(env::var_os(INSIDE).is_some(), "a cluster of machines exists only in a room: see in_a_room");
        run(OUTSIDE)?;
        let control_plane = control_plane::Options::default().root(FOLDER).machines(SWITCH).start().await?;
        let client = control_plane.admin_client()?;
        let programs = Assets::machines()?;
        let around = around(&control_plane, &programs)?;
        let count = self.control_plane + self.workers;
        let mut machines = Vec::new();
        for number in 1..=count {
            let name = if number <= self.control_plane {
                format!("control-plane-{number}")
            } else {
                format!("worker-{}", number - self.control_plane)
            };
            wire(&name, number, count)?;
            machines.push(machine(&control_plane, &programs, name, number, self.kubelets)?);
        }
        serve_names(&client).await?;
        let all = Machines { control_plane, client, programs, machines, _around: around };
        all.registered(usize::from(self.control_plane)).await?;
        Ok(all)
    }
}

/// The switch, and a client that is not on the machines' network.
const OUTSIDE: &str = "
    ip link add switch type bridge && ip addr add 10.77.0.1/24 dev switch && ip link set switch up
    sysctl -qw net.ipv4.ip_forward=1
    ip netns add client && ip -n client link set lo up
    ip link add to-client type veth peer name eth0 netns client
    ip addr add 172.30.0.1/24 dev to-client && ip link set to-client up
    ip -n client addr add 172.30.0.2/24 dev eth0 && ip -n client link set eth0 up
    ip -n client route add default via 172.30.0.1";

/// The processes that run beside the apiserver.
fn around(control_plane: &ControlPlane, programs: &Path) -> Result<Vec<Process>> {
    let folder = control_plane.dir();
    let of = |name: &str, more: &[String]| {
        let kubeconfig = control_plane.kubeconfig_for(&format!("system:{name}"), &[])?;
        let mut flags =
            vec![format!("--kubeconfig={}", kubeconfig.display()), "--leader-elect=false".to_owned()];
        flags.extend_from_slice(more);
        Process::start(name, &programs.join(name), &flags, &[], &folder.join(format!("{name}.log")))
    };
    let file = |name: &str| folder.join(name).display().to_string();
    let manager = [
        "--cloud-provider=external".to_owned(),
        "--use-service-account-credentials".to_owned(),
        format!("--service-account-private-key-file={}", file("service-account.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        // A silent kubelet is noticed sooner than by default, since it also reports more often.
        "--node-monitor-grace-period=10s".to_owned(),
        "--node-monitor-period=1s".to_owned(),
    ];
    let corefile = folder.join("Corefile");
    let administrator = control_plane.admin_kubeconfig();
    fs::write(
        &corefile,
        format!(
            ". {{\n errors\n kubernetes cluster.local {{\n kubeconfig {}\n }}\n}}\n",
            administrator.display()
        ),
    )?;
    let dns = Process::start(
        "coredns",
        &Assets::dns()?.join("coredns"),
        &["-conf".to_owned(), corefile.display().to_string()],
        &[],
        &folder.join("coredns.log"),
    )?;
    Ok(vec![of("kube-controller-manager", &manager)?, of("kube-scheduler", &[])?, dns])
}

/// Leads the address that kubelets tell their pods to CoreDNS.
async fn serve_names(client: &Client) -> Result<()> {
    let ports = json!([
        { "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
    ]);
    let service = serde_json::from_value(json!({
        "metadata": { "name": "kube-dns" }, "spec": { "clusterIP": "10.0.0.10", "ports": ports },
    }))?;
    let slice = serde_json::from_value(json!({
        "metadata": { "name": "kube-dns", "labels": { "kubernetes.io/service-name": "kube-dns" } },
        "addressType": "IPv4", "endpoints": [{ "addresses": [SWITCH] }], "ports": ports,
    }))?;
    let system = "kube-system";
    Api::<Service>::namespaced(client.clone(), system).create(&PostParams::default(), &service).await?;
    Api::<EndpointSlice>::namespaced(client.clone(), system).create(&PostParams::default(), &slice).await?;
    Ok(())
}

/// The machine's network: an address on the switch, and everybody's routes to its pods.
fn wire(name: &str, number: u8, count: u8) -> Result<()> {
    run(&format!(
        "ip netns add {name}
        ip link add port-{number} type veth peer name eth0 netns {name}
        ip link set port-{number} master switch up
        ip -n {name} link set lo up
        ip -n {name} addr add 10.77.0.{host}/24 dev eth0
        ip -n {name} link set eth0 up
        ip -n {name} route add default via {SWITCH}
        ip route add 10.244.{number}.0/24 via 10.77.0.{host}
        for other in $(seq {count}); do
            [ $other = {number} ] || ip -n {name} route add 10.244.$other.0/24 via 10.77.0.$((other + 10))
        done",
        host = number + 10,
    ))
}

fn machine(
    control_plane: &ControlPlane,
    programs: &Path,
    name: String,
    number: u8,
    kubelets: &str,
) -> Result<Machine> {
    let address = Ipv4Addr::new(10, 77, 0, number + 10);
    // A path that no other cluster has: outside, where several run, it tells whose the kubelet is.
    let home = control_plane.dir().with_extension(&name);
    fs::create_dir(&home)?;
    let kubelet = control_plane.kubeconfig_for(&format!("system:node:{name}"), &["system:nodes"])?;
    fs::copy(kubelet, home.join("kubelet.kubeconfig"))?;
    fs::copy(control_plane.kubeconfig_for("system:kube-proxy", &[])?, home.join("proxy.kubeconfig"))?;
    fs::write(home.join("ca.crt"), control_plane.ca_pem())?;
    let environment = [
        ("NAME", name.clone()),
        ("PROGRAMS", programs.display().to_string()),
        ("HOME_DIR", home.display().to_string()),
        ("POD_CIDR", format!("10.244.{number}.0/24")),
        ("ARCHIVES", pause()?.display().to_string()),
        ("KUBELET_CONFIG", kubelets.to_owned()),
        ("KUBELET", format!("--node-ip={address} --hostname-override={name}")),
    ];
    let environment: Vec<_> =
        environment.into_iter().map(|(variable, value)| (variable.to_owned(), value)).collect();
    // `ip netns exec` would hide the cgroups.
    let arguments = [
        &format!("--net=/run/netns/{name}"),
        "unshare",
        "--mount",
        "--uts",
        "--propagation",
        "private",
        "sh",
        "-c",
    ];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
    arguments.push(MACHINE.to_owned());
    let kubelet =
        Process::start(&name, Path::new("nsenter"), &arguments, &environment, &home.join("kubelet.log"))?;
    Ok(Machine { name, home, address, port: format!("port-{number}"), kubelet })
}

fn run(script: &str) -> Result<()> {
    let status = Command::new("sh").args(["-euc", script]).status()?;
    ensure!(status.success(), "{status}: {script}");
    Ok(())
}

impl Machines {
    /// The machines: those of the control plane first.
    pub fn all(&self) -> &[Machine] {
        &self.machines
    }

    /// A command on a machine, as its root, with the cluster's `kubectl` and an administrator's kubeconfig.
    pub fn on(&self, machine: &Machine, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--uts", "--net", "--target"]).arg(machine.kubelet.id().to_string());
        command.arg("--").arg(program);
        let path = env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        command.env("KUBECONFIG", self.control_plane.admin_kubeconfig());
        command
    }

    /// Pulls a machine's plug.
    pub fn cut_off(&self, machine: &Machine) -> Result<()> {
        run(&format!("ip link set {} down", machine.port))
    }

    /// Puts it back.
    pub fn plug_in(&self, machine: &Machine) -> Result<()> {
        run(&format!("ip link set {} up", machine.port))
    }

    /// A command of a client outside of the cluster, whose address is 172.30.0.2.
    pub fn outside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", "client", program]);
        command
    }

    /// What a person outside of the room types to get a shell on a machine.
    pub fn shell(&self, machine: &Machine) -> String {
        format!(
            // Not even the shell that it is typed in has this among its arguments.
            "nsenter --all --target $(pgrep -f '[k]ubelet --config={}/') env KUBECONFIG={} PATH={}:$PATH sh",
            machine.home.display(),
            self.control_plane.admin_kubeconfig().display(),
            self.programs.display(),
        )
    }

    async fn registered(&self, of_control_plane: usize) -> Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        for (at, machine) in self.machines.iter().enumerate() {
            let is_ready = async || {
                let node = nodes.get_opt(&machine.name).await?;
                let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
                Ok(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True").then_some(()))
            };
            wait::until_within(START, &format!("{} is ready", machine.name), is_ready)
                .await
                .with_context(|| machine.kubelet.tail())?;
            if at < of_control_plane {
                // A kubelet may not give itself this label: an installer does.
                let key = "node-role.kubernetes.io/control-plane";
                let exclude = "node.kubernetes.io/exclude-from-external-load-balancers";
                let taint = json!({ "key": key, "effect": "NoSchedule" });
                let mut taints = nodes.get(&machine.name).await?.spec.and_then(|spec| spec.taints);
                let taints = taints.get_or_insert_default();
                taints.push(serde_json::from_value(taint)?);
                let patch = json!({
                    "metadata": { "labels": { key: "", exclude: "" } }, "spec": { "taints": taints },
                });
                nodes.patch(&machine.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A file system of groups as both versions have it, in which a room has run.
    const GROUPS: &str = r#"mount -t tmpfs tmpfs /sys/fs/cgroup
        cd /sys/fs/cgroup
        mkdir -p k8s.io/pod/container memory/k8s.io/pod pids/k8s.io system.slice/other
        # A group is busy for a while.
        touch memory/k8s.io/pod/busy
        { sleep 0.5; rm memory/k8s.io/pod/busy; } &
        # It ends with its standard input.
        mkfifo open
        exec 3<>open
        sh -c "$ROOM" room "$GROUP" true <&3
        find . -type d | sort | xargs"#;

    #[test]
    fn the_groups_of_either_version_go_with_the_room() {
        let there = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount", "sh", "-euc", script]);
            command.env("ROOM", ROOM).env("GROUP", GROUP).output()
        };
        if !there("mount -t tmpfs tmpfs /sys/fs/cgroup").is_ok_and(|ran| ran.status.success()) {
            eprintln!("not checked: nothing can be mounted here");
            return;
        }
        let ran = there(GROUPS).unwrap();
        let left = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(left.trim(), ". ./memory ./pids ./system.slice ./system.slice/other", "{ran:?}");
    }
}
