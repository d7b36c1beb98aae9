//! The policies: enough for everything, nothing in them is idle, and whoever lacks one action hears which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cloudprovider_proto::v1alpha1::{InstanceView, IpFamily, ItemError, Protocol, Service};
use serde_json::{Value, json};
use tonic::Status;

use crate::aws::{Aws, Instance, Provider};
use crate::balancers::{self, CERTIFICATE, MANAGED, POLICY, SERVE, service};
use crate::classic::classic;
use crate::routes;

const PARTS: [&str; 5] = ["nodes", "routes", "classic-balancers", "network-balancers", "security-groups"];
/// No call of its own: AWS asks for it where something is made with tags.
const WITHIN_CALLS: &str = "ec2:CreateTags";
/// Nodes do without its labels, as with the published provider.
const OPTIONAL: &str = "ec2:DescribeInstanceTopology";
const CIDR: &str = "10.244.0.0/24";

/// The actions that a policy allows.
fn allowed(part: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("policy/{part}.json"));
    let policy: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let statements = policy["Statement"].as_array().unwrap().iter();
    let actions = statements.flat_map(|statement| statement["Action"].as_array().unwrap());
    let actions = actions.map(|action| action.as_str().unwrap().to_owned());
    actions.filter(|action| action != WITHIN_CALLS).collect()
}

/// Refuses all actions of a pattern but these, as AWS does: EC2 has a word of its own for it.
async fn deny(aws: &mut Aws, action: &str, except: &BTreeSet<String>) {
    let service = |name: &str| action == "*" || action.starts_with(name);
    let rule = |pattern: &str, code: &str| {
        let pattern = if action == "*" { pattern } else { action };
        json!({ "action": pattern, "except": except, "code": code, "status": 403 }).to_string()
    };
    let of_ec2 = service("ec2:").then(|| rule("ec2:*", "UnauthorizedOperation"));
    let of_balancing =
        service("elasticloadbalancing:").then(|| rule("elasticloadbalancing:*", "AccessDenied"));
    let rules: Vec<_> = of_ec2.into_iter().chain(of_balancing).collect();
    aws.tell::<Value>(&format!("rules {}", rules.join(","))).await;
}

/// What a cluster's life asks of the provider, but for what is asked again until it is done.
struct Life<'a> {
    provider: &'a Provider,
    machines: &'a [Instance],
    subnets: &'a [String],
    security_group: &'a str,
    refused: Vec<String>,
}

