//! The provider, on an emulated AWS, beside the published one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod aws;
mod balancers;
mod classic;
mod identity;
mod nodes;
mod rights;
mod routes;
mod trouble;
