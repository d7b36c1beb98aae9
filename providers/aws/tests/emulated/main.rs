//! The provider, on an emulated AWS, beside the published one.

mod aws;
mod identity;
mod nodes;