impl Life<'_> {
    fn note<T>(&mut self, outcome: Result<T, Status>, error: impl Fn(&T) -> Option<ItemError>) -> Option<T> {
        match outcome {
            Err(status) => self.refused.push(status.message().to_owned()),
            Ok(answer) => match error(&answer) {
                Some(error) => self.refused.push(error.message),
                None => return Some(answer),
            },
        }
        None
    }

    async fn nodes(&mut self) {
        let new: Vec<_> = self.machines.iter().map(Instance::new_node).collect();
        let outcome = self.provider.try_ask(&new, InstanceView::Metadata).await;
        self.note(outcome, |results| results.iter().find_map(|one| one.error.clone()));
    }

    async fn routes(&mut self) {
        for machine in &self.machines[..2] {
            let outcome = routes::try_ensure(self.provider, &[(CIDR, machine.node())]).await;
            self.note(outcome, |results| results[0].error.clone());
        }
        let listed = routes::try_list(self.provider).await;
        for route in self.note(listed, |_| None).unwrap_or_default() {
            let outcome = routes::try_delete(self.provider, &route).await;
            self.note(outcome, |deleted| deleted.error.clone());
        }
    }

    async fn ensure(&mut self, service: &Service, machines: &[Instance]) {
        for _ in 0..20 {
            let nodes = balancers::nodes(machines);
            let adoption = balancers::LEGACY;
            let outcome =
                balancers::try_ensure(self.provider, service, &nodes, "class-service-one", adoption).await;
            match self.note(outcome, |_| None) {
                Some(answer) if answer.in_progress.is_some() => {}
                _ => return,
            }
        }
        self.refused.push("the balancer does not come about".to_owned());
    }

    async fn delete(&mut self, service: &Service) {
        for _ in 0..20 {
            let outcome = balancers::try_delete(self.provider, service, balancers::LEGACY).await;
            if !matches!(self.note(outcome, |_| None), Some(false)) {
                return;
            }
        }
        self.refused.push("the balancer does not go".to_owned());
    }

    async fn classic_balancers(&mut self) {
        let machines = self.machines;
        let subnet = |at: usize| ("aws-load-balancer-subnets", &*self.subnets[at]);
        let group = ("aws-load-balancer-security-groups", self.security_group);
        let (first, other) = (CERTIFICATE, (CERTIFICATE.0, "arn:aws:iam::1:other"));
        let more = [
            POLICY,
            ("aws-load-balancer-proxy-protocol", "*"),
            ("aws-load-balancer-cross-zone-load-balancing-enabled", "true"),
        ];
        let edits = [
            classic(3, &[subnet(0), first], &[(443, 30_003), (80, 30_103)]),
            classic(3, &[&[subnet(1), other, group], &more[..]].concat(), &[(443, 30_003), (81, 30_203)]),
        ];
        for service in &edits {
            self.ensure(service, &machines[..1]).await;
        }
        for machines in [&machines[..2], &machines[1..2]] {
            let nodes = balancers::nodes(machines);
            let outcome =
                balancers::try_update(self.provider, &edits[1..], &nodes, "class-service-two").await;
            self.note(outcome, |results| results[0].error.clone());
        }
        self.delete(&edits[0]).await;
    }

    async fn network_balancers(&mut self) {
        let subnets = self.subnets;
        let subnet = ("aws-load-balancer-subnets", &*subnets[0]);
        let http = [
            ("aws-load-balancer-healthcheck-protocol", "HTTP"),
            ("aws-load-balancer-healthcheck-healthy-threshold", "4"),
        ];
        let attributes = [
            ("aws-load-balancer-target-group-attributes", "proxy_protocol_v2.enabled=true"),
            ("aws-load-balancer-cross-zone-load-balancing-enabled", "true"),
        ];
        let both = subnets.join(",");
        let (tcp, udp) = ((Protocol::Tcp, 80, 30_080), (Protocol::Udp, 80, 30_080));

        let machines = self.machines;
        // AWS takes no subnet from a balancer that has two of them, which an earlier life can have left.
        self.delete(&service(2, &[], &[])).await;
        self.ensure(&service(2, &[subnet], &[tcp, (Protocol::Tcp, 81, 30_081)]), &machines[..1]).await;
        let all = ("aws-load-balancer-subnets", &*both);
        let mut edited = service(2, &[&[all], &http[..], &attributes[..]].concat(), &[tcp]);
        self.ensure(&edited, &machines[..1]).await;
        edited.ip_families.push(IpFamily::Ipv6.into());
        let threshold = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-healthy-threshold";
        edited.annotations.insert(threshold.to_owned(), "5".to_owned());
        let given = "service.beta.kubernetes.io/aws-load-balancer-security-groups";
        edited.annotations.insert(given.to_owned(), self.security_group.to_owned());
        self.ensure(&edited, &machines[..1]).await;
        for machines in [&machines[..2], &machines[1..2]] {
            let nodes = balancers::nodes(machines);
            let services = [edited.clone()];
            let outcome = balancers::try_update(self.provider, &services, &nodes, "class-service-two").await;
            self.note(outcome, |results| results[0].error.clone());
        }
        self.ensure(&service(2, &[all], &[udp]), &machines[..1]).await;
        self.delete(&edited).await;
    }
}

/// Lives so much of a cluster's life as these parts are about, and returns what was refused on the way.
async fn live(aws: &Aws, provider: &Provider, machines: &[Instance], parts: &[&str]) -> Vec<String> {
    let subnets: Vec<_> = aws.subnets.values().cloned().collect();
    let security_group = &*aws.security_group;
    let mut life = Life { provider, machines, subnets: &subnets, security_group, refused: Vec::new() };
    let is_about = |part| parts.contains(&part);
    if is_about("nodes") {
        life.nodes().await;
    }
    if is_about("routes") {
        life.routes().await;
    }
    if is_about("network-balancers") || is_about("security-groups") {
        life.network_balancers().await;
    }
    if is_about("classic-balancers") {
        life.classic_balancers().await;
    }
    life.refused
}

