//! The controllers, one module each, all of the same shape. A new one is listed here and nowhere else.

pub mod cloud_node;
pub mod cloud_node_lifecycle;
mod compared;
pub mod explain;
#[cfg(test)]
mod hostile;
pub mod kubelet_serving_csr;
pub mod node_instance;
pub mod node_ipam;
pub mod node_route;
pub mod node_scope;
#[cfg(test)]
pub(crate) mod node_server;
pub mod persistent_volume_label;
mod registration;
pub mod service_lb;
pub mod shell;
pub mod ssh_keys;
#[cfg(test)]
pub(crate) mod stage;
pub mod taint;

pub use registration::{Kept, Parts, Registration, Serves};

/// All controllers, in start order.
pub const ALL: [&Registration; 8] = [
    &cloud_node::REGISTRATION,
    &cloud_node_lifecycle::REGISTRATION,
    &service_lb::REGISTRATION,
    &node_ipam::REGISTRATION,
    &node_route::REGISTRATION,
    &ssh_keys::REGISTRATION,
    &kubelet_serving_csr::REGISTRATION,
    &persistent_volume_label::REGISTRATION,
];

/// The flags of all controllers.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[group(skip)]
pub struct Settings {
    #[command(flatten)]
    pub nodes: cloud_node::Settings,
    #[command(flatten)]
    pub lifecycle: cloud_node_lifecycle::Settings,
    #[command(flatten)]
    pub services: service_lb::Settings,
    /// Resolved from [`node_ipam::settings::Flags`], which depend on `--controllers`.
    #[arg(skip)]
    pub cidrs: node_ipam::settings::CidrSettings,
    #[command(flatten)]
    pub routes: node_route::Settings,
    #[command(flatten)]
    pub ssh_keys: ssh_keys::Settings,
    #[command(flatten)]
    pub kubelet_serving: kubelet_serving_csr::Settings,
}
