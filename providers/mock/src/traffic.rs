//! `--carry-traffic`: balancers carry packets, in the network namespace that the mock runs in, which must be that of the
//! router in front of the nodes.
//!
//! In: the balancers of the cloud and the addresses of its instances. Out: for each address of a balancer, a route or a
//! proxy. An address of mode VIP is routed to the nodes as it is, and kube-proxy takes it there: the source address
//! stays. On an address of mode Proxy the mock itself listens, and connects to the node port. Each connection goes to any
//! node; with session affinity, all of a client's go to one. Nothing is sent to a node whose health check fails. An address
//! that a balancer has left swallows what it gets, also where a former run has left it. What cannot be set up for one address,
//! as where its port is taken, is tried again, and stands in its balancer's `traffic_error`; the others are carried.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::DefaultHasher},
    hash::{Hash as _, Hasher as _},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream::FuturesUnordered};
use http_body_util::Empty;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use ipnet::IpNet;
use parking_lot::Mutex;
use prost::bytes::Bytes;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UdpSocket},
    process::Command,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    cloud::{AddressKind, Balancer, BalancerState, Port, Protocol, State, is_for_balancers},
    mock::Mock,
};

/// The interval of the health checks, and how long one may take.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// The pause after a connection that could not be taken, as without file descriptors.
const NO_PLACE: Duration = Duration::from_millis(50);
/// What clouds ask for the policy Cluster: the health of kube-proxy.
const KUBE_PROXY: u16 = 10256;
/// A proxy forgets the sender of a datagram after this.
const UDP_IDLE: Duration = Duration::from_secs(60);
/// Longer than any datagram.
const DATAGRAM: usize = 65_536;

/// What an address of a balancer does with its traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    /// The nodes behind it.
    nodes: Vec<IpAddr>,
    /// Where each is asked for its health.
    check: u16,
    /// Whether a client stays at its node.
    affinity: bool,
    /// Of an address of mode Proxy: what it listens on. A node takes what is routed to it by the Service itself.
    proxy: Option<Listening>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Listening {
    ports: Vec<Port>,
    /// Who may connect; empty is everybody.
    from: Vec<IpNet>,
}

/// The ways of all addresses.
fn ways(state: &State) -> BTreeMap<IpAddr, Way> {
    let active = state.balancers().filter(|balancer| balancer.state == BalancerState::Active);
    active
        .flat_map(|balancer| {
            balancer.ingress.iter().filter_map(|ingress| {
                let address = ingress.ip?;
                Some((address, way(state, balancer, address, ingress.proxy)))
            })
        })
        .collect()
}

fn way(state: &State, balancer: &Balancer, address: IpAddr, is_proxy: bool) -> Way {
    let internal = |id: &str| {
        let instance = state.instance(id)?;
        let all = instance.addresses.iter().filter(|one| one.kind == AddressKind::InternalIp);
        let mut all = all.filter_map(|one| one.address.parse::<IpAddr>().ok());
        all.find(|one| one.is_ipv4() == address.is_ipv4())
    };
    let known = balancer.backends.iter().filter(|target| !target.provider_id.is_empty());
    let nodes: BTreeSet<IpAddr> = known.filter_map(|target| internal(&target.provider_id)).collect();
    let check = u16::try_from(balancer.health_check_port).ok().filter(|port| *port != 0);
    Way {
        nodes: nodes.into_iter().collect(),
        check: check.unwrap_or(KUBE_PROXY),
        affinity: balancer.affinity_seconds > 0,
        proxy: is_proxy.then(|| Listening {
            ports: balancer.ports.clone(),
            from: balancer.source_ranges.iter().filter_map(|range| range.parse().ok()).collect(),
        }),
    }
}

/// What was done for an address.
#[derive(Debug)]
enum Carried {
    Routed(Vec<IpAddr>),
    Proxied(Listening, Proxy),
    Swallowed,
    /// Anything: by a former run, or by what failed.
    Unsettled,
}

/// What a proxy chooses from.
#[derive(Debug, Default)]
struct Behind {
    nodes: Vec<IpAddr>,
    affinity: bool,
}

