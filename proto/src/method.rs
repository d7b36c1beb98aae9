//! The RPCs, and what the contract says of each (`options.proto`).

use std::time::Duration;

use crate::{discovery, v1alpha1};

/// An RPC.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Without the service.
    pub name: &'static str,
    /// Without the package.
    pub service: &'static str,
    /// On the wire.
    pub path: &'static str,
    /// What a call costs.
    pub class: Class,
    /// Unless the provider advertises another one.
    pub deadline: Duration,
    /// The longest that a provider may advertise.
    pub max_deadline: Duration,
    /// The capability without which the RPC is not served.
    pub capability: Option<v1alpha1::Capability>,
}

/// What a call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It is answered from the provider's memory.
    Local,
    /// It reads the cloud.
    Read,
    /// It changes the cloud.
    Mutation,
}

/// A request, which says which RPC it is for.
pub trait Rpc: prost::Message + 'static {
    /// The answer; of a stream, one frame.
    type Answer: prost::Message + Default + 'static;

    /// The RPC.
    const METHOD: &'static Method;
}

/// How a process introduces itself: of a package that is frozen, and so says nothing of deadlines.
pub const GET_INFO: Method = Method {
    name: "GetInfo",
    service: "Discovery",
    path: "/ccm.discovery.v1.Discovery/GetInfo",
    class: Class::Local,
    deadline: Duration::from_secs(5),
    max_deadline: Duration::from_secs(10),
    capability: None,
};

impl Rpc for discovery::v1::GetInfoRequest {
    type Answer = discovery::v1::GetInfoResponse;
    const METHOD: &'static Method = &GET_INFO;
}

include!(concat!(env!("OUT_DIR"), "/methods.rs"));
