//! The flags of all controllers, a module for each: one field per flag, with its checks.

pub mod cidrs;
pub mod kubelet_serving;
pub mod lifecycle;
pub mod nodes;
pub mod routes;
pub mod services;
pub mod ssh_keys;

/// The flags of all controllers.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[group(skip)]
pub struct Settings {
    #[command(flatten)]
    pub nodes: nodes::Settings,
    #[command(flatten)]
    pub lifecycle: lifecycle::Settings,
    #[command(flatten)]
    pub services: services::Settings,
    /// Resolved from [`cidrs::CidrFlags`], which depend on `--controllers`.
    #[arg(skip)]
    pub cidrs: cidrs::CidrSettings,
    #[command(flatten)]
    pub routes: routes::Settings,
    #[command(flatten)]
    pub ssh_keys: ssh_keys::Settings,
    #[command(flatten)]
    pub kubelet_serving: kubelet_serving::Settings,
}