/// The tasks of a proxy end with it.
#[derive(Debug)]
struct Proxy {
    behind: watch::Sender<Behind>,
    _listeners: JoinSet<()>,
}

/// Carries traffic for ever, where that is possible at all.
pub(crate) async fn carry(mock: &Mock) -> Result<()> {
    for family in ["ipv4", "ipv6"] {
        // By ports, too, so that the connections of one client are spread.
        let policy = format!("/proc/sys/net/{family}/fib_multipath_hash_policy");
        match tokio::fs::write(&policy, "1").await {
            // A kernel without IPv6.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            written => written.with_context(|| format!("--carry-traffic needs root: {policy}"))?,
        }
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut moves = mock.cloud.moves();
    let mut carried = left_behind().await?;
    let mut failures = BTreeMap::new();
    loop {
        moves.borrow_and_update();
        let wanted = mock.look(ways);
        let healthy = healthy(&client, &wanted).await;
        for (address, way) in &wanted {
            let mut nodes: Vec<_> =
                way.nodes.iter().filter(|node| healthy.contains(&(**node, way.check))).copied().collect();
            // The kernel has one way to spread for all routes: a client stays if there is one node to go to.
            if way.affinity && way.proxy.is_none() {
                nodes.truncate(1);
            }
            let is = carried.entry(*address).or_insert(Carried::Swallowed);
            let done = set_up(is, *address, way, nodes).await;
            tell(&mut failures, *address, done);
        }
        for (address, is) in &mut carried {
            if !wanted.contains_key(address) {
                let done = swallow(*address, is).await;
                tell(&mut failures, *address, done);
            }
        }
        let why = |balancer: &Balancer| {
            let ips = balancer.ingress.iter().filter_map(|way| way.ip);
            ips.filter_map(|ip| failures.get(&ip).map(String::as_str)).collect::<Vec<_>>().join("; ")
        };
        // Whatever changes wakes this loop.
        if mock.look(|state| state.balancers().any(|one| one.traffic_error != why(one))) {
            mock.alter(|state| state.set_traffic_errors(why));
        }
        tokio::select! {
            () = sleep(CHECK_EVERY) => {}
            _changed = moves.changed() => {}
        }
    }
}

/// Tells of a failure when it begins, and when it changes, and that it is over.
fn tell(failures: &mut BTreeMap<IpAddr, String>, address: IpAddr, done: Result<()>) {
    let why = done.err().map(|error| format!("{error:#}"));
    if failures.get(&address) == why.as_ref() {
        return;
    }
    match why {
        Some(why) => {
            tracing::warn!(%address, %why, "the traffic of this address is not carried; trying again");
            failures.insert(address, why);
        }
        None => {
            tracing::info!(%address, "the traffic of this address no longer fails");
            failures.remove(&address);
        }
    }
}

/// The addresses of balancers that a former run has left here, on `lo` or with a route.
async fn left_behind() -> Result<BTreeMap<IpAddr, Carried>> {
    let mut left = BTreeMap::new();
    for family in ["-4", "-6"] {
        for what in ["address show dev lo", "route show"] {
            let told = ip(&format!("-oneline {family} {what}")).await;
            // A kernel without IPv6.
            let told = if family == "-6" { told.unwrap_or_default() } else { told? };
            // Of a route, the words after its destination are those it leads to.
            let lines = told.lines().filter(|line| !line.starts_with("default"));
            let networks = lines.filter_map(|line| line.split_whitespace().find_map(network));
            let whole = networks.filter(|network| network.prefix_len() == network.max_prefix_len());
            left.extend(whole.map(|one| (one.addr(), Carried::Unsettled)));
        }
    }
    left.retain(|address, _| is_for_balancers(*address));
    Ok(left)
}

fn network(word: &str) -> Option<IpNet> {
    word.parse().ok().or_else(|| word.parse::<IpAddr>().ok().map(IpNet::from))
}

/// The nodes, with the port of the check, that answer it.
async fn healthy(
    client: &Client<HttpConnector, Empty<Bytes>>,
    wanted: &BTreeMap<IpAddr, Way>,
) -> BTreeSet<(IpAddr, u16)> {
    let asked = wanted.values().flat_map(|way| way.nodes.iter().map(|node| (*node, way.check)));
    let asked: BTreeSet<_> = asked.collect();
    let checks = asked.into_iter().map(|(node, port)| async move {
        let uri = format!("http://{}/healthz", SocketAddr::new(node, port)).parse().ok()?;
        let answer = timeout(CHECK_EVERY, client.get(uri)).await.ok()?.ok()?;
        answer.status().is_success().then_some((node, port))
    });
    checks.collect::<FuturesUnordered<_>>().filter_map(async |healthy| healthy).collect().await
}

async fn set_up(is: &mut Carried, address: IpAddr, way: &Way, nodes: Vec<IpAddr>) -> Result<()> {
    match (&way.proxy, &mut *is) {
        (Some(wanted), Carried::Proxied(listening, proxy)) if wanted == listening => {
            proxy.behind.send_replace(Behind { nodes, affinity: way.affinity });
        }
        (Some(wanted), _) => {
            swallow(address, is).await?;
            *is = Carried::Unsettled;
            ip(&format!("address replace {} dev lo", IpNet::from(address))).await?;
            let behind = Behind { nodes, affinity: way.affinity };
            match Proxy::listen(address, wanted, behind).await {
                Ok(proxy) => *is = Carried::Proxied(wanted.clone(), proxy),
                Err(error) => {
                    // Whoever listens on all addresses of this machine would answer at this one.
                    swallow(address, is).await?;
                    return Err(error);
                }
            }
        }
        (None, Carried::Routed(before)) if *before == nodes => {}
        (None, _) => {
            if !matches!(is, Carried::Routed(_)) {
                swallow(address, is).await?;
            }
            let hops = nodes.iter().map(|node| format!(" nexthop via {node}"));
            let to = if nodes.is_empty() { "blackhole ".to_owned() } else { String::new() };
            let hops = hops.collect::<String>();
            if let Err(error) = ip(&format!("route replace {to}{}{hops}", IpNet::from(address))).await {
                // It would go on leading to the former nodes.
                *is = Carried::Unsettled;
                swallow(address, is).await?;
                return Err(error);
            }
            *is = Carried::Routed(nodes);
        }
    }
    Ok(())
}

/// Ends what was done for an address: from then on it gets no answer.
async fn swallow(address: IpAddr, is: &mut Carried) -> Result<()> {
    if matches!(is, Carried::Swallowed) {
        return Ok(());
    }
    *is = Carried::Unsettled;
    let network = IpNet::from(address);
    // Unlike `del`, it is content if the address is not there.
    ip(&format!("address flush dev lo to {network}")).await?;
    ip(&format!("route replace blackhole {network}")).await?;
    *is = Carried::Swallowed;
    Ok(())
}

/// What the command prints.
async fn ip(arguments: &str) -> Result<String> {
    let run = Command::new("ip").args(arguments.split_whitespace()).output().await;
    let run = run.context("--carry-traffic needs the command ip (Debian: iproute2)")?;
    let said = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "ip {arguments}: {}", said.trim());
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}

