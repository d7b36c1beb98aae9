//! All services of one provider, with the message size that it advertises.

use std::sync::Arc;

use cloudprovider_proto::discovery::v1::discovery_server::DiscoveryServer;
use cloudprovider_proto::v1alpha1::cloud_provider_server::CloudProviderServer;
use cloudprovider_proto::v1alpha1::clusters_server::ClustersServer;
use cloudprovider_proto::v1alpha1::instances_server::InstancesServer;
use cloudprovider_proto::v1alpha1::load_balancers_server::LoadBalancersServer;
use cloudprovider_proto::v1alpha1::routes_server::RoutesServer;
use cloudprovider_proto::v1alpha1::volumes_server::VolumesServer;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::{Builder, Error};

use super::error::ServeError;
use super::health::HealthRpc;
use crate::provider::Provider;
use crate::rpc::{Core, DiscoveryRpc, Served};
use crate::services::Base;

const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";

/// Exactly the services that the provider serves.
pub(super) fn routes(provider: &Provider, reflection: bool) -> Result<Routes, ServeError> {
    let core = Core::new(provider);
    let services = &provider.services;
    let names = names(provider, reflection);
    let bytes = provider.advertised.limits.max_message_bytes as usize;
    let health = HealthServer::new(HealthRpc::new(Arc::clone(&provider.lifecycle)));
    let base = Base::new(Arc::clone(&core), services.base.clone());
    let discovery = DiscoveryServer::new(DiscoveryRpc::new(&provider.identity, names.clone()));
    // Every generated server has these two methods, but no trait declares them.
    macro_rules! sized {
        ($server:expr) => {
            $server.max_decoding_message_size(bytes).max_encoding_message_size(bytes)
        };
    }
    let mut routes =
        Routes::new(health).add_service(discovery).add_service(sized!(CloudProviderServer::new(base)));
    if let Some(ours) = services.instances.clone() {
        routes = routes.add_service(sized!(InstancesServer::new(Served::new(&core, ours))));
    }
    if let Some(ours) = services.load_balancers.clone() {
        routes = routes.add_service(sized!(LoadBalancersServer::new(Served::new(&core, ours))));
    }
    if let Some(ours) = services.routes.clone() {
        routes = routes.add_service(sized!(RoutesServer::new(Served::new(&core, ours))));
    }
    if let Some(ours) = services.volumes.clone() {
        routes = routes.add_service(sized!(VolumesServer::new(Served::new(&core, ours))));
    }
    if let Some(ours) = services.clusters.clone() {
        routes = routes.add_service(sized!(ClustersServer::new(Served::new(&core, ours))));
    }
    if reflection {
        routes = routes.add_service(reflection_of(&names)?);
    }
    Ok(routes.prepare())
}

/// Fully qualified names of all served services.
fn names(provider: &Provider, reflection: bool) -> Vec<String> {
    let standard = [(true, HEALTH), (reflection, REFLECTION)];
    let standard = standard.into_iter().filter_map(|(served, name)| served.then_some(name));
    provider.services.names().into_iter().chain(standard).map(str::to_owned).collect()
}

/// Reflection over exactly these services, for people with tools.
fn reflection_of(names: &[String]) -> Result<ServerReflectionServer<impl ServerReflection>, Error> {
    names
        .iter()
        .fold(Builder::configure(), |builder, name| builder.with_service_name(name))
        .register_encoded_file_descriptor_set(cloudprovider_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
}
