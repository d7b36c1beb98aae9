//! Shapes of the requests of `Routes`.

use std::collections::HashSet;

use super::{Shape, parts};
use crate::proto::{
    BatchDeleteRoutesRequest, BatchEnsureRoutesRequest, ClusterRef, Fencing, ListRoutesRequest,
};
use crate::provider::Advertised;
use crate::{ProviderError, Result};

/// Longest CIDR: an IPv6 address with an embedded IPv4 one, and a prefix.
const CIDR: usize = 64;

impl Shape for ListRoutesRequest {
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

impl Shape for BatchEnsureRoutesRequest {
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
        parts::batch("items", self.items.len(), advertised.max_batch_routes)?;
        parts::keys("items", self.items.iter().map(|item| item.key.as_str()))?;
        let mut seen = HashSet::new();
        for (at, item) in self.items.iter().enumerate() {
            let field = format!("items[{at}].destination_cidr");
            parts::text(&field, &item.destination_cidr, CIDR)?;
            parts::node(&format!("items[{at}].target"), &item.target)?;
            if !seen.insert(item.destination_cidr.as_str()) {
                return Err(ProviderError::invalid_argument_shape(&field, "is a duplicate"));
            }
        }
        Ok(())
    }
}

impl Shape for BatchDeleteRoutesRequest {
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
        parts::batch("items", self.items.len(), advertised.max_batch_routes)?;
        parts::keys("items", self.items.iter().map(|item| item.key.as_str()))?;
        for (at, item) in self.items.iter().enumerate() {
            let field = format!("items[{at}].route");
            let route = parts::present(&field, &item.route)?;
            parts::text(&format!("{field}.id"), &route.id, parts::LONG)?;
            parts::text(&format!("{field}.destination_cidr"), &route.destination_cidr, CIDR)?;
        }
        Ok(())
    }
}
