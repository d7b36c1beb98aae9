//! The controllers, in start order. A new one is listed here and nowhere else.

use ccm_nodes::{cloud_node, cloud_node_lifecycle, kubelet_serving_csr, node_ipam, node_route, ssh_keys};
use ccm_reconcile::Registration;

/// All controllers, in start order.
pub const ALL: [&Registration; 8] = [
    &cloud_node::REGISTRATION,
    &cloud_node_lifecycle::REGISTRATION,
    &ccm_services::REGISTRATION,
    &node_ipam::REGISTRATION,
    &node_route::REGISTRATION,
    &ssh_keys::REGISTRATION,
    &kubelet_serving_csr::REGISTRATION,
    &ccm_volumes::REGISTRATION,
];
