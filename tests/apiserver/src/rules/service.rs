//! Rules of Services.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::{refusal::Cause, store::Allocator};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn default(service: &mut Value) {
    let spec = &mut service["spec"];
    let mut set = |key: &str, value: Value| {
        if spec[key].is_null() {
            spec[key] = value;
        }
    };
    set("type", json!("ClusterIP"));
    set("sessionAffinity", json!("None"));
    if takes_cluster_ip(spec) {
        set_if_absent(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if takes_node_ports(spec) {
        set_if_absent(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        set_if_absent(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in items(spec, "/ports") {
        set_if_absent(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        set_if_absent(port, "targetPort", number);
    }
    for entry in items(service, "/status/loadBalancer/ingress") {
        if entry["ip"].is_string() {
            set_if_absent(entry, "ipMode", json!("VIP"));
        }
    }
}

/// The items of a list, none if there is no list.
fn items<'a>(object: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    object.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten()
}

fn set_if_absent(object: &mut Value, key: &str, value: Value) {
    if object[key].is_null() {
        object[key] = value;
    }
}

fn takes_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
}

fn takes_cluster_ip(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn takes_health_port(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Assigns addresses and ports from the cluster's ranges.
pub(super) fn allocate(service: &mut Value, allocator: &mut Allocator) {
    let spec = &mut service["spec"];
    if takes_cluster_ip(spec) {
        if spec["clusterIP"].is_null() {
            spec["clusterIP"] = json!(allocator.cluster_ip());
        }
        if spec["clusterIPs"].is_null() {
            spec["clusterIPs"] = json!([spec["clusterIP"]]);
        }
        // A headless Service without a selector may have endpoints of any family.
        let any = spec["clusterIP"] == "None" && spec["selector"].is_null();
        let (families, policy) = if any {
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!(["IPv4"]), "SingleStack")
        };
        set_if_absent(spec, "ipFamilies", families);
        set_if_absent(spec, "ipFamilyPolicy", json!(policy));
    }
    if takes_node_ports(spec) && spec["allocateLoadBalancerNodePorts"] != json!(false) {
        for port in items(spec, "/ports") {
            if port["nodePort"].is_null() {
                port["nodePort"] = json!(allocator.node_port());
            }
        }
    }
    if takes_health_port(spec) && spec["healthCheckNodePort"].is_null() {
        spec["healthCheckNodePort"] = json!(allocator.node_port());
    }
}

/// Drops fields that an update leaves unchanged although the new type has no use for them.
pub(super) fn drop_dependent(service: &mut Value, old: &Value) {
    let (spec, was) = (&mut service["spec"], &old["spec"]);
    if takes_cluster_ip(spec) {
        for field in ["clusterIP", "clusterIPs"] {
            set_if_absent(spec, field, was[field].clone());
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            set_if_absent(spec, field, was[field].clone());
        }
    } else if takes_cluster_ip(was) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            drop_unless_changed(spec, was, field);
        }
    }
    keep_node_ports(spec, was);
    if takes_health_port(was) && !takes_health_port(spec) {
        drop_unless_changed(spec, was, "healthCheckNodePort");
    }
    if was["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
        drop_unless_changed(spec, was, "allocateLoadBalancerNodePorts");
        drop_unless_changed(spec, was, "loadBalancerClass");
    }
    if takes_node_ports(was) && !takes_node_ports(spec) {
        drop_unless_changed(spec, was, "externalTrafficPolicy");
    }
    if spec["type"] != "LoadBalancer" {
        service["status"]["loadBalancer"] = json!({});
    }
    if let Some(spec) = service["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
}

fn drop_unless_changed(spec: &mut Value, was: &Value, field: &str) {
    if spec[field] == was[field] {
        remove(spec, field);
    }
}

fn remove(object: &mut Value, field: &str) {
    let _old = object.as_object_mut().and_then(|map: &mut Map<String, Value>| map.remove(field));
}

/// A port without a node port keeps the one it had, if the type has node ports.
fn keep_node_ports(spec: &mut Value, was: &Value) {
    let kept = takes_node_ports(spec);
    let old = was["ports"].as_array().cloned().unwrap_or_default();
    for port in items(spec, "/ports") {
        let same = old.iter().find(|one| one["port"] == port["port"] && one["protocol"] == port["protocol"]);
        let Some(number) = same.map(|one| &one["nodePort"]).filter(|number| !number.is_null()) else {
            continue;
        };
        if kept {
            set_if_absent(port, "nodePort", number.clone());
        } else if port["nodePort"] == *number {
            remove(port, "nodePort");
        }
    }
}

pub(super) fn wrong(of_status: bool, service: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = ingress(service);
    if of_status {
        return causes;
    }
    let spec = &service["spec"];
    let kind = spec["type"].as_str().unwrap_or_default();
    if !TYPES.contains(&kind) {
        causes.push(Cause::unsupported("spec.type", kind, &TYPES));
    }
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && kind != "ExternalName" && spec["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    for (at, port) in ports.iter().enumerate() {
        if ports.len() > 1 && port["name"].is_null() {
            causes.push(Cause::required(format!("spec.ports[{at}].name"), ""));
        }
        for field in ["port", "targetPort"].into_iter().filter(|field| !port[*field].is_string()) {
            if !matches!(port[field].as_i64(), Some(1..=65535)) {
                let message = "must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(format!("spec.ports[{at}].{field}"), &port[field], message));
            }
        }
    }
    if let Some(old) = old {
        let class = &old["spec"]["loadBalancerClass"];
        if old["spec"]["type"] == "LoadBalancer"
            && kind == "LoadBalancer"
            && *class != spec["loadBalancerClass"]
        {
            let message = "may not change once set";
            causes.push(Cause::invalid("spec.loadBalancerClass", &spec["loadBalancerClass"], message));
        }
        let address = &old["spec"]["clusterIP"];
        if takes_cluster_ip(&old["spec"]) && takes_cluster_ip(spec) && *address != spec["clusterIP"] {
            causes.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIP"], "may not change once set"));
        }
    }
    causes
}

fn ingress(service: &Value) -> Vec<Cause> {
    let list = &service["status"]["loadBalancer"]["ingress"];
    let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if !entries.is_empty() && service["spec"]["type"] != "LoadBalancer" {
        let message = "may only be used when `spec.type` is 'LoadBalancer'";
        return vec![Cause::forbidden("status.loadBalancer.ingress", message)];
    }
    let mut causes = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let field = |name: &str| format!("status.loadBalancer.ingress[{at}].{name}");
        match entry["ip"].as_str() {
            Some(ip) if ip.parse::<IpAddr>().is_err() => {
                let message = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                causes.push(Cause::invalid(field("ip"), &entry["ip"], message));
            }
            None if !entry["ipMode"].is_null() => {
                causes.push(Cause::forbidden(field("ipMode"), "may not be specified when `ip` is not set"));
            }
            _ => {}
        }
        let mode = entry["ipMode"].as_str().unwrap_or("VIP");
        if !["VIP", "Proxy"].contains(&mode) {
            causes.push(Cause::unsupported(field("ipMode"), mode, &["Proxy", "VIP"]));
        }
    }
    causes
}
