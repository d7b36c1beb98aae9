//! The traits that a provider implements, one for each service of the contract, and how each is served.
//!
//! Requests and responses are the contract's own messages. Every method may fail, with one typed error;
//! nothing turns an error into an empty response. The SDK does what is the same for every provider before it
//! calls a method (peers, fencing, shape of the arguments, revisions, page sizes): see the crate's
//! documentation.

mod base;
mod clusters;
mod instances;
mod load_balancers;
mod routes;
mod volumes;
mod watch;

pub(crate) use base::Base;
pub use base::CloudProvider;
pub use clusters::Clusters;
pub use instances::Instances;
pub use load_balancers::LoadBalancers;
pub use routes::Routes;
pub use volumes::Volumes;
pub use watch::{ChangeFeed, InstanceWatch, WatchEvent};
