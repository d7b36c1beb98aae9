#![doc = include_str!("../README.md")]
//! ```no_run
#![doc = include_str!("../examples/instances_only.rs")]
//! ```
#![warn(missing_docs)]

mod checks;
mod context;
mod error;
mod metrics;
mod options;
pub mod paging;
mod provider;
pub mod results;
mod rpc;
mod server;
mod services;
pub mod telemetry;

/// The messages of the contract: the data types of every trait in this crate.
pub use cloudprovider_proto::v1alpha1 as proto;
pub use cloudprovider_proto::{self as contract, code_name};

pub use async_trait::async_trait;
pub use context::{CallContext, Peer};
pub use error::{ProviderError, Result};
pub use options::{ClientName, DEFAULT_SHUTDOWN_GRACE, Endpoint, EndpointError, ServeOptions};
pub use prometheus_client;
pub use provider::{BuildError, Provider, ProviderBuilder, ProviderHandle};
pub use rpc::timeout;
pub use server::{
    BoundServer, BoxError, GrpcRequest, GrpcResponse, GrpcService, HookService, ServeError, Server, serve,
};
pub use services::{
    ChangeFeed, CloudProvider, Clusters, InstanceWatch, Instances, LoadBalancers, Routes, Volumes, WatchEvent,
};
pub use tokio_util::sync::CancellationToken;