impl Proxy {
    async fn listen(address: IpAddr, wanted: &Listening, behind: Behind) -> Result<Self> {
        let behind = watch::Sender::new(behind);
        let mut listeners = JoinSet::new();
        for port in &wanted.ports {
            let number = u16::try_from(port.port).with_context(|| format!("{} is no port", port.port))?;
            let here = SocketAddr::new(address, number);
            let to = To {
                behind: behind.subscribe(),
                port: u16::try_from(port.node_port)
                    .with_context(|| format!("{} is no port", port.node_port))?,
                from: wanted.from.clone().into(),
            };
            let cannot = || format!("cannot listen at {here}");
            match port.protocol {
                Protocol::Tcp => {
                    let listener = TcpListener::bind(here).await.with_context(cannot)?;
                    listeners.spawn(connections(listener, to));
                }
                Protocol::Udp => {
                    let socket = UdpSocket::bind(here).await.with_context(cannot)?;
                    listeners.spawn(datagrams(socket, to));
                }
            }
        }
        Ok(Self { behind, _listeners: listeners })
    }
}

/// Where one port of a proxy leads.
#[derive(Debug, Clone)]
struct To {
    behind: watch::Receiver<Behind>,
    port: u16,
    from: Arc<[IpNet]>,
}

impl To {
    /// The node of a connection, always the same one while the nodes stay; with affinity, that of its client.
    fn node(&self, client: SocketAddr) -> Option<SocketAddr> {
        if !self.from.is_empty() && !self.from.iter().any(|range| range.contains(&client.ip())) {
            return None;
        }
        let behind = self.behind.borrow();
        let mut hash = DefaultHasher::new();
        client.ip().hash(&mut hash);
        if !behind.affinity {
            client.port().hash(&mut hash);
        }
        let nth = hash.finish().checked_rem(behind.nodes.len() as u64)?;
        let node = behind.nodes.get(usize::try_from(nth).ok()?)?;
        Some(SocketAddr::new(*node, self.port))
    }
}

