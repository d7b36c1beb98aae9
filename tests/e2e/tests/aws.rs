//! The shipped host on a real control plane, the published AWS provider behind the bridge, and an emulated AWS.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    aws::{Aws, Balancer, Instance, Kind, Route, ensured, network, settled},
    event, node, node_count, node_gone, nothing_was_forbidden, service, service_gone, shadow_diff,
};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use test_cluster::{
    Cluster, Options,
    nodes::{addresses, as_registered, has_taint, is_uninitialized, label, register, set_ready},
    services::{create, ingress, load_balancer},
    wait,
};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A cluster with a node in each of two zones, initialised and ready.
struct World {
    cluster: Cluster,
    aws: Aws,
    machines: Vec<Instance>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(flags: &[&str]) -> Result<Self> {
        Self::with(Kind::Bridged, flags).await
    }

    async fn with(kind: Kind, flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let aws = Aws::start(folder.path()).await?;
        Self::at(aws, folder, kind, flags).await
    }

    async fn at(aws: Aws, folder: tempfile::TempDir, kind: Kind, flags: &[&str]) -> Result<Self> {
        let options = flags.iter().fold(Options::default(), |options, flag| options.host_flag(*flag));
        let cluster = options
            .provider_under_test(aws.provider(kind))
            .host_flag("--node-monitor-period=500ms")
            .host_flag("--node-deletion-grace=0s")
            .host_flag("--node-deletion-confirmations=2")
            .start()
            .await?;
        let mut world = Self { cluster, aws, machines: Vec::new(), _folder: folder };
        world.join(0).await?;
        world.join(1).await?;
        Ok(world)
    }

    /// Launches an instance, whose kubelet registers the node.
    async fn join(&mut self, zone: usize) -> Result<()> {
        let machine = self.aws.launch(zone).await?;
        register(&self.cluster.client, as_registered(&machine.node)).await?;
        set_ready(&self.cluster.client, &machine.node, "True").await?;
        node(&self.cluster, &machine.node, "initialised", |node| !is_uninitialized(node)).await?;
        self.machines.push(machine);
        Ok(())
    }

    /// Waits until the only balancer has these ports, and all instances behind it.
    async fn balancer(&mut self, ports: &[u16]) -> Result<Balancer> {
        let what = format!("a balancer with the ports {ports:?}");
        let mut found = self.filled(&what, |all| all.len() == 1 && all[0].ports == ports).await?;
        Ok(found.remove(0))
    }

    /// Waits until there are so many balancers, each with all instances behind it.
    async fn balancers(&mut self, number: usize) -> Result<Vec<Balancer>> {
        self.filled(&format!("{number} balancers"), |all| all.len() == number).await
    }

    /// Waits until the balancers are as wanted, and all instances behind each.
    async fn filled(&mut self, what: &str, is: impl Fn(&[Balancer]) -> bool) -> Result<Vec<Balancer>> {
        let mut ids = Vec::from_iter(self.machines.iter().map(|machine| &machine.id));
        ids.sort();
        let mut seen = Vec::new();
        wait::until(&format!("{what}, with {ids:?} behind each"), async || {
            seen = self.aws.balancers().await?;
            seen.sort_by(|a, b| a.dns.cmp(&b.dns));
            let filled = seen.iter().all(|balancer| balancer.instances.iter().eq(ids.clone()));
            Ok((filled && is(&seen)).then(|| seen.clone()))
        })
        .await
        .with_context(|| format!("there is {seen:?}\n{:?}", self.cluster.parts()))
    }

    /// Waits until the host has nothing more to do for as many Services.
    async fn settled(&mut self, services: usize) -> Result<()> {
        wait::until(&format!("{services} Services are settled"), async || {
            Ok((settled(&self.cluster).await? == services).then_some(()))
        })
        .await
        .with_context(|| format!("{:?}", self.cluster.parts()))
    }

    /// Waits until the nodes let health checks in at these ports of kube-proxy.
    async fn checked(&mut self, ports: &[u16]) -> Result<()> {
        let mut seen = Vec::new();
        wait::until(&format!("health checks at {ports:?}"), async || {
            seen = self.aws.left().await?;
            let at = |port: &u16| seen.iter().any(|line| line.contains(&format!(" tcp {port}-{port} ")));
            Ok([10256, 10257].iter().filter(|port| at(port)).eq(ports).then_some(()))
        })
        .await
        .with_context(|| format!("{seen:#?}\n{:?}", self.cluster.parts()))
    }

