//! Reads Services as this controller does: which want a balancer or its cleanup, and which of their changes need a
//! reconcile.
//!
//! In: a Service, or two versions of it. Out: yes or no, and keys in the queue; the class that a Service had before it
//! changed its type; the `ipMode` that it wants. The compared fields include all of upstream's, so that nothing is missed;
//! whether the cloud is then asked depends on the digest in [`plan`](mod@super::plan). [`ccm_cloud`] decides who owns
//! which class, and [`ccm_kube::patch`] what must be written.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use super::{Controller, RunKey};
use ccm_base::text::{NAME, cut};
use ccm_cloud::ServiceOwner;
use ccm_kube::{
    cache::Change,
    service::{ObjectKey, Service},
};

/// The finalizer of every Service with a balancer: upstream's, shared by all implementations.
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Whether the Service is of type LoadBalancer, whoever owns its class.
pub(super) fn is_load_balancer(service: &Service) -> bool {
    service.spec.type_ == "LoadBalancer"
}

pub(super) fn has_finalizer(service: &Service) -> bool {
    service.has_finalizer(FINALIZER)
}

/// Whether the finalizer protects a balancer that is no longer wanted.
fn needs_cleanup(service: &Service) -> bool {
    has_finalizer(service) && (service.is_deleting() || !is_load_balancer(service))
}

/// Whether a Service seen for the first time needs a reconcile.
pub(super) fn is_of_interest(service: &Service) -> bool {
    is_load_balancer(service) || has_finalizer(service)
}

/// Whether a change needs a reconcile. `ours` says whether a provider of this host may own a Service.
fn needs_look(old: &Service, new: &Service, ours: impl Fn(&Service) -> bool) -> bool {
    // Only the transition to cleanup: while cleanup is in progress, the queue decides when to retry.
    let falls = needs_cleanup(new) && !needs_cleanup(old);
    falls || needs_update(old, new, ours)
}

/// Whether the change touches anything that a balancer may depend on.
fn needs_update(old: &Service, new: &Service, ours: impl Fn(&Service) -> bool) -> bool {
    let wants = |service: &Service| is_load_balancer(service) && ours(service);
    match (wants(old), wants(new)) {
        (false, false) => false,
        (true, true) => {
            // The cache keeps only the labels and annotations that some provider reads.
            old.uid != new.uid
                || old.labels != new.labels
                || old.annotations != new.annotations
                || old.spec != new.spec
        }
        _ => true,
    }
}

/// Whether it has lost its finalizer for good: what is known of its balancer can go.
fn is_freed(old: &Service, new: &Service) -> bool {
    has_finalizer(old) && !has_finalizer(new) && (new.is_deleting() || !is_load_balancer(new))
}

impl Controller {
    pub(super) fn service_changed(&self, change: &Change<Service>) {
        self.former_classes.see(change);
        let ours = |service: &Service| {
            !matches!(self.shell.parts.providers.for_service(service), ServiceOwner::Nobody)
        };
        let look = match change {
            Change::Added(service) => is_of_interest(service),
            Change::Updated { old, new } => is_freed(old, new) || needs_look(old, new, ours),
            // Its rows know whether it left a balancer.
            Change::Deleted(_) => true,
        };
        if look {
            self.shell.queue.add(RunKey::Service(change.object().key.clone()));
        }
    }
}

/// The class of each Service that changed its type but still has the finalizer: the apiserver clears it with the type, and
/// it shows whose finalizer it is. A restart loses this; then the finalizer counts as ours, as it does for upstream.
#[derive(Debug, Default)]
pub(super) struct FormerClasses(
    /// The Services as they were before.
    Mutex<HashMap<ObjectKey, Arc<Service>>>,
);

impl FormerClasses {
    /// Records a change of a Service. Never blocks.
    fn see(&self, change: &Change<Service>) {
        let service = change.object();
        let waits_for_cleanup = has_finalizer(service) && !is_load_balancer(service);
        match change {
            Change::Updated { old, new } if waits_for_cleanup && old.uid == new.uid => {
                if is_load_balancer(old) {
                    self.0.lock().insert(new.key.clone(), Arc::clone(old));
                }
            }
            _ => _ = self.0.lock().remove(&service.key),
        }
    }

