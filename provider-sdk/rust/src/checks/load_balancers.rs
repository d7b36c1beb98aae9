//! Shapes of the requests of `LoadBalancers`.

use std::collections::HashSet;

use super::{BackendSets, Shape, parts};
use crate::proto::{
    BackendSet, BatchUpdateLoadBalancersRequest, ClusterRef, DeleteLoadBalancerRequest,
    EnsureLoadBalancerRequest, Fencing, GetLoadBalancerRequest, ListLoadBalancersRequest, LoadBalancerUpdate,
};
use crate::provider::Advertised;
use crate::{ProviderError, Result};

impl Shape for GetLoadBalancerRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::cluster(&self.cluster)?;
        parts::service("service", &self.service)
    }
}

impl Shape for EnsureLoadBalancerRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn fencing(&self) -> Option<&Fencing> {
        self.fencing.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::mutation(&self.cluster, &self.fencing)?;
        let service = parts::present("service", &self.service)?;
        parts::service("service.ref", &service.r#ref)?;
        backend_set("backends", parts::present("backends", &self.backends)?)?;
        parts::digest("desired_digest", &self.desired_digest)
    }

    fn complete(&mut self, sets: &BackendSets) -> Result<()> {
        sets.complete(parts::uid_of_cluster(&self.cluster), &mut self.backends)
    }
}

impl Shape for BatchUpdateLoadBalancersRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn fencing(&self) -> Option<&Fencing> {
        self.fencing.as_ref()
    }

    fn items(&self) -> Option<usize> {
        Some(self.items.len())
    }

    fn check(&self, advertised: &Advertised) -> Result<()> {
        parts::mutation(&self.cluster, &self.fencing)?;
        parts::batch("items", self.items.len(), advertised.max_batch_load_balancers)?;
        backend_set("backends", parts::present("backends", &self.backends)?)?;
        let mut seen = HashSet::new();
        for (at, item) in self.items.iter().enumerate() {
            let uid = update(&format!("items[{at}]"), item)?;
            if !seen.insert(uid) {
                let field = format!("items[{at}].service.ref.uid");
                return Err(ProviderError::invalid_argument_shape(&field, "is a duplicate"));
            }
        }
        Ok(())
    }

    fn complete(&mut self, sets: &BackendSets) -> Result<()> {
        sets.complete(parts::uid_of_cluster(&self.cluster), &mut self.backends)
    }
}

/// A set with `nodes_omitted` has a digest and no nodes.
fn backend_set(field: &str, set: &BackendSet) -> Result<()> {
    let digest = format!("{field}.digest");
    if !set.nodes_omitted {
        return parts::short(&digest, &set.digest, parts::DIGEST);
    }
    parts::digest(&digest, &set.digest)?;
    if set.nodes.is_empty() {
        return Ok(());
    }
    Err(ProviderError::invalid_argument_shape(
        &format!("{field}.nodes"),
        "are present although nodes_omitted is set",
    ))
}

/// Checks one item and returns its key.
fn update<'a>(field: &str, item: &'a LoadBalancerUpdate) -> Result<&'a str> {
    let service = parts::present(&format!("{field}.service"), &item.service)?;
    parts::service(&format!("{field}.service.ref"), &service.r#ref)?;
    parts::digest(&format!("{field}.desired_digest"), &item.desired_digest)?;
    Ok(service.r#ref.as_ref().map_or("", |service| service.uid.as_str()))
}

impl Shape for DeleteLoadBalancerRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn fencing(&self) -> Option<&Fencing> {
        self.fencing.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::mutation(&self.cluster, &self.fencing)?;
        parts::service("service", &self.service)
    }
}

impl Shape for ListLoadBalancersRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::page(&self.cluster, self.page_size, &self.page_token)
    }

    fn fit(&mut self, advertised: &Advertised) {
        self.page_size = parts::page_size(self.page_size, advertised.max_page_size);
    }
}
