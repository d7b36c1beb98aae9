use ccm_state::Standing;

use super::{
    super::tests::forge::{COMMON_NAME, Forge, ORGANIZATION, extension, relative_name, request},
    *,
};
use ccm_cloud::{
    ErrorReason, InstanceAddress,
    fake::{error, machine, method},
};
use ccm_kube::fixtures::node;

/// A request, and everything that decides about it. The default is in order.
struct Case {
    request: CertificateRequest,
    node: Option<Node>,
    is_in_scope: bool,
    claimants: usize,
    answer: InstanceAnswer,
    trust_provider_id: bool,
    other_nodes: &'static [&'static str],
    now: Timestamp,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn addresses(instance: &mut InstanceAnswer, list: &[(AddressType, &str)]) {
    let address = |(kind, address): &(AddressType, &str)| InstanceAddress {
        kind: *kind,
        address: (*address).to_owned(),
    };
    instance.instance.as_mut().unwrap().addresses = list.iter().map(address).collect();
}

impl Case {
    fn good() -> Self {
        Self::asking(&["node-a", "node-a.mock.internal", "10.64.0.1", "100.64.0.1", "fd00::1"])
    }

    fn asking(names: &[&str]) -> Self {
        use AddressType as A;
        let instance = Instance { provider_id: "mock://1".to_owned(), ..Instance::default() };
        let mut answer = machine(InstanceState::Running, Some(instance));
        addresses(
            &mut answer,
            &[
                (A::Hostname, "node-a"),
                (A::InternalDns, "node-a.mock.internal"),
                (A::InternalIp, "10.64.0.1"),
                (A::InternalIp, "fd00:0::1"),
                (A::ExternalIp, "100.64.0.1"),
            ],
        );
        Self {
            request: request("node-a", Forge::of("node-a", names).pem()),
            node: Some(node("node-a").with_provider_id("mock://1").created_at(at(900))),
            is_in_scope: true,
            claimants: 1,
            answer,
            trust_provider_id: false,
            other_nodes: &["node-b"],
            now: at(1_010),
        }
    }

    fn but(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The same subject, but these parts changed.
    fn forged(change: impl FnOnce(&mut Forge)) -> Self {
        let mut forge = Forge::of("node-a", &["node-a", "10.64.0.1"]);
        change(&mut forge);
        Self::good().but(|case| case.request.pem = forge.pem())
    }

    fn node(mut self, change: impl FnOnce(Node) -> Node) -> Self {
        self.node = self.node.map(change);
        self
    }

    /// The cloud reports this address, too.
    fn reporting(mut self, kind: AddressType, address: &str) -> Self {
        let instance = self.answer.instance.as_mut().unwrap();
        instance.addresses.push(InstanceAddress { kind, address: address.to_owned() });
        self
    }

    fn verdict(&self) -> Verdict {
        let claim = match claim(&self.request, self.now) {
            Ok(claim) => claim,
            Err(verdict) => return verdict,
        };
        let node = self.node.clone().map(Arc::new);
        match standing(&self.request, node.as_ref(), self.is_in_scope, self.claimants) {
            Ok(node) => of_answer(&claim, node, &self.answer, self.trust_provider_id, |name| {
                self.other_nodes.contains(&name)
            }),
            Err(verdict) => verdict,
        }
    }
}

/// One word for a verdict.
fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Approve => "approve".to_owned(),
        Verdict::Settled => "ignore Settled".to_owned(),
        Verdict::Leave(Report { standing, reason, .. }) => match standing {
            Standing::Blocked => format!("refuse {reason}"),
            Standing::Waiting => format!("wait {reason}"),
            _ => format!("ignore {reason}"),
        },
    }
}

fn check(rows: Vec<(&str, Case, &str)>) {
    for (name, case, want) in rows {
        assert_eq!(word(&case.verdict()), want, "{name}: {:?}", case.verdict());
    }
}