async fn connections(listener: TcpListener, to: To) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut client, peer)) = accepted else {
                    sleep(NO_PLACE).await;
                    continue;
                };
                let Some(node) = to.node(peer) else { continue };
                open.spawn(async move {
                    // Either side may go away at any time; there is nobody to tell.
                    if let Ok(mut server) = TcpStream::connect(node).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
            Some(_ended) = open.join_next() => {}
        }
    }
}

async fn datagrams(socket: UdpSocket, to: To) {
    let socket = Arc::new(socket);
    let servers: Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>> = Arc::default();
    let mut answers = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            sleep(NO_PLACE).await;
            continue;
        };
        while answers.try_join_next().is_some() {}
        let Some(node) = to.node(client) else { continue };
        let known =
            servers.lock().get(&client).cloned().filter(|server| server.peer_addr().ok() == Some(node));
        let server = match known {
            Some(server) => server,
            None => {
                let any = if node.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let Ok(server) = UdpSocket::bind(any).await else { continue };
                if server.connect(node).await.is_err() {
                    continue;
                }
                let server = Arc::new(server);
                servers.lock().insert(client, Arc::clone(&server));
                answers.spawn(answer(Arc::clone(&socket), Arc::clone(&servers), client, Arc::clone(&server)));
                server
            }
        };
        let _lost = server.send(&buffer[..length]).await;
    }
}

