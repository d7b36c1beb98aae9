//! The controllers, one module each, all of the same shape.

pub mod cloud_node;
pub mod cloud_node_lifecycle;
pub mod node_scope;
pub mod taint;
