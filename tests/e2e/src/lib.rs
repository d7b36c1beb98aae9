//! End-to-end tests: the shipped binaries on a real control plane.