    /// The Service's former class, if known; the inner `None` means that it had none.
    pub(super) fn of(&self, service: &Service) -> Option<Option<String>> {
        let known = self.0.lock();
        let former = known.get(&service.key).filter(|former| former.uid == service.uid)?;
        Some(former.spec.load_balancer_class.clone())
    }
}

/// On a Service: the `ipMode` of its addresses, whatever its provider says.
pub(super) const IP_MODE: &str = "cloudprovider.ccm/load-balancer-ip-mode";

/// The `ipMode` that the Service wants; an error names the value and the remedy.
pub(super) fn ip_mode(service: &Service) -> Result<Option<&str>, String> {
    match service.annotations.get(IP_MODE) {
        mode @ (None | Some("VIP" | "Proxy")) => Ok(mode),
        Some(other) => Err(format!(
            "annotation {IP_MODE}: {:?} is neither VIP nor Proxy: set one of them, or remove it",
            cut(other, NAME)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm_kube::{
        fixtures::service,
        patch::service_ingress,
        service::{ClientIpConfig, Ingress, PortStatus, ServiceSpec, SessionAffinityConfig, TargetPort},
    };

    fn lb() -> Service {
        service("web").load_balancer().with_port("", 80)
    }

    fn ours(service: &Service) -> bool {
        let class = service.spec.load_balancer_class.as_deref();
        class.is_none() || class == Some("example/ours")
    }

    fn with(mut service: Service, change: impl FnOnce(&mut Service)) -> Service {
        change(&mut service);
        service
    }

    #[test]
    fn cleanup_is_for_a_finalizer_that_nobody_wants() {
        let (cluster, fin) = (service("web"), |service: Service| service.with_finalizer(FINALIZER));
        let node_port = with(service("web"), |service| service.spec.type_ = "NodePort".to_owned());
        let rows = [
            ("CLN-1", cluster.clone(), false),
            ("CLN-2", lb(), false),
            ("CLN-3", cluster.deleting(), false),
            ("CLN-4", lb().deleting(), false),
            ("CLN-5", fin(node_port.clone()), true),
            ("CLN-6", fin(lb()), false),
            ("CLN-7", fin(node_port.deleting()), true),
            ("CLN-8", fin(lb().deleting()), true),
        ];
        for (id, service, want) in rows {
            assert_eq!(needs_cleanup(&service), want, "{id}");
        }
    }

    #[test]
    fn the_finalizer_is_found_among_others() {
        let rows = [
            ("HLP-21", service("web"), false),
            ("HLP-21", service("web").with_finalizer("unrelated"), false),
            ("HLP-22", service("web").with_finalizer(FINALIZER), true),
            ("HLP-22", service("web").with_finalizer(FINALIZER).with_finalizer("unrelated"), true),
        ];
        for (id, service, want) in rows {
            assert_eq!(has_finalizer(&service), want, "{id}");
        }
    }

    #[test]
    fn what_a_balancer_may_depend_on_is_seen() {
        let spec = |change: fn(&mut ServiceSpec)| with(lb(), |service| change(&mut service.spec));
        let port = |change: fn(&mut ccm_kube::service::ServicePort)| {
            with(lb(), |service| change(&mut service.spec.ports[0]))
        };
        let ports = |numbers: [i32; 3]| {
            numbers.into_iter().fold(service("web").load_balancer(), |service, number| {
                service.with_port(&number.to_string(), number)
            })
        };
        let ips = |ips: &[&str]| {
            with(lb(), |service| service.spec.external_ips = ips.iter().map(|&ip| ip.to_owned()).collect())
        };
        let families = |families: &[&str]| {
            with(lb(), |service| {
                service.spec.ip_families = families.iter().map(|&family| family.to_owned()).collect();
            })
        };
        let protocol = |word: &str| {
            let word = Some(word.to_owned());
            with(lb(), |service| service.spec.ports[0].app_protocol = word)
        };
        let target = |port: TargetPort| with(lb(), |service| service.spec.ports[0].target_port = port);
        let named = TargetPort::Name("dns".to_owned());
        let rows = [
            ("NU-1", lb(), spec(|spec| spec.type_ = "ClusterIP".to_owned()), true),
            ("NU-2", ports([8000, 9000, 10_000]), ports([8001, 9001, 10_001]), true),
            ("NU-3", ips(&["8.8.4.4"]), ips(&["8.8.4.4", "8.8.4.5"]), true),
            ("NU-4", ips(&["8.8.4.4"]), ips(&["8.8.4.5"]), true),
            ("NU-5", lb(), lb().uid("other"), true),
            ("NU-6", lb(), spec(|spec| spec.external_traffic_policy = "Local".to_owned()), true),
            ("NU-7", lb(), spec(|spec| spec.health_check_node_port = 30_123), true),
            ("NU-8", target(TargetPort::Number(20)), target(TargetPort::Number(21)), true),
            ("NU-9", target(TargetPort::Number(22)), target(named), true),
            ("NU-10", lb(), lb(), false),
            ("NU-11", families(&["IPv4"]), families(&["IPv4", "IPv6"]), true),
            ("NU-12", families(&["IPv4", "IPv6"]), families(&["IPv4"]), true),
            ("NU-13", families(&["IPv4"]), families(&["IPv4"]), false),
            ("NU-14", lb(), protocol("http"), true),
            ("NU-15", protocol("http"), protocol("tcp"), true),
            // Differs from upstream on purpose: no annotations and an empty map are the same to us.
            ("NU-16", lb(), with(lb(), |service| service.annotations = Default::default()), false),
            ("NU-16", lb(), spec(|spec| spec.load_balancer_source_ranges = Some(Vec::new())), true),
            ("NU-17", lb(), port(|port| port.name = "x".to_owned()), true),
            ("NU-17", lb(), port(|port| port.node_port = 1), true),
            ("NU-17", lb(), port(|port| port.protocol = "UDP".to_owned()), true),
            ("NU-17", lb(), target(TargetPort::Name("80".to_owned())), true),
            ("NU-17", ports([1, 2, 3]), ports([1, 3, 2]), true),
            ("NU-18", lb(), spec(|spec| spec.session_affinity = "ClientIP".to_owned()), true),
            ("NU-18", lb(), spec(|spec| spec.session_affinity_config = sticky()), true),
            ("NU-18", lb(), spec(|spec| spec.load_balancer_ip = "8.8.4.4".to_owned()), true),
            ("NU-19", lb(), lb().with_class("other/lb"), true),
            ("NU-20", lb().with_class("other/a"), lb().with_class("other/b"), false),
            // Differs from upstream on purpose: a provider receives the order.
            ("NU-21", families(&["IPv4", "IPv6"]), families(&["IPv6", "IPv4"]), true),
            ("NU-22", lb(), lb().with_finalizer("x"), false),
            ("NU-22", lb(), lb().deleting(), false),
            ("NU-22", lb(), lb().with_ingress_ip("8.8.8.8"), false),
            // Differ from upstream on purpose: a provider receives these, too.
            ("NU-22", lb(), spec(|spec| spec.cluster_ips = vec!["10.0.0.1".to_owned()]), true),
            ("NU-22", lb(), spec(|spec| spec.internal_traffic_policy = Some("Local".to_owned())), true),
            ("NU-22", lb(), spec(|spec| spec.allocate_load_balancer_node_ports = Some(false)), true),
            ("NU-23", decoded("null"), decoded("[]"), false),
            ("NU-22", lb(), lb().with_label("wanted", "by a provider"), true),
            ("SW-21", lb(), lb().with_annotation("wanted", "by a provider"), true),
            ("class of ours", lb().with_class("example/ours"), lb(), true),
        ];
        for (id, old, new, want) in rows {
            assert_eq!(needs_update(&old, &new, ours), want, "{id}: {old:?} to {new:?}");
        }
    }

    fn decoded(external_ips: &str) -> Service {
        let spec = format!(r#"{{"type": "LoadBalancer", "externalIPs": {external_ips}}}"#);
        with(lb(), |service| service.spec = serde_json::from_str(&spec).unwrap())
    }

    fn sticky() -> Option<SessionAffinityConfig> {
        Some(SessionAffinityConfig { client_ip: Some(ClientIpConfig { timeout_seconds: Some(60) }) })
    }

    /// SW-20: upstream reconciles again at each resync, regardless of the backoff.
    #[test]
    fn only_the_step_into_cleanup_deserves_a_look() {
        let fin = || service("web").with_finalizer(FINALIZER);
        assert!(needs_look(&lb().with_finalizer(FINALIZER), &fin(), ours), "type changed");
        assert!(
            needs_look(&lb().with_finalizer(FINALIZER), &lb().with_finalizer(FINALIZER).deleting(), ours),
            "deleted"
        );
        assert!(!needs_look(&fin(), &fin().with_label("a", "b"), ours), "cleanup goes on");
        assert!(!needs_look(&service("web"), &service("web").deleting(), ours), "none of our concern");
    }

    #[test]
    fn a_class_is_known_for_as_long_as_the_finalizer_stands() {
        let classes = FormerClasses::default();
        let theirs = || service("web").load_balancer().with_class("other/lb").with_finalizer(FINALIZER);
        let plain = || service("web").with_finalizer(FINALIZER);
        let turn = |old: Service, new: Service| Change::Updated { old: Arc::new(old), new: Arc::new(new) };
        let of = |service: &Service| classes.of(service);
        classes.see(&Change::Added(Arc::new(plain())));
        assert_eq!(of(&plain()), None, "nobody saw its type change");
        classes.see(&turn(theirs(), plain()));
        classes.see(&turn(plain(), plain().with_annotation("a", "b")));
        assert_eq!(of(&plain()), Some(Some("other/lb".to_owned())));
        assert_eq!(of(&plain().uid("another")), None);
        classes.see(&turn(plain(), service("web")));
        assert_eq!(of(&plain()), None, "cleaned up");
        classes.see(&turn(theirs(), plain()));
        classes.see(&Change::Deleted(Arc::new(plain())));
        assert!(classes.0.lock().is_empty());
    }

    fn ip(ip: &str, mode: Option<&str>) -> Ingress {
        Ingress { ip: ip.to_owned(), ip_mode: mode.map(str::to_owned), ..Ingress::default() }
    }

    fn port(protocol: &str) -> PortStatus {
        PortStatus { port: 80, protocol: protocol.to_owned(), error: None }
    }

    fn with_ports(ports: Vec<PortStatus>) -> Ingress {
        Ingress { ports, ..ip("8.8.8.8", None) }
    }

    #[test]
    fn a_status_is_written_only_if_it_differs() {
        let rows = [
            ("STAT-1", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", Some("VIP"))], false),
            ("STAT-2", vec![], vec![ip("8.8.8.8", None)], true),
            ("STAT-3", vec![], vec![], false),
            ("STAT-4", vec![ip("8.8.8.8", Some("VIP"))], vec![], true),
            // Differs from upstream on purpose (SW-19): the apiserver fills in the mode.
            ("STAT-5", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", None)], false),
            ("HLP-25", vec![], vec![], false),
            ("HLP-26", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.9", Some("VIP"))], true),
            ("HLP-27", vec![ip("8.8.8.8", Some("Proxy"))], vec![ip("8.8.8.8", Some("Proxy"))], false),
            ("HLP-27", vec![ip("8.8.8.8", Some("Proxy"))], vec![ip("8.8.8.8", None)], true),
            ("HLP-27", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", Some("Proxy"))], true),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![port("TCP")])], false),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![port("UDP")])], true),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![])], true),
            (
                "HLP-29",
                vec![ip("8.8.8.8", None), ip("8.8.8.9", None)],
                vec![ip("8.8.8.9", None), ip("8.8.8.8", None)],
                true,
            ),
        ];
        for (id, before, after, want) in rows {
            let stored = Service { ingress: before, ..service("web").load_balancer() };
            assert_eq!(service_ingress(&stored, &after).is_some(), want, "{id}");
        }
    }

    #[test]
    fn a_host_name_has_no_mode_and_no_address() {
        let error = Some("Closed".to_owned());
        let ports = vec![PortStatus { port: 443, protocol: "TCP".to_owned(), error }];
        let named = Ingress { hostname: "lb.example".to_owned(), ports, ..Ingress::default() };
        let written = serde_json::to_value(&named).unwrap();
        let want = serde_json::json!({
            "hostname": "lb.example",
            "ports": [{"port": 443, "protocol": "TCP", "error": "Closed"}],
        });
        assert_eq!(written, want);
    }
}
