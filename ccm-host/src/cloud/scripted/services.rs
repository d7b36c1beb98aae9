//! The gRPC services, answered from the script.

use std::sync::{Arc, atomic::Ordering};

use cloudprovider_proto::{
    discovery::v1::{
        GetInfoRequest, GetInfoResponse,
        discovery_server::{Discovery, DiscoveryServer},
    },
    v1alpha1::{
        self as pb,
        cloud_provider_server::{CloudProvider, CloudProviderServer},
        instances_server::{Instances, InstancesServer},
        load_balancers_server::{LoadBalancers, LoadBalancersServer},
        routes_server::{Routes, RoutesServer},
    },
};
use futures::StreamExt as _;
use tonic::{
    Request, Response, Status,
    codegen::BoxStream,
    transport::{Server, server::Router},
};

use super::{Script, WatchStep};

const MOST_BYTES: usize = 64 << 20;

#[derive(Clone)]
struct Served(Arc<Script>);

pub(in crate::cloud) fn add(mut builder: Server, script: &Arc<Script>) -> Router {
    let served = Served(Arc::clone(script));
    builder
        .add_service(DiscoveryServer::new(served.clone()))
        .add_service(CloudProviderServer::new(served.clone()))
        .add_service(InstancesServer::new(served.clone()).max_decoding_message_size(MOST_BYTES))
        .add_service(LoadBalancersServer::new(served.clone()).max_decoding_message_size(MOST_BYTES))
        .add_service(RoutesServer::new(served).max_decoding_message_size(MOST_BYTES))
}

impl Served {
    fn enter<Q>(&self, rpc: &'static str, request: Request<Q>) -> Q {
        self.0.log.lock().push(rpc);
        let (metadata, _, message) = request.into_parts();
        self.0.metadata.lock().insert(rpc, metadata);
        message
    }
}

#[tonic::async_trait]
impl Discovery for Served {
    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        self.enter("GetInfo", request);
        Ok(Response::new(self.0.info.lock().clone()))
    }
}

#[tonic::async_trait]
impl CloudProvider for Served {
    async fn get_capabilities(
        &self,
        request: Request<pb::GetCapabilitiesRequest>,
    ) -> Result<Response<pb::GetCapabilitiesResponse>, Status> {
        self.enter("GetCapabilities", request);
        Ok(Response::new(self.0.capabilities.lock().clone()))
    }

    async fn get_status(
        &self,
        request: Request<pb::GetStatusRequest>,
    ) -> Result<Response<pb::GetStatusResponse>, Status> {
        self.enter("GetStatus", request);
        if self.0.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.0.status.lock().clone()))
    }

    async fn lead(&self, request: Request<pb::LeadRequest>) -> Result<Response<pb::LeadResponse>, Status> {
        let message = self.enter("Lead", request);
        let answer = (self.0.lead.lock())(message);
        answer.await.map(Response::new)
    }
}

#[tonic::async_trait]
impl Instances for Served {
    async fn batch_get_instances(
        &self,
        request: Request<pb::BatchGetInstancesRequest>,
    ) -> Result<Response<pb::BatchGetInstancesResponse>, Status> {
        let message = self.enter("BatchGetInstances", request);
        let answer = (self.0.instances.lock())(message);
        answer.await.map(Response::new)
    }

    async fn watch_instances(
        &self,
        request: Request<pb::WatchInstancesRequest>,
    ) -> Result<Response<BoxStream<pb::WatchInstancesResponse>>, Status> {
        let message = self.enter("WatchInstances", request);
        let steps = (self.0.watch.lock())(message);
        let frames = futures::stream::iter(steps.await?).then(|step| async move {
            match step {
                WatchStep::Frame(frame) => Ok(pb::WatchInstancesResponse { frame: Some(frame) }),
                WatchStep::Fail(status) => Err(status),
                WatchStep::Hang => std::future::pending().await,
            }
        });
        Ok(Response::new(Box::pin(frames)))
    }
}

#[tonic::async_trait]
impl LoadBalancers for Served {
    async fn ensure_load_balancer(
        &self,
        request: Request<pb::EnsureLoadBalancerRequest>,
    ) -> Result<Response<pb::EnsureLoadBalancerResponse>, Status> {
        let message = self.enter("EnsureLoadBalancer", request);
        let answer = (self.0.ensure.lock())(message);
        answer.await.map(Response::new)
    }

    async fn batch_update_load_balancers(
        &self,
        request: Request<pb::BatchUpdateLoadBalancersRequest>,
    ) -> Result<Response<pb::BatchUpdateLoadBalancersResponse>, Status> {
        let message = self.enter("BatchUpdateLoadBalancers", request);
        let answer = (self.0.update.lock())(message);
        answer.await.map(Response::new)
    }

    async fn list_load_balancers(
        &self,
        request: Request<pb::ListLoadBalancersRequest>,
    ) -> Result<Response<pb::ListLoadBalancersResponse>, Status> {
        let message = self.enter("ListLoadBalancers", request);
        let answer = (self.0.list.lock())(message);
        answer.await.map(Response::new)
    }
}

#[tonic::async_trait]
impl Routes for Served {
    async fn list_routes(
        &self,
        request: Request<pb::ListRoutesRequest>,
    ) -> Result<Response<pb::ListRoutesResponse>, Status> {
        let message = self.enter("ListRoutes", request);
        let answer = (self.0.list_routes.lock())(message);
        answer.await.map(Response::new)
    }

    async fn batch_ensure_routes(
        &self,
        request: Request<pb::BatchEnsureRoutesRequest>,
    ) -> Result<Response<pb::BatchEnsureRoutesResponse>, Status> {
        let message = self.enter("BatchEnsureRoutes", request);
        let answer = (self.0.ensure_routes.lock())(message);
        answer.await.map(Response::new)
    }

    async fn batch_delete_routes(
        &self,
        request: Request<pb::BatchDeleteRoutesRequest>,
    ) -> Result<Response<pb::BatchDeleteRoutesResponse>, Status> {
        let message = self.enter("BatchDeleteRoutes", request);
        let answer = (self.0.delete_routes.lock())(message);
        answer.await.map(Response::new)
    }
}