    /// Waits until these are the routes.
    async fn routes(&mut self, wanted: &[Route]) -> Result<()> {
        let mut seen = Vec::new();
        wait::until(&format!("the routes {wanted:?}"), async || {
            seen = self.aws.routes().await?;
            seen.sort_by(|a, b| a.destination.cmp(&b.destination));
            Ok((seen == wanted).then_some(()))
        })
        .await
        .with_context(|| format!("there is {seen:?}\n{:?}", self.cluster.parts()))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn nodes_are_initialised_and_go_with_their_machines() -> Result<()> {
    initialised_and_gone(Kind::Bridged).await
}

async fn initialised_and_gone(kind: Kind) -> Result<()> {
    let mut world = World::with(kind, &[]).await?;
    for (zone, machine) in world.machines.iter().enumerate() {
        let node = node(&world.cluster, &machine.node, "there", |_| true).await?;
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        assert_eq!(id, Some(format!("aws:///{}/{}", machine.zone, machine.id).as_str()));
        assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some(world.aws.zones()[zone].as_str()));
        assert_eq!(label(&node, "topology.kubernetes.io/region"), Some("us-east-1"));
        assert_eq!(label(&node, "node.kubernetes.io/instance-type"), Some("t3.medium"));
        assert!(label(&node, "topology.k8s.aws/zone-id").is_some(), "{node:?}");
        assert_eq!(addresses(&node, "InternalIP"), [machine.address.as_str()]);
    }

    let ended = world.machines[0].clone();
    world.aws.terminate(&ended).await?;
    set_ready(&world.cluster.client, &ended.node, "Unknown").await?;

    node_gone(&world.cluster, &ended.node).await?;
    event(&world.cluster, &ended.node, "DeletingNode").await?;
    node(&world.cluster, &world.machines[1].node, "still there", |_| true).await?;
    nothing_was_forbidden(&world.cluster)
}

/// The host allocates the pod CIDRs and requests the routes; a terminated instance leaves a blackhole, which is
/// deleted, too.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn routes_lead_to_the_pods_of_nodes_and_go_with_them() -> Result<()> {
    routed(Kind::Bridged).await
}

async fn routed(kind: Kind) -> Result<()> {
    let flags = [
        "--controllers=*,nodeipam",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.244.0.0/16",
        "--route-reconciliation-period=1s",
    ];
    let mut world = World::with(kind, &flags).await?;
    let mut wanted = Vec::new();
    for machine in &world.machines {
        let node = node(&world.cluster, &machine.node, "the network available", has_network).await?;
        let destination = node.spec.and_then(|spec| spec.pod_cidr).context("a node has a pod CIDR")?;
        wanted.push(Route { destination, instance: machine.id.clone(), state: "active".to_owned() });
    }
    wanted.sort_by(|a, b| a.destination.cmp(&b.destination));
    world.routes(&wanted).await?;

    let ended = world.machines[0].clone();
    world.aws.terminate(&ended).await?;
    set_ready(&world.cluster.client, &ended.node, "Unknown").await?;

    node_gone(&world.cluster, &ended.node).await?;
    wanted.retain(|route| route.instance != ended.id);
    world.routes(&wanted).await?;
    nothing_was_forbidden(&world.cluster)
}

fn has_network(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|is| is.type_ == "NetworkUnavailable" && is.status == "False")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn a_stopped_machine_taints_its_node_until_it_runs_again() -> Result<()> {
    stopped_and_started(Kind::Bridged).await
}