/// Two instances, of which one has a place in the network.
async fn machines(aws: &mut Aws) -> Vec<Instance> {
    let mut machines: Vec<Instance> = aws.tell("launch us-east-1a 1 first p5.48xlarge").await;
    machines.extend(aws.tell::<Vec<_>>("launch us-east-1a 1 second").await);
    machines
}

#[tokio::test]
async fn the_policies_suffice_and_nothing_in_them_is_idle() {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let machines = machines(&mut aws).await;
    let all: BTreeSet<_> = PARTS.into_iter().flat_map(allowed).collect();
    deny(&mut aws, "*", &all).await;
    let before: BTreeMap<String, u32> = aws.tell("calls").await;
    let native = aws.native(&SERVE).await;
    assert_eq!(live(&aws, &native, &machines, &PARTS).await, Vec::<String>::new());
    let after: BTreeMap<String, u32> = aws.tell("calls").await;
    let made: BTreeSet<_> = after
        .into_iter()
        .filter(|(action, count)| before.get(action) != Some(count))
        .map(|one| one.0)
        .collect();
    assert_eq!(made, all);
    assert_eq!(balancers::left(&mut aws).await, Vec::<String>::new());
}

#[tokio::test]
async fn whoever_lacks_one_right_of_ec2_hears_which_and_loses_nothing() {
    without_each("ec2:", &PARTS).await;
}

#[tokio::test]
async fn whoever_lacks_one_right_of_network_balancers_hears_which_and_loses_nothing() {
    without_each("elasticloadbalancing:", &["network-balancers", "security-groups"]).await;
}

#[tokio::test]
async fn whoever_lacks_one_right_of_classic_balancers_hears_which_and_loses_nothing() {
    without_each("elasticloadbalancing:", &["classic-balancers"]).await;
}

/// Without each action of a service of AWS that these parts have.
async fn without_each(service_name: &str, parts: &[&'static str]) {
    let mut aws = Aws::start().await;
    aws.configure(MANAGED);
    let machines = machines(&mut aws).await;
    let native = aws.native(&SERVE).await;
    let standing = service(1, &[], &[(Protocol::Tcp, 80, 30_001)]);
    let nodes = balancers::nodes(&machines);
    let ensured = balancers::try_ensure(&native, &standing, &nodes, "class-service-one", balancers::LEGACY);
    assert!(ensured.await.unwrap().load_balancer.is_some());
    let stands = balancers::left(&mut aws).await;
    let actions: BTreeSet<_> = parts.iter().copied().flat_map(allowed).collect();
    for action in actions.into_iter().filter(|action| action.starts_with(service_name)) {
        for machine in &machines {
            aws.tell::<Value>(&format!("check {}", machine.id)).await;
        }
        deny(&mut aws, &action, &BTreeSet::new()).await;
        let native = aws.native(&SERVE).await;
        let parts: Vec<_> = parts.iter().copied().filter(|part| allowed(part).contains(&action)).collect();
        let refused = live(&aws, &native, &machines, &parts).await;
        if action == OPTIONAL {
            assert_eq!(refused, Vec::<String>::new());
        } else {
            assert!(refused.iter().any(|message| message.contains(&action)), "without {action}: {refused:?}");
        }
        let left = balancers::left(&mut aws).await;
        let lost: Vec<_> = stands.iter().filter(|line| !left.contains(line)).collect();
        assert_eq!(lost, Vec::<&String>::new(), "without {action}");
        aws.tell::<Value>("rules").await;
        // A new process has all of AWS's tokens.
        let native = aws.native(&SERVE).await;
        let refused = live(&aws, &native, &machines, &parts).await;
        assert_eq!(refused, Vec::<String>::new(), "with {action} again");
        assert_eq!(balancers::left(&mut aws).await, stands, "with {action} again");
    }
}
