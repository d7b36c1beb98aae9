//! Shapes of the requests of `Instances`.

use super::{Shape, parts};
use crate::Result;
use crate::proto::{
    AddSshKeyToAllInstancesRequest, BatchGetInstancesRequest, ClusterRef, Fencing, ListInstancesRequest,
    WatchInstancesRequest,
};
use crate::provider::Advertised;

/// Longest login name.
const USER: usize = 32;
/// Longest public key.
const PUBLIC_KEY: usize = 16 << 10;

impl Shape for BatchGetInstancesRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn items(&self) -> Option<usize> {
        Some(self.queries.len())
    }

    fn check(&self, advertised: &Advertised) -> Result<()> {
        parts::cluster(&self.cluster)?;
        parts::batch("queries", self.queries.len(), advertised.max_batch_instances)?;
        parts::keys("queries", self.queries.iter().map(|query| query.key.as_str()))?;
        self.queries
            .iter()
            .enumerate()
            .try_for_each(|(at, query)| parts::node(&format!("queries[{at}].node"), &query.node))
    }
}

impl Shape for WatchInstancesRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::cluster(&self.cluster)?;
        parts::short("resume_token", &self.resume_token, parts::LONG)
    }
}

impl Shape for ListInstancesRequest {
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

impl Shape for AddSshKeyToAllInstancesRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn fencing(&self) -> Option<&Fencing> {
        self.fencing.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::mutation(&self.cluster, &self.fencing)?;
        parts::text("user", &self.user, USER)?;
        parts::text("public_key", &self.public_key, PUBLIC_KEY)
    }
}
