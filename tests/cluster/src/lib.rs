//! A whole cluster for tests, demo and bench: a control plane, a provider and the host, each as the process that an
//! operator would run.
//!
//! In: [`Options`]. Out: a [`Cluster`] whose host runs under the shipped rights (`deploy/rbac.yaml`) as its own service
//! account, and reaches the mock, or a provider under test, over a Unix socket. Host and provider can be killed,
//! stopped and started again; nothing is left behind, however the process that uses it ends.
//!
//! [`nodes`] and [`services`] create Nodes and Services as a kubelet and a user do; [`wait`] waits for conditions.

mod api_proxy;
mod binaries;
pub mod cloud;
mod cloud_folder;
mod cluster;
pub mod go;
pub mod http;
mod inventory_file;
pub mod machines;
mod machines_file;
pub mod metrics;
pub mod nodes;
mod process;
mod provider;
pub mod python;
pub mod services;
mod steered;
pub mod wait;
mod way;

pub use api_proxy::{ApiProxy, Trouble};
pub use binaries::{Profile, program};
pub use cloud::Cloud;
pub use cloud_folder::CloudFolder;
pub use cluster::{Cluster, HOST_GROUPS, HOST_USER, Options};
pub use inventory_file::InventoryFile;
pub use machines_file::MachinesFile;
pub use process::{Process, peak_mib};
pub use provider::{Neighbour, ProviderUnderTest};
pub use steered::Steered;
pub use way::Way;