#[test]
fn what_the_cloud_bears_out_is_approved() {
    use AddressType as A;
    let usages = |usages: &[&str]| {
        let usages = usages.iter().map(|usage| (*usage).to_owned()).collect();
        Case::good().but(|case| case.request.usages = usages)
    };
    let named = |name: &str, list: &[(A, &str)]| {
        let mut case = Case::asking(&["node-a", "10.64.0.1"]);
        addresses(&mut case.answer, list);
        case.answer.instance.as_mut().unwrap().name = name.to_owned();
        case
    };
    let ip = (A::InternalIp, "10.64.0.1");
    check(vec![
        ("all names", Case::good(), "approve"),
        ("some names", Case::asking(&["node-a", "10.64.0.1"]), "approve"),
        ("addresses only", Case::asking(&["10.64.0.1"]), "approve"),
        ("host name only", Case::asking(&["node-a"]), "approve"),
        ("an RSA key's usages", usages(&["key encipherment", "digital signature", "server auth"]), "approve"),
        (
            "a state that was not asked",
            Case::good().but(|case| case.answer.state = InstanceState::Exists),
            "approve",
        ),
        ("the name is the cloud's name of the instance", named("node-a", &[ip]), "approve"),
        (
            "the name begins a DNS name",
            named("", &[ip, (A::InternalDns, "node-a.c.project.internal")]),
            "approve",
        ),
        (
            "an upper case name, as the cloud reports it",
            Case::asking(&["NODE-A.x"]).reporting(A::ExternalDns, "NODE-A.x"),
            "approve",
        ),
        ("the provider ID is trusted", named("", &[ip]).but(|case| case.trust_provider_id = true), "approve"),
        ("a slow clock", Case::good().but(|case| case.now = at(0)), "approve"),
        (
            "within the skew of two apiservers",
            Case::good().node(|node| node.created_at(at(1_005))),
            "approve",
        ),
        ("about to be too old", Case::good().but(|case| case.now = at(1_899)), "approve"),
    ]);
}

