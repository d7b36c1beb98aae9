//! Digests with one spelling per meaning: texts carry their length, lists their count, and maps are sorted.

use std::{collections::HashMap, fmt::Write as _};

use cloudprovider_proto::v1alpha1 as pb;
use sha2::{Digest as _, Sha256};

/// Bytes of a digest: 128 bits distinguish sets and keep the clouds' tags short.
const BYTES: usize = 16;

pub(super) struct Writer(Sha256);

impl Writer {
    pub(super) fn new(kind: &str) -> Self {
        let mut writer = Self(Sha256::new());
        writer.text(kind);
        writer
    }

    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().take(BYTES).fold(String::with_capacity(2 * BYTES), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    fn number(&mut self, number: i64) {
        self.0.update(number.to_be_bytes());
    }

    fn texts(&mut self, texts: &[String]) {
        self.count(texts.len());
        texts.iter().for_each(|text| self.text(text));
    }

    fn numbers(&mut self, numbers: &[i32]) {
        self.count(numbers.len());
        numbers.iter().for_each(|number| self.number((*number).into()));
    }

    fn pairs(&mut self, pairs: &HashMap<String, String>) {
        let mut sorted: Vec<_> = pairs.iter().collect();
        sorted.sort_unstable();
        self.count(sorted.len());
        for (key, value) in sorted {
            self.text(key);
            self.text(value);
        }
    }

    /// Digests the whole node; the destructuring forces a decision about each new field.
    pub(super) fn node(&mut self, node: &pb::NodeRef) {
        let pb::NodeRef {
            name,
            uid,
            provider_id,
            system_uuid,
            provided_node_ips,
            addresses,
            creation_time,
            labels,
            annotations,
            pod_cidrs,
            taints,
            unschedulable,
            readiness,
            deletion_time,
        } = node;
        for text in [name, uid, provider_id, system_uuid] {
            self.text(text);
        }
        self.texts(provided_node_ips);
        self.count(addresses.len());
        for pb::NodeAddress { r#type, address } in addresses {
            self.number((*r#type).into());
            self.text(address);
        }
        self.number(creation_time.as_ref().map_or(0, |time| time.seconds));
        self.pairs(labels);
        self.pairs(annotations);
        self.texts(pod_cidrs);
        self.count(taints.len());
        for pb::NodeTaint { key, value, effect } in taints {
            self.text(key);
            self.text(value);
            self.number((*effect).into());
        }
        self.numbers(&[i32::from(*unschedulable), *readiness]);
        self.number(deletion_time.as_ref().map_or(0, |time| time.seconds));
    }

    /// Digests everything wanted. The status is a balancer's answer, not a wish; finalizers and the deletion time
    /// change no balancer.
    pub(super) fn service(&mut self, service: &pb::Service) {
        let pb::Service {
            r#ref,
            labels,
            annotations,
            ports,
            load_balancer_class,
            load_balancer_ip,
            source_ranges,
            ip_families,
            ip_family_policy,
            cluster_ips,
            external_ips,
            client_ip_affinity,
            external_traffic_policy,
            internal_traffic_policy,
            health_check_node_port,
            allocate_node_ports,
            ingress: _,
            creation_time: _,
            finalizers: _,
            deletion_time: _,
        } = service;
        if let Some(pb::ServiceRef { namespace, name, uid }) = r#ref {
            [namespace, name, uid].iter().for_each(|text| self.text(text));
        }
        self.pairs(labels);
        self.pairs(annotations);
        self.count(ports.len());
        ports.iter().for_each(|port| self.port(port));
        self.text(load_balancer_class);
        self.text(load_balancer_ip);
        self.texts(source_ranges);
        self.numbers(ip_families);
        self.texts(cluster_ips);
        self.texts(external_ips);
        self.number(client_ip_affinity.as_ref().map_or(-1, |duration| duration.seconds));
        self.numbers(&[
            *ip_family_policy,
            *external_traffic_policy,
            *internal_traffic_policy,
            *health_check_node_port,
            allocate_node_ports.map_or(-1, i32::from),
        ]);
    }

    fn port(&mut self, port: &pb::ServicePort) {
        let pb::ServicePort { name, protocol, app_protocol, port, node_port, target_port } = port;
        self.text(name);
        self.text(app_protocol);
        self.numbers(&[*protocol, *port, *node_port]);
        match target_port {
            None => self.number(0),
            Some(pb::service_port::TargetPort::TargetPortNumber(number)) => self.numbers(&[1, *number]),
            Some(pb::service_port::TargetPort::TargetPortName(name)) => {
                self.number(2);
                self.text(name);
            }
        }
    }
}
