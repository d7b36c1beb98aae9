//! The shipped binaries on a real etcd and kube-apiserver, with the shipped permissions, and the provider over its
//! socket.

mod bad_input;
mod bad_start;
mod balancer_sweeps;
mod bridged;
mod ccmctl;
mod clouds;
mod credentials;
mod difficult;
mod gce;
mod guard;
mod handovers;
mod ipam;
mod kubelet_certificates;
mod leadership;
mod load_balancers;
mod misbehaviour;
mod nodes;
mod observability;
mod providers;
mod reflection;
mod restarts;
mod rolling;
mod routes;
mod serving;
mod shadow;
mod skew;
mod status_page;
mod steady;
mod traces;
mod trouble;
mod volume_labels;

use e2e::quick;
