//! The controllers, one module each, all of the same shape.

pub mod cloud_node;
pub mod cloud_node_lifecycle;
#[cfg(test)]
mod hostile;
pub mod node_instance;
pub mod node_ipam;
pub mod node_route;
pub mod node_scope;
#[cfg(test)]
pub(crate) mod node_server;
pub mod service_lb;
pub mod taint;
