//! From the wire to the traits: one small adapter per service, and what they share.
//!
//! In: a decoded request. Out: the method's response, or its error as a status. The adapters only map RPCs to
//! methods; `core` has checks, deadlines, panics and the life of mutations.

mod background;
mod base;
mod clusters;
mod core;
mod deadline;
mod discovery;
mod instances;
mod lanes;
mod load_balancers;
pub(crate) mod method;
mod routes;
mod volumes;
mod watch;

pub(crate) use self::core::{Core, RequestId};
pub(crate) use base::Base;
pub(crate) use clusters::ClustersRpc;
pub use deadline::timeout;
pub(crate) use discovery::DiscoveryRpc;
pub(crate) use instances::InstancesRpc;
pub(crate) use load_balancers::LoadBalancersRpc;
pub(crate) use routes::RoutesRpc;
pub(crate) use volumes::VolumesRpc;
