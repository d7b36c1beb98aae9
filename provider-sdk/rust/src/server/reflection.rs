//! `grpc.reflection.v1`: lists the services, for people with tools. Off by default.

use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::{Builder, Error};

/// Reflection over exactly these services.
pub(super) fn service(names: &[String]) -> Result<ServerReflectionServer<impl ServerReflection>, Error> {
    names
        .iter()
        .fold(Builder::configure(), |builder, name| builder.with_service_name(name))
        .register_encoded_file_descriptor_set(cloudprovider_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
}
