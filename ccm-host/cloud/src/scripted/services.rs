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

pub(crate) fn add(mut builder: Server, script: &Arc<Script>) -> Router {
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

/// A service whose unary RPCs are answered by handlers of the script.
macro_rules! scripted {
    ($service:ident: $($rpc:ident, $name:literal, $handler:ident, $request:ident => $answer:ident;)* $({ $($others:tt)* })?) => {
        #[tonic::async_trait]
        impl $service for Served {
            $(async fn $rpc(&self, request: Request<pb::$request>) -> Result<Response<pb::$answer>, Status> {
                let message = self.enter($name, request);
                let answer = (self.0.$handler.lock())(message);
                answer.await.map(Response::new)
            })*

            $($($others)*)?
        }
    };
}

#[tonic::async_trait]
impl Discovery for Served {
    async fn get_info(&self, request: Request<GetInfoRequest>) -> Result<Response<GetInfoResponse>, Status> {
        self.enter("GetInfo", request);
        Ok(Response::new(self.0.info.lock().clone()))
    }
}

scripted! {
    CloudProvider:
    lead, "Lead", lead, LeadRequest => LeadResponse;
    {
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
    }
}

scripted! {
    Instances:
    batch_get_instances, "BatchGetInstances", instances, BatchGetInstancesRequest => BatchGetInstancesResponse;
    {
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
}

scripted! {
    LoadBalancers:
    ensure_load_balancer, "EnsureLoadBalancer", ensure, EnsureLoadBalancerRequest => EnsureLoadBalancerResponse;
    batch_update_load_balancers, "BatchUpdateLoadBalancers", update,
        BatchUpdateLoadBalancersRequest => BatchUpdateLoadBalancersResponse;
    list_load_balancers, "ListLoadBalancers", list, ListLoadBalancersRequest => ListLoadBalancersResponse;
}

scripted! {
    Routes:
    list_routes, "ListRoutes", list_routes, ListRoutesRequest => ListRoutesResponse;
    batch_ensure_routes, "BatchEnsureRoutes", ensure_routes, BatchEnsureRoutesRequest => BatchEnsureRoutesResponse;
    batch_delete_routes, "BatchDeleteRoutes", delete_routes, BatchDeleteRoutesRequest => BatchDeleteRoutesResponse;
}
