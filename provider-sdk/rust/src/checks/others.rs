//! Shapes of the requests of `Volumes` and `Clusters`, and of the base.

use super::{Shape, parts};
use crate::Result;
use crate::proto::{
    BatchGetVolumeLabelsRequest, ClusterRef, GetControlPlaneEndpointRequest, GetStatusRequest, LeadRequest,
    ListClustersRequest,
};
use crate::provider::Advertised;

impl Shape for BatchGetVolumeLabelsRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn items(&self) -> Option<usize> {
        Some(self.queries.len())
    }

    fn check(&self, advertised: &Advertised) -> Result<()> {
        parts::cluster(&self.cluster)?;
        parts::batch("queries", self.queries.len(), advertised.max_batch_volumes)?;
        parts::keys("queries", self.queries.iter().map(|query| query.key.as_str()))?;
        for (at, query) in self.queries.iter().enumerate() {
            parts::text(&format!("queries[{at}].name"), &query.name, parts::LONG)?;
            parts::text(&format!("queries[{at}].plugin"), &query.plugin, parts::LONG)?;
            parts::text(&format!("queries[{at}].volume_id"), &query.volume_id, parts::LONG)?;
        }
        Ok(())
    }
}

impl Shape for ListClustersRequest {
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

impl Shape for GetControlPlaneEndpointRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::cluster(&self.cluster)?;
        parts::text("cluster_name", &self.cluster_name, parts::LONG)
    }
}

impl Shape for LeadRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        self.cluster.as_ref()
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        parts::mutation(&self.cluster, &self.fencing)
    }
}

impl Shape for GetStatusRequest {
    fn cluster(&self) -> Option<&ClusterRef> {
        None
    }

    fn check(&self, _advertised: &Advertised) -> Result<()> {
        Ok(())
    }
}