/// Hands a client the answers of its server, until it has been silent for long, or another one is its server.
async fn answer(
    socket: Arc<UdpSocket>,
    servers: Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>>,
    client: SocketAddr,
    server: Arc<UdpSocket>,
) {
    let mut buffer = vec![0; DATAGRAM];
    while let Ok(Ok(length)) = timeout(UDP_IDLE, server.recv(&mut buffer)).await {
        let _lost = socket.send_to(&buffer[..length], client).await;
    }
    let mut servers = servers.lock();
    if servers.get(&client).is_some_and(|known| Arc::ptr_eq(known, &server)) {
        servers.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::{
        BackendSet, ClusterRef, EnsureLoadBalancerRequest, NodeRef, Service, ServicePort, ServiceRef,
        TrafficPolicy,
    };
    use jiff::Timestamp;

    use super::*;
    use crate::cloud::{ANNOTATION_PREFIX, Address, Cloud, NewInstances, Settings, Store};

    fn service(mode: &str) -> Service {
        let port = ServicePort { port: 80, node_port: 30_080, ..ServicePort::default() };
        Service {
            r#ref: Some(ServiceRef { namespace: "ns".into(), name: "web".into(), uid: "1".into() }),
            ports: vec![port],
            annotations: [(format!("{ANNOTATION_PREFIX}ip-mode"), mode.to_owned())].into(),
            source_ranges: vec!["172.30.0.0/16".into()],
            ..Service::default()
        }
    }

    /// The only way of a balancer of this Service, with one instance of both families and one of IPv4 behind it.
    fn made(mut service: Service) -> Option<(IpAddr, Way)> {
        let mut state = State::new(Settings::default());
        let now = Timestamp::UNIX_EPOCH;
        service.ports.iter_mut().for_each(|port| port.set_protocol(cloudprovider_sdk::proto::Protocol::Tcp));
        let mut nodes = Vec::new();
        for (name, addresses) in [("a", &["10.77.0.11", "fd77::11"][..]), ("b", &["10.77.0.12"])] {
            let internal = |address: &&str| Address::new(AddressKind::InternalIp, *address);
            let addresses = Some(addresses.iter().map(internal).collect());
            let wish = NewInstances { addresses, ..NewInstances::named(name) };
            state.create_instances(&wish, now).unwrap();
            nodes.push(NodeRef { name: name.into(), ..NodeRef::default() });
        }
        // One that the cloud does not know gets no traffic.
        nodes.push(NodeRef { name: "stranger".into(), ..NodeRef::default() });
        let wish = EnsureLoadBalancerRequest {
            service: Some(service),
            backends: Some(BackendSet { digest: "1".into(), nodes, ..BackendSet::default() }),
            ..EnsureLoadBalancerRequest::default()
        };
        state.ensure_balancer(&ClusterRef { uid: "c".into(), name: String::new() }, wish, now).unwrap();
        state.tick(now);
        ways(&state).into_iter().next()
    }

    const INSIDE: &str = "CCM_TEST_NETWORK";

    /// Runs the test of this name again, in a network namespace of its own.
    fn in_a_network(test: &str, body: impl Future<Output = ()>) {
        if std::env::var_os(INSIDE).is_some() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { timeout(Duration::from_secs(60), body).await.unwrap() });
            return;
        }
        let there = || {
            let mut there = std::process::Command::new("unshare");
            there.args(["--user", "--map-root-user", "--net"]);
            there
        };
        if !there().arg("ip").arg("-V").output().is_ok_and(|ran| ran.status.success()) {
            eprintln!("not checked: there can be no other network here");
            return;
        }
        let mut again = there();
        again.arg(std::env::current_exe().unwrap()).args(["--exact", test]).env(INSIDE, "yes");
        let ended = again.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    }

    async fn until(mut is: impl AsyncFnMut() -> bool) {
        while !is().await {
            sleep(Duration::from_millis(20)).await;
        }
    }

    #[test]
    fn a_balancer_that_cannot_be_carried_is_its_own_affair() {
        let name = "traffic::tests::a_balancer_that_cannot_be_carried_is_its_own_affair";
        in_a_network(name, async {
            let cloud = Cloud::new(State::new(Settings::default()), Store::at(None));
            let mock = Mock::new(cloud, Timestamp::now);
            let ensure = |uid: &str, ports: usize| {
                let mut service = Service { source_ranges: Vec::new(), ..service("Proxy") };
                service.r#ref.as_mut().unwrap().uid = uid.into();
                service.ports[0].set_protocol(cloudprovider_sdk::proto::Protocol::Tcp);
                service.ports = vec![service.ports[0].clone(); ports];
                let wish = EnsureLoadBalancerRequest { service: Some(service), ..Default::default() };
                let cluster = ClusterRef { uid: "c".into(), name: String::new() };
                let made = mock.alter(|state| state.ensure_balancer(&cluster, wish, mock.now()).unwrap());
                mock.alter(|state| state.tick(mock.now()));
                SocketAddr::new(made.balancer.ingress[0].ip.unwrap(), 80)
            };
            let error = |uid| mock.look(|state| state.balancer(uid).unwrap().traffic_error.clone());
            // The second of two listeners at one place finds it taken.
            let (taken, free) = (ensure("taken", 2), ensure("free", 1));
            let checks = async {
                until(async || TcpStream::connect(free).await.is_ok()).await;
                until(async || !error("taken").is_empty()).await;
                let told = error("taken");
                assert!(told.starts_with(&format!("cannot listen at {taken}: ")), "{told}");
                assert_eq!(error("free"), "");
                ensure("taken", 1);
                until(async || TcpStream::connect(taken).await.is_ok()).await;
                until(async || error("taken").is_empty()).await;
            };
            ip("link set lo up").await.unwrap();
            tokio::select! {
                ended = carry(&mock) => panic!("{ended:?}"),
                () = checks => {}
            }
        });
    }

    #[test]
    fn what_a_former_run_has_left_is_swallowed() {
        in_a_network("traffic::tests::what_a_former_run_has_left_is_swallowed", async {
            for before in [
                "link set lo up",
                "address add 192.0.2.77/32 dev lo",
                "address add 2001:db8::77/128 dev lo nodad",
                "route add 192.0.2.78/32 dev lo",
                // Not for balancers.
                "address add 10.77.0.1/32 dev lo",
                "route add 10.77.1.0/24 dev lo",
            ] {
                ip(before).await.unwrap();
            }
            let cloud = Cloud::new(State::new(Settings::default()), Store::at(None));
            let mock = Mock::new(cloud, Timestamp::now);
            let checks = until(async || {
                let addresses = ip("-oneline address show dev lo").await.unwrap();
                let routes =
                    format!("{}{}", ip("route show").await.unwrap(), ip("-6 route show").await.unwrap());
                let swallowed = ["192.0.2.77", "192.0.2.78", "2001:db8::77"];
                !addresses.contains("192.0.2.77")
                    && !addresses.contains("2001:db8::77")
                    && swallowed.iter().all(|one| routes.contains(&format!("blackhole {one}")))
                    && addresses.contains("10.77.0.1")
                    && routes.contains("10.77.1.0/24 dev lo")
            });
            tokio::select! {
                ended = carry(&mock) => panic!("{ended:?}"),
                () = checks => {}
            }
        });
    }

    fn addresses(all: &[&str]) -> Vec<IpAddr> {
        all.iter().map(|one| one.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_leads_to_the_nodes_of_its_family() {
        let (address, way) = made(service("VIP")).unwrap();
        assert_eq!(address.to_string(), "192.0.2.1");
        let nodes = addresses(&["10.77.0.11", "10.77.0.12"]);
        assert_eq!(way, Way { nodes, check: KUBE_PROXY, affinity: false, proxy: None });

        let mut local = service("VIP");
        local.set_external_traffic_policy(TrafficPolicy::Local);
        local.health_check_node_port = 31_000;
        assert_eq!(made(local).unwrap().1.check, 31_000);

        let mut six = service("VIP");
        six.ip_families = vec![cloudprovider_sdk::proto::IpFamily::Ipv6.into()];
        assert_eq!(made(six).unwrap().1.nodes, addresses(&["fd77::11"]));
    }

    #[test]
    fn a_proxy_listens_on_the_ports_and_lets_in_whom_the_service_names() {
        let (_, way) = made(service("Proxy")).unwrap();
        let listening = way.proxy.unwrap();
        assert_eq!((listening.ports[0].port, listening.ports[0].node_port), (80, 30_080));
        let behind = watch::Sender::new(Behind { nodes: way.nodes.clone(), affinity: way.affinity });
        let to = To { behind: behind.subscribe(), port: 30_080, from: listening.from.into() };
        let nodes = || -> BTreeSet<_> {
            (1..100)
                .map(|port| to.node(SocketAddr::new("172.30.0.2".parse().unwrap(), port)).unwrap())
                .collect()
        };
        assert_eq!(nodes().len(), 2, "a client's connections go to all nodes");
        behind.send_replace(Behind { nodes: way.nodes, affinity: true });
        assert_eq!(nodes().len(), 1, "with affinity, a client stays at its node");
        assert_eq!(to.node("172.31.0.2:1".parse().unwrap()), None, "outside of the source ranges");
        behind.send_replace(Behind::default());
        assert_eq!(to.node("172.30.0.2:1".parse().unwrap()), None, "no node is healthy");
    }
}
