//! The cloud's state of a balancer, as the hook `inspect-load-balancer` prints it; `docs/conformance.md` has the
//! schema.

use std::collections::BTreeSet;

use cloudprovider_proto::v1alpha1::{IpFamily, Protocol, Service, TrafficPolicy};
use serde::Deserialize;
use serde_json::Value;

use super::{Trial, Wanted};
use crate::{
    case::{Outcome, Stop},
    scenario::Variables,
};

/// The hook that looks.
pub(crate) const INSPECT: &str = "inspect-load-balancer";
/// Of more than this many, only the differences are shown.
const SHOWN: usize = 20;
/// Sources that mean everybody, which is the same as no restriction.
const EVERYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// One balancer in the cloud.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Standing {
    ports: BTreeSet<StandingPort>,
    /// None if the cloud's balancer has only a name.
    families: Option<BTreeSet<String>>,
    /// None if the cloud restricts at the instances, and none stands behind the balancer.
    source_ranges: Option<BTreeSet<String>>,
    /// Provider IDs.
    targets: BTreeSet<String>,
    health_check: Option<HealthCheck>,
    /// All that one client sends goes to one instance.
    #[serde(default)]
    client_ip_affinity: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct StandingPort {
    protocol: String,
    port: i32,
    /// None if the cloud reaches nodes or pods in another way.
    node_port: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct HealthCheck {
    port: i32,
}

impl Standing {
    fn of(hook: &str, printed: Value) -> Result<Vec<Self>, Stop> {
        let all = match printed {
            Value::Array(all) => all,
            Value::Null => Vec::new(),
            one => vec![one],
        };
        let read = |one: Value| {
            Self::deserialize(&one)
                .map_err(|error| Stop::NotRun(format!("hook {hook} printed another shape: {error}: {one}")))
        };
        all.into_iter().map(read).collect()
    }

    /// The differences from what was requested, in words; none if everything matches.
    pub(crate) fn differs(&self, wanted: &Wanted) -> Option<String> {
        let service = &wanted.service;
        let machines = wanted.nodes.iter().map(|node| node.provider_id.clone());
        let machines: BTreeSet<String> = machines.filter(|id| !id.is_empty()).collect();
        let differences = [
            self.ports_differ(service),
            unlike("targets", &self.targets, &machines),
            self.ranges_differ(service),
            self.families_differ(service),
            self.check_differs(service),
            self.affinity_differs(service),
        ];
        let told: Vec<_> = differences.into_iter().flatten().collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    fn ports_differ(&self, service: &Service) -> Option<String> {
        // Where none are allocated, none may be told: not 0 either.
        let tells_node_ports = service.allocate_node_ports != Some(false)
            && self.ports.iter().any(|port| port.node_port.is_some());
        let wanted = service.ports.iter().map(|port| StandingPort {
            protocol: port.protocol().as_str_name().trim_start_matches("PROTOCOL_").to_owned(),
            port: port.port,
            node_port: tells_node_ports.then_some(port.node_port),
        });
        unlike("ports", &self.ports, &wanted.collect())
    }

    fn ranges_differ(&self, service: &Service) -> Option<String> {
        let Some(seen) = &self.source_ranges else {
            let told = || "source_ranges are not told, though instances stand behind it".to_owned();
            return (!self.targets.is_empty()).then(told);
        };
        unlike("source_ranges", &restricted(seen), &restricted(&service.source_ranges))
    }

    fn families_differ(&self, service: &Service) -> Option<String> {
        let name = |family: IpFamily| match family {
            IpFamily::Ipv4 => Some("IPv4".to_owned()),
            IpFamily::Ipv6 => Some("IPv6".to_owned()),
            IpFamily::Unspecified => None,
        };
        let wanted: BTreeSet<String> = service.ip_families().filter_map(name).collect();
        let told = self.families.as_ref().filter(|_| !wanted.is_empty())?;
        unlike("families", told, &wanted)
    }

    /// The port of the nodes that it probes.
    pub(crate) fn probed(&self) -> Option<i32> {
        self.health_check.as_ref().map(|check| check.port)
    }

    fn check_differs(&self, service: &Service) -> Option<String> {
        let local = service.external_traffic_policy() == TrafficPolicy::Local;
        let (seen, wanted) = (self.probed(), Some(service.health_check_node_port));
        (local && seen != wanted)
            .then(|| format!("health_check.port is {seen:?}, not {wanted:?} (policy LOCAL)"))
    }

    /// Some clouds have it always, whoever asks.
    fn affinity_differs(&self, service: &Service) -> Option<String> {
        (service.client_ip_affinity.is_some() && !self.client_ip_affinity)
            .then(|| "client_ip_affinity is not there".to_owned())
    }
}

/// None where everybody is let in, whoever else is named, too.
fn restricted<'a>(ranges: impl IntoIterator<Item = &'a String> + Clone) -> BTreeSet<String> {
    let is_everybody = |range: &String| EVERYBODY.contains(&range.as_str());
    if ranges.clone().into_iter().any(is_everybody) {
        return BTreeSet::new();
    }
    ranges.into_iter().cloned().collect()
}

fn unlike<T: Ord + std::fmt::Debug>(what: &str, seen: &BTreeSet<T>, wanted: &BTreeSet<T>) -> Option<String> {
    if seen == wanted {
        return None;
    }
    if seen.len().max(wanted.len()) <= SHOWN {
        return Some(format!("{what} are {seen:?}, not {wanted:?}"));
    }
    let part = |word: &str, of: &BTreeSet<T>, without: &BTreeSet<T>| {
        let first = of.difference(without).next()?;
        Some(format!(", {} {word}, first {first:?}", of.difference(without).count()))
    };
    let (missing, strange) = (part("missing", wanted, seen), part("not asked for", seen, wanted));
    let parts = [missing, strange].into_iter().flatten().collect::<String>();
    Some(format!("{what} are {}, not {}{parts}", seen.len(), wanted.len()))
}

impl Trial {
    /// The cloud's balancers for this Service.
    pub(crate) async fn standing(&self, wanted: &Wanted) -> Result<Vec<Standing>, Stop> {
        let reference = wanted.service_ref();
        let told = Variables::new()
            .with("SERVICE_UID", reference.uid)
            .with("SERVICE_NAMESPACE", reference.namespace)
            .with("SERVICE_NAME", reference.name)
            .with("CLUSTER_UID", &wanted.cluster.uid)
            .with("CLUSTER_NAME", &wanted.cluster.name);
        Standing::of(INSPECT, self.hook(INSPECT, &told).await?)
    }

    /// Checks that the cloud has one balancer for this Service, exactly as requested.
    pub(crate) async fn stands(&self, wanted: &Wanted) -> Outcome {
        self.eventually("the cloud has what was asked for", async || {
            Ok(self.deviation(wanted).await?.map_or(Ok(()), Err))
        })
        .await
    }

    /// How what the cloud has for this Service now differs from what was asked for, if it does.
    pub(crate) async fn deviation(&self, wanted: &Wanted) -> Result<Option<String>, Stop> {
        let standing = self.standing(wanted).await?;
        Ok(match standing.as_slice() {
            [one] => one.differs(&self.sent(wanted)),
            several => Some(format!("{} balancers of this Service: {several:?}", several.len())),
        })
    }

    /// Checks that the cloud has nothing for this Service.
    pub(crate) async fn nothing_stands(&self, wanted: &Wanted) -> Outcome {
        self.eventually("the cloud has no balancer of this Service", async || {
            let standing = self.standing(wanted).await?;
            Ok(if standing.is_empty() { Ok(()) } else { Err(format!("{standing:?}")) })
        })
        .await
    }
}

/// A port of this protocol.
pub(crate) fn port_of(protocol: Protocol, port: i32) -> cloudprovider_proto::v1alpha1::ServicePort {
    let name = format!("{}-{port}", protocol.as_str_name().trim_start_matches("PROTOCOL_").to_lowercase());
    cloudprovider_proto::v1alpha1::ServicePort { name, protocol: protocol.into(), ..super::tcp(port) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{case::Stop, trial::tcp};

    fn wanted() -> Wanted {
        let node = |id: &str| cloudprovider_proto::v1alpha1::NodeRef {
            provider_id: id.to_owned(),
            ..Default::default()
        };
        Wanted {
            cluster: Default::default(),
            service: Service {
                ports: vec![tcp(80)],
                source_ranges: vec!["192.0.2.0/24".into()],
                ip_families: vec![IpFamily::Ipv4.into()],
                external_traffic_policy: TrafficPolicy::Local.into(),
                health_check_node_port: 32_000,
                client_ip_affinity: Some(prost_types::Duration::default()),
                ..Service::default()
            },
            nodes: vec![node("a://1"), node("")],
            digest: String::new(),
            revision: 0,
            adoption: Default::default(),
        }
    }

    fn differs(change: impl FnOnce(&mut Value)) -> Option<String> {
        let mut printed = json!({
            "ports": [{"protocol": "TCP", "port": 80, "node_port": 30_080}], "families": ["IPv4"],
            "source_ranges": ["192.0.2.0/24"], "targets": ["a://1"], "health_check": {"port": 32_000},
            "client_ip_affinity": true,
        });
        change(&mut printed);
        Standing::of("h", printed).unwrap().remove(0).differs(&wanted())
    }

    #[test]
    fn each_part_is_compared_and_what_a_cloud_does_not_have_is_not() {
        assert_eq!(differs(|_| ()), None);
        assert_eq!(differs(|seen| seen["ports"][0]["node_port"] = Value::Null), None);
        assert_eq!(differs(|seen| seen["families"] = Value::Null), None);
        for (path, value) in [
            ("/ports/0/protocol", json!("UDP")),
            ("/ports/0/node_port", json!(80)),
            ("/families/0", json!("IPv6")),
            ("/source_ranges", json!(["0.0.0.0/0"])),
            ("/source_ranges", Value::Null),
            ("/targets", json!(["a://1", "a://2"])),
            ("/health_check", Value::Null),
            ("/client_ip_affinity", json!(false)),
        ] {
            let told = differs(|seen| *seen.pointer_mut(path).unwrap() = value);
            let part = path.split('/').nth(1).unwrap();
            assert!(told.as_ref().is_some_and(|told| told.contains(part)), "{path}: {told:?}");
        }
    }

    #[test]
    fn a_service_without_node_ports_has_none() {
        let wanted = Service { ports: vec![tcp(80)], allocate_node_ports: Some(false), ..Service::default() };
        let told = |node_port: Value| {
            let port = json!({"protocol": "TCP", "port": 80, "node_port": node_port});
            Standing::of("h", json!([{"ports": [port], "targets": []}]))
                .unwrap()
                .remove(0)
                .ports_differ(&wanted)
        };
        assert_eq!(told(Value::Null), None);
        assert!(told(json!(0)).is_some() && told(json!(30_080)).is_some());
    }

    #[test]
    fn another_shape_is_told() {
        let Err(Stop::NotRun(why)) = Standing::of("h", json!([{"ports": []}])) else { panic!("it is read") };
        assert_eq!(why, r#"hook h printed another shape: missing field `targets`: {"ports":[]}"#);
    }
}