async fn stopped_and_started(kind: Kind) -> Result<()> {
    let mut world = World::with(kind, &[]).await?;
    let stopped = world.machines[0].clone();
    world.aws.stop(&stopped).await?;
    set_ready(&world.cluster.client, &stopped.node, "Unknown").await?;
    node(&world.cluster, &stopped.node, "the shutdown taint", |node| has_taint(node, SHUTDOWN)).await?;

    world.aws.start_again(&stopped).await?;
    set_ready(&world.cluster.client, &stopped.node, "True").await?;
    node(&world.cluster, &stopped.node, "no shutdown taint", |node| !has_taint(node, SHUTDOWN)).await?;
    nothing_was_forbidden(&world.cluster)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn restarts_of_either_side_lose_nothing_and_make_nothing_twice() -> Result<()> {
    restarted(Kind::Bridged).await
}

async fn restarted(kind: Kind) -> Result<()> {
    let mut world = World::with(kind, &[]).await?;
    create(&world.cluster.client, load_balancer("web")).await?;
    let made = world.balancer(&[80]).await?;

    world.cluster.restart_provider_with(&[]).await?;
    world.join(0).await?;
    world.balancer(&[80]).await?;
    world.cluster.restart_host_with(&[]).await?;
    world.join(1).await?;
    world.balancer(&[80]).await?;
    world.cluster.restart_provider_with(&[]).await?;
    let ended = world.machines.remove(0);
    world.aws.terminate(&ended).await?;
    set_ready(&world.cluster.client, &ended.node, "Unknown").await?;
    node_gone(&world.cluster, &ended.node).await?;
    let left = world.balancer(&[80]).await?;

    assert_eq!(left.dns, made.dns);
    assert_eq!(world.aws.balancers().await?.len(), 1);
    delete(&world.cluster, "web").await?;
    assert_eq!(world.aws.balancers().await?, [], "the finalizer went before the balancer");
    nothing_was_forbidden(&world.cluster)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn a_changed_cloud_config_reaches_the_balancers_that_are_there() -> Result<()> {
    reconfigured(Kind::Bridged).await
}

async fn reconfigured(kind: Kind) -> Result<()> {
    let mut world = World::with(kind, &[]).await?;
    create(&world.cluster.client, network("web")).await?;
    world.balancer(&[80]).await?;
    world.checked(&[]).await?;
    // kube-proxy is asked whether a node serves, so that the nodes let the balancer in there.
    world.aws.configure("ClusterServiceLoadBalancerHealthProbeMode = Shared")?;
    world.cluster.restart_provider_with(&[]).await?;
    world.checked(&[10256]).await?;
    world.aws.configure("ClusterServiceSharedLoadBalancerHealthProbePort = 10257")?;
    // In the same pod.
    world.cluster.restart_provider_with(&[]).await?;
    world.cluster.restart_host_with(&[]).await?;
    world.checked(&[10257]).await?;
    delete(&world.cluster, "web").await?;
    assert_eq!(world.aws.left().await?, Vec::<String>::new());
    nothing_was_forbidden(&world.cluster)
}

/// Without credentials or permissions, throttled, broken, cut off: users are informed, no node is deleted, nothing is
/// left behind.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn a_cloud_that_refuses_is_told_and_costs_nothing() -> Result<()> {
    let mut world = World::start(&[]).await?;
    let silent = world.machines[0].node.clone();
    for state in ["401", "403", "404", "409", "422", "429", "500", "half"] {
        world.aws.door(state).await?;
        let name = format!("web-{state}");
        create(&world.cluster.client, load_balancer(&name)).await?;
        set_ready(&world.cluster.client, &silent, "Unknown").await?;
        let told = event(&world.cluster, &name, "SyncLoadBalancerFailed").await?;
        let (message, what) = (told.message.unwrap_or_default(), state.replace("half", "EOF"));
        assert!(message.contains(&what), "{state}: {message}");
        set_ready(&world.cluster.client, &silent, "True").await?;
        world.aws.door("open").await?;
        if state == "401" {
            // Refused credentials hold deletions back until the call that was refused goes well.
            world.balancer(&[80]).await?;
        }
        delete(&world.cluster, &name).await?;
    }
    assert_eq!(node_count(&world.cluster).await?, 2);
    assert_eq!(world.aws.balancers().await?, []);

    // The fault is over: nobody has to do anything.
    world.aws.door("500").await?;
    create(&world.cluster.client, load_balancer("web")).await?;
    event(&world.cluster, "web", "SyncLoadBalancerFailed").await?;
    world.aws.door("open").await?;
    world.balancer(&[80]).await?;
    nothing_was_forbidden(&world.cluster)
}

async fn delete(cluster: &Cluster, name: &str) -> Result<()> {
    let api = Api::<Service>::namespaced(cluster.client.clone(), "default");
    api.delete(name, &DeleteParams::default()).await?;
    service_gone(cluster, name).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn a_classic_balancer_lives_and_goes_with_its_service() -> Result<()> {
    a_balancers_life("classic", load_balancer("web")).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the SDK of AWS and installs an emulator; .ci/run runs it"]
async fn a_network_balancer_lives_and_goes_with_its_service() -> Result<()> {
    a_balancers_life("network", network("web")).await
}

async fn a_balancers_life(kind: &str, wish: Value) -> Result<()> {
    let mut world = World::start(&[]).await?;
    create(&world.cluster.client, wish).await?;
    let made = world.balancer(&[80]).await?;
    assert_eq!(made.kind, kind);
    service(&world.cluster, "web", "its name", |service| ingress(service) == [made.dns.as_str()]).await?;

    let api = Api::<Service>::namespaced(world.cluster.client.clone(), "default");
    let ports = json!({ "spec": { "ports": [
        { "name": "http", "protocol": "TCP", "port": 80 }, { "name": "https", "protocol": "TCP", "port": 443 },
    ]}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(ports)).await?;
    world.balancer(&[80, 443]).await?;

    world.join(0).await?;
    world.balancer(&[80, 443]).await?;

    delete(&world.cluster, "web").await?;
    assert_eq!(world.aws.balancers().await?, [], "the finalizer went before the balancer");
    nothing_was_forbidden(&world.cluster)
}

/// The provider that is written for the contract.
mod native {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn nodes_are_initialised_and_go_with_their_machines() -> Result<()> {
        initialised_and_gone(Kind::Native).await
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn a_stopped_machine_taints_its_node_until_it_runs_again() -> Result<()> {
        stopped_and_started(Kind::Native).await
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn restarts_of_either_side_lose_nothing_and_make_nothing_twice() -> Result<()> {
        restarted(Kind::Balancing).await
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn a_changed_cloud_config_reaches_the_balancers_that_are_there() -> Result<()> {
        reconfigured(Kind::Balancing).await
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn routes_lead_to_the_pods_of_nodes_and_go_with_them() -> Result<()> {
        routed(Kind::Native).await
    }

    /// EC2 may not know a new instance for a while, and says that it does not exist.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn a_young_node_outlives_an_ec2_that_does_not_know_its_machine() -> Result<()> {
        let mut world = World::with(Kind::Native, &[]).await?;
        let hidden = world.machines[0].clone();
        world.aws.hide(&hidden).await?;
        set_ready(&world.cluster.client, &hidden.node, "Unknown").await?;
        // Twice as often as it takes to delete the node of a machine that is gone.
        let before = world.aws.calls().await?.values().sum::<u32>();
        let mut seen = before;
        wait::until("the host looks again and again", async || {
            seen = world.aws.calls().await?.values().sum::<u32>();
            Ok((seen >= before + 6).then_some(()))
        })
        .await
        .with_context(|| format!("{seen} calls, {before} before\n{:?}", world.cluster.parts()))?;
        node(&world.cluster, &hidden.node, "still there", |_| true).await?;
        nothing_was_forbidden(&world.cluster)
    }

    /// As docs/shadow.md and docs/migrate.md have it.
    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn a_cluster_switches_from_the_published_manager_and_back() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let aws = Aws::start(folder.path()).await?;
        let options = Options::default().provider_under_test(aws.provider(Kind::Native));
        let mut cluster = options.provider_flag("--load-balancers=classic").start_without_host().await?;
        let mut published = aws.published(&cluster).await?;
        for flag in ["--adopt-load-balancers", "--shadow", "--shadow-grace=4s"] {
            cluster.add_host_flag(flag);
        }
        let mut world = World { cluster, aws, machines: Vec::new(), _folder: folder };
        world.join(0).await?;
        world.join(1).await?;
        create(&world.cluster.client, network("outer")).await?;
        let mut inner = network("inner");
        inner["spec"]["externalTrafficPolicy"] = json!("Local");
        create(&world.cluster.client, inner).await?;
        create(&world.cluster.client, load_balancer("classic")).await?;
        let made = world.balancers(3).await.with_context(|| published.tail())?;

        // Before: the shadow says that nothing would change.
        world.cluster.start_host()?;
        world.cluster.host_ready().await?;
        let mut seen = (2, Value::Null);
        wait::until("nothing would change", async || {
            seen = shadow_diff(&world.cluster).await?;
            Ok((seen.0 == 0).then_some(()))
        })
        .await
        .with_context(|| format!("{} {:#}\n{:?}", seen.0, seen.1, world.cluster.parts()))?;
        ensure!(seen.1["verdict"] == "NothingWouldChange", "{:#}", seen.1);

        // The switch itself changes nothing but tags.
        published.terminate().await?;
        let before = world.aws.changes().await?;
        world.cluster.restart_host_with(&["--shadow=false".to_owned()]).await?;
        world.settled(3).await?;
        let mut after = world.aws.changes().await?;
        ensure!(after.remove(TAGGING) > before.get(TAGGING).copied(), "{before:?} {after:?}");
        ensure!(
            after.iter().all(|(action, count)| before.get(action) == Some(count)),
            "{before:?} {after:?}"
        );
        assert_eq!(world.balancers(3).await?, made);

        // Whoever serves the cluster, nodes and Services come and go.
        world.join(0).await?;
        create(&world.cluster.client, network("between")).await?;
        let made = world.balancers(4).await?;
        world.settled(4).await?;

        let before = world.aws.changes().await?;
        ensure!(world.cluster.host()?.terminate().await?.success());
        let told = published.output().len();
        let mut published = world.aws.published(&world.cluster).await?;
        // A node that joins while the published manager first ensures a balancer can be forgotten behind it.
        wait::until("it has ensured all balancers", async || {
            Ok((ensured(&published, told) == 4).then_some(()))
        })
        .await
        .with_context(|| published.tail())?;
        world.join(1).await?;
        let back = world.balancers(4).await.with_context(|| published.tail())?;
        let names = |balancers: &[Balancer]| {
            balancers.iter().map(|one| (one.dns.clone(), one.ports.clone())).collect::<Vec<_>>()
        };
        assert_eq!(names(&back), names(&made));
        let mut after = world.aws.changes().await?;
        after.retain(|action, count| before.get(action) != Some(count));
        after.retain(|action, _| !ALWAYS.contains(&&**action));
        ensure!(after.keys().eq(REGISTERING), "{after:?}, {before:?} before");
        for name in ["outer", "inner", "classic", "between"] {
            delete(&world.cluster, name).await.with_context(|| published.tail())?;
        }
        assert_eq!(world.aws.balancers().await?, []);
        published.terminate().await?;
        nothing_was_forbidden(&world.cluster)
    }

    const TAGGING: &str = "elasticloadbalancing:AddTags";
    /// What the published provider does whenever it looks at a balancer, its own as well: it sets the path of an HTTP health check,
    /// and all attributes of a classic balancer.
    const ALWAYS: [&str; 2] =
        ["elasticloadbalancing:ModifyTargetGroup", "elasticloadbalancing:ModifyLoadBalancerAttributes"];
    const REGISTERING: [&str; 2] =
        ["elasticloadbalancing:RegisterInstancesWithLoadBalancer", "elasticloadbalancing:RegisterTargets"];

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs providers/aws, built; providers/aws/check runs it"]
    async fn the_published_provider_serves_balancers_beside_it() -> Result<()> {
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()?;
        let aws = Aws::start(folder.path()).await?;
        let endpoint = format!("unix://{}", folder.path().join("bridged.sock").display());
        let bridged = aws.provider(Kind::Bridged);
        let _bridged = tokio::process::Command::new(bridged.program)
            .args(&bridged.flags)
            .arg(format!("--endpoint={endpoint}"))
            .envs(bridged.environment)
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let flags = [&*format!("--provider=bridged={endpoint}"), "--provider-id-prefix=aws=aws://"];
        let mut world = World::at(aws, folder, Kind::Native, &flags).await?;
        create(&world.cluster.client, load_balancer("web")).await?;
        world.balancer(&[80]).await?;
        world.join(0).await?;
        world.balancer(&[80]).await?;
        delete(&world.cluster, "web").await?;
        assert_eq!(world.aws.balancers().await?, []);
        nothing_was_forbidden(&world.cluster)
    }
}