/// Every row is an attack, or what is left of one.
#[test]
fn what_is_hostile_is_never_approved() {
    use AddressType as A;
    let as_user = |user: &str| {
        let user = user.to_owned();
        Case::good().but(|case| case.request.username = user)
    };
    let groups = |groups: &[&str]| {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Case::good().but(|case| case.request.groups = groups)
    };
    let usages = |usages: &[&str]| {
        let usages = usages.iter().map(|usage| (*usage).to_owned()).collect();
        Case::good().but(|case| case.request.usages = usages)
    };
    let subject = |organization: &str, name: &str| {
        let parts = vec![relative_name(&ORGANIZATION, organization), relative_name(&COMMON_NAME, name)];
        Case::forged(|forge| forge.subject = parts)
    };
    let ca = extension(&[0x55, 0x1d, 19], &[0x30, 3, 1, 1, 0xff]);
    let named_like_the_control_plane = |name: &str| {
        let mut case = Case::asking(&[name]).reporting(A::Hostname, name);
        case.request.username = format!("system:node:{name}");
        case.request.pem = Forge::of(name, &[name]).pem();
        case.node(|node| Node { name: name.to_owned(), ..node })
    };
    check(vec![
        ("another node's subject", subject("system:nodes", "system:node:node-b"), "refuse WrongSubject"),
        ("no node's subject", subject("system:nodes", "node-a"), "refuse WrongSubject"),
        ("a subject in another case", subject("system:nodes", "system:node:NODE-A"), "refuse WrongSubject"),
        ("masters", subject("system:masters", "system:node:node-a"), "refuse WrongSubject"),
        (
            "more than one group",
            Case::forged(|f| f.subject.push(relative_name(&ORGANIZATION, "x"))),
            "refuse WrongSubject",
        ),
        (
            "asked by a service account",
            as_user("system:serviceaccount:kube-system:node-a"),
            "refuse NotANode",
        ),
        ("asked by a person", as_user("jane"), "refuse NotANode"),
        ("asked by a bootstrap token", as_user("system:bootstrap:abcdef"), "refuse NotANode"),
        ("asked by another node", as_user("system:node:node-b"), "refuse WrongSubject"),
        ("asked by nobody", as_user("system:node:"), "refuse NotANode"),
        ("not in the group of nodes", groups(&["system:authenticated"]), "refuse NotANode"),
        ("not authenticated", groups(&["system:nodes"]), "refuse NotANode"),
        ("a client's usages", usages(&["digital signature", "client auth"]), "refuse WrongUsages"),
        (
            "a client's and a server's",
            usages(&["digital signature", "server auth", "client auth"]),
            "refuse WrongUsages",
        ),
        ("a CA's usages", usages(&["digital signature", "server auth", "cert sign"]), "refuse WrongUsages"),
        ("any usage", usages(&["any"]), "refuse WrongUsages"),
        ("no usages", usages(&[]), "refuse WrongUsages"),
        (
            "another signer",
            Case::good().but(|case| case.request.signer = "kubernetes.io/legacy-unknown".to_owned()),
            "ignore NotOurs",
        ),
        ("no names", Case::asking(&[]), "refuse NoNames"),
        ("another node's name", Case::asking(&["node-b"]), "refuse OtherNode"),
        ("another node's name in another case", Case::asking(&["NODE-B"]), "refuse OtherNode"),
        (
            "another node's name, which the cloud reports here",
            Case::asking(&["node-b"]).reporting(A::Hostname, "node-b"),
            "refuse OtherNode",
        ),
        ("another instance's DNS name", Case::asking(&["node-b.mock.internal"]), "refuse NotReported"),
        ("another instance's address", Case::asking(&["node-a", "10.64.0.2"]), "refuse NotReported"),
        ("another instance's IPv6 address", Case::asking(&["fd00::2"]), "refuse NotReported"),
        ("one good and one bad", Case::asking(&["node-a", "10.64.0.1", "8.8.8.8"]), "refuse NotReported"),
        ("a name in another case", Case::asking(&["Node-A"]), "refuse NotReported"),
        ("a name with a dot at its end", Case::asking(&["node-a."]), "refuse ForbiddenName"),
        ("a longer name", Case::asking(&["node-a.example.com"]), "refuse NotReported"),
        (
            "an address that the cloud reports as a name",
            Case::asking(&["10.9.9.9"]).reporting(A::Hostname, "10.9.9.9"),
            "refuse NotReported",
        ),
        ("a wildcard", Case::asking(&["*"]), "refuse ForbiddenName"),
        ("a wildcard of the domain", Case::asking(&["*.mock.internal"]), "refuse ForbiddenName"),
        (
            "a wildcard that the cloud reports",
            Case::asking(&["*.x"]).reporting(A::ExternalDns, "*.x"),
            "refuse ForbiddenName",
        ),
        ("an empty name", Case::forged(|f| f.names = vec![vec![0x82, 0]]), "refuse ForbiddenName"),
        ("a name with a NUL", Case::asking(&["node-a\0.evil"]), "refuse ForbiddenName"),
        ("a name in other letters", Case::asking(&["nöde-a"]), "refuse ForbiddenName"),
        (
            "an address as a DNS name",
            Case::forged(|f| f.names = vec![[&[0x82, 9][..], b"10.64.0.1"].concat()]),
            "refuse ForbiddenName",
        ),
        (
            "localhost",
            Case::asking(&["localhost"]).reporting(A::Hostname, "localhost"),
            "refuse ForbiddenName",
        ),
        (
            "the apiserver",
            Case::asking(&["kubernetes.default.svc"]).reporting(A::InternalDns, "kubernetes.default.svc"),
            "refuse ForbiddenName",
        ),
        (
            "a Service",
            Case::asking(&["db.prod.svc.cluster.local"])
                .reporting(A::InternalDns, "db.prod.svc.cluster.local"),
            "refuse ForbiddenName",
        ),
        ("a node named as the apiserver", named_like_the_control_plane("kubernetes"), "refuse ForbiddenName"),
        (
            "a node named as a Service",
            named_like_the_control_plane("kubernetes.default.svc"),
            "refuse ForbiddenName",
        ),
        (
            "loopback",
            Case::asking(&["127.0.0.1"]).reporting(A::InternalIp, "127.0.0.1"),
            "refuse ForbiddenAddress",
        ),
        ("IPv6 loopback", Case::asking(&["::1"]).reporting(A::InternalIp, "::1"), "refuse ForbiddenAddress"),
        (
            "unspecified",
            Case::asking(&["0.0.0.0"]).reporting(A::InternalIp, "0.0.0.0"),
            "refuse ForbiddenAddress",
        ),
        ("IPv6 unspecified", Case::asking(&["::"]).reporting(A::InternalIp, "::"), "refuse ForbiddenAddress"),
        (
            "the metadata service",
            Case::asking(&["169.254.169.254"]).reporting(A::InternalIp, "169.254.169.254"),
            "refuse ForbiddenAddress",
        ),
        (
            "IPv6 link-local",
            Case::asking(&["fe80::1"]).reporting(A::InternalIp, "fe80::1"),
            "refuse ForbiddenAddress",
        ),
        (
            "multicast",
            Case::asking(&["224.0.0.1"]).reporting(A::InternalIp, "224.0.0.1"),
            "refuse ForbiddenAddress",
        ),
        (
            "IPv6 multicast",
            Case::asking(&["ff02::1"]).reporting(A::InternalIp, "ff02::1"),
            "refuse ForbiddenAddress",
        ),
        (
            "broadcast",
            Case::asking(&["255.255.255.255"]).reporting(A::InternalIp, "255.255.255.255"),
            "refuse ForbiddenAddress",
        ),
        ("an IPv4 address in IPv6", Case::asking(&["::ffff:10.64.0.1"]), "refuse ForbiddenAddress"),
        (
            "an email address",
            Case::forged(|f| f.names.push([&[0x81, 3][..], b"a@b"].concat())),
            "refuse ForbiddenNameType",
        ),
        (
            "a URI",
            Case::forged(|f| f.names.push([&[0x86, 4][..], b"x://"].concat())),
            "refuse ForbiddenNameType",
        ),
        ("a CA", Case::forged(|f| f.extensions = vec![ca]), "refuse ForbiddenExtension"),
        (
            "a stolen public key",
            Case::good().but(|case| case.request.pem = Forge::of("node-a", &["node-a"]).pem_of_a_thief()),
            "refuse WrongSignature",
        ),
        (
            "a weak key",
            Case::good()
                .but(|case| case.request.pem = include_bytes!("../testdata/weak-rsa1024.pem").to_vec()),
            "refuse WrongSignature",
        ),
        (
            "SHA-1",
            Case::good().but(|case| case.request.pem = include_bytes!("../testdata/weak-sha1.pem").to_vec()),
            "refuse WeakKey",
        ),
        (
            "two PEM blocks",
            Case::good().but(|case| case.request.pem = case.request.pem.repeat(2)),
            "refuse Malformed",
        ),
        ("no PEM", Case::good().but(|case| case.request.pem = Vec::new()), "refuse Malformed"),
        (
            "a node that the cloud names otherwise",
            Case::good().but(|case| {
                addresses(&mut case.answer, &[(A::Hostname, "node-b"), (A::InternalIp, "10.64.0.1")]);
            }),
            "refuse NodeNotNamed",
        ),
        (
            "a name that only begins like the cloud's",
            Case::good().but(|case| addresses(&mut case.answer, &[(A::Hostname, "node-abc")])),
            "refuse NodeNotNamed",
        ),
        (
            "another instance",
            Case::good()
                .but(|case| case.answer.instance.as_mut().unwrap().provider_id = "mock://2".to_owned()),
            "refuse OtherInstance",
        ),
        (
            "two nodes claim the instance",
            Case::good().but(|case| case.claimants = 2),
            "wait InstanceContested",
        ),
    ]);
}

