//! The controllers of Nodes, one module each, all of the same shape: observe, decide (pure), act.

pub mod cloud_node;
pub mod cloud_node_lifecycle;
pub mod kubelet_serving_csr;
pub mod node_ipam;
pub mod node_route;
pub mod ssh_keys;
