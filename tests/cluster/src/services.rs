//! Services as a user makes them.

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

/// The finalizer that protects a balancer.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// A Service of type LoadBalancer in the namespace `default`, with one TCP port 80.
pub fn load_balancer(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "type": "LoadBalancer",
            "selector": { "app": name },
            "ports": [{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080 }],
        },
    })
}

/// Creates a Service.
pub async fn create(client: &Client, service: Value) -> Result<Service> {
    let service: Service = serde_json::from_value(service)?;
    let namespace = service.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
    Ok(Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &service).await?)
}

/// The addresses in its status.
pub fn ingress(service: &Service) -> Vec<String> {
    service
        .status
        .iter()
        .filter_map(|status| status.load_balancer.as_ref())
        .flat_map(|balancer| balancer.ingress.iter().flatten())
        .filter_map(|ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()))
        .collect()
}

/// Whether it has the finalizer.
pub fn has_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}