/// What is not known yet is waited for; what was decided is left alone.
#[test]
fn doubts_are_no_approvals() {
    let state = |state| Case::good().but(|case| case.answer.state = state);
    use InstanceState as S;
    check(vec![
        ("no Node", Case::good().but(|case| case.node = None), "wait NoNode"),
        ("going", Case::good().node(Node::deleting), "wait NodeDeleting"),
        (
            "held back by the guard",
            Case::good().node(|node| node.with_condition("CloudProviderDeletionBlocked", "True", "x")),
            "wait NodeGoing",
        ),
        (
            "freed by the guard",
            Case::good().node(|node| node.with_condition("CloudProviderDeletionBlocked", "False", "x")),
            "approve",
        ),
        (
            "given up",
            Case::good().node(|node| node.with_taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule")),
            "wait NodeGoing",
        ),
        ("uninitialised", Case::good().node(Node::tainted_uninitialized), "wait NodeUninitialized"),
        ("without ID", Case::good().node(|node| Node { provider_id: None, ..node }), "wait NoProviderID"),
        ("out of scope", Case::good().but(|case| case.is_in_scope = false), "ignore NotOurs"),
        ("older than its Node", Case::good().node(|node| node.created_at(at(1_006))), "ignore TooOld"),
        ("too old", Case::good().but(|case| case.now = at(1_900)), "ignore TooOld"),
        ("no date", Case::good().but(|case| case.request.created = None), "ignore TooOld"),
        ("approved", Case::good().but(|case| case.request.is_decided = true), "ignore Settled"),
        ("issued", Case::good().but(|case| case.request.is_issued = true), "ignore Settled"),
        (
            "reviewed by somebody",
            Case::good().but(|case| case.request.has_conditions = true),
            "ignore Settled",
        ),
        ("the request is going", Case::good().but(|case| case.request.is_deleting = true), "ignore Settled"),
        ("absent", state(S::Absent), "wait NoInstance"),
        ("of another owner", state(S::NotOwned), "ignore NotOurs"),
        ("unknown", state(S::Unspecified), "wait ProviderUnsure"),
        ("being made", state(S::Pending), "wait InstanceNotRunning"),
        ("stopped", state(S::Stopped), "wait InstanceNotRunning"),
        ("being deleted", state(S::Terminating), "wait InstanceNotRunning"),
        ("from a cache", Case::good().but(|case| case.answer.authoritative = false), "wait ProviderUnsure"),
        ("not described", Case::good().but(|case| case.answer.instance = None), "wait ProviderUnsure"),
        (
            "with an error",
            Case::good().but(|case| {
                case.answer.error = Some(error(method::INSTANCE, Some(ErrorReason::MetadataNotReady)));
            }),
            "wait ProviderUnsure",
        ),
    ]);
}

#[test]
fn strangers_words_are_cut() {
    let long = "a".repeat(600);
    let Verdict::Leave(refusal) = Case::asking(&[&long]).verdict() else { panic!() };
    assert!(refusal.message.len() < 400, "{}", refusal.message);
}

#[test]
fn an_open_request_is_looked_at_less_and_less() {
    let request = Case::good().request;
    let rows = [(1_000, 500), (1_004, 2_000), (1_030, 15_000), (1_500, 30_000), (0, 500)];
    for (now, millis) in rows {
        assert_eq!(pause(&request, at(now)), Duration::from_millis(millis), "{now}");
    }
}
