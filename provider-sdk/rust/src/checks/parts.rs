//! Checks of the parts that requests share.

use std::collections::HashSet;

use crate::proto::{ClusterRef, Fencing, NodeRef, ServiceRef};
use crate::{ProviderError, Result};

/// Longest key, provider ID, token and volume id.
pub(super) const LONG: usize = 1 << 10;
const PAGE_TOKEN: usize = 8 << 10;
/// Longest uid.
const UID: usize = 64;
/// Longest name.
const NAME: usize = 253;
/// Longest digest.
pub(super) const DIGEST: usize = 128;

/// A required text of at most `max` bytes.
pub(super) fn text(field: &str, value: &str, max: usize) -> Result<()> {
    if value.is_empty() {
        return Err(ProviderError::invalid_argument_shape(field, "is missing"));
    }
    short(field, value, max)
}

/// An optional text.
pub(super) fn short(field: &str, value: &str, max: usize) -> Result<()> {
    if value.len() > max {
        return Err(ProviderError::invalid_argument_shape(field, &format!("has more than {max} bytes")));
    }
    Ok(())
}

pub(super) fn present<'a, T>(field: &str, value: &'a Option<T>) -> Result<&'a T> {
    value.as_ref().ok_or_else(|| ProviderError::invalid_argument_shape(field, "is missing"))
}

pub(super) fn cluster(cluster: &Option<ClusterRef>) -> Result<()> {
    let cluster = present("cluster", cluster)?;
    text("cluster.uid", &cluster.uid, UID)?;
    short("cluster.name", &cluster.name, NAME)
}

/// The cluster uid, or empty.
pub(super) fn uid_of_cluster(cluster: &Option<ClusterRef>) -> &str {
    cluster.as_ref().map_or("", |cluster| &cluster.uid)
}

/// The fields that every mutation carries.
pub(super) fn mutation(of: &Option<ClusterRef>, fencing: &Option<Fencing>) -> Result<()> {
    cluster(of)?;
    present("fencing", fencing).map(drop)
}

/// The fields that every page request carries.
pub(super) fn page(of: &Option<ClusterRef>, size: i32, token: &str) -> Result<()> {
    cluster(of)?;
    if size < 0 {
        return Err(ProviderError::invalid_argument_shape("page_size", "is negative"));
    }
    short("page_token", token, PAGE_TOKEN)
}

/// The page size that a method receives: the limit if the request has none or a larger one.
pub(super) fn page_size(asked: i32, max: u32) -> i32 {
    let max = i32::try_from(max).unwrap_or(i32::MAX);
    if asked == 0 { max } else { asked.min(max) }
}

/// A batch has at least one item and at most as many as advertised.
pub(super) fn batch(field: &str, items: usize, max: u32) -> Result<()> {
    if items == 0 {
        return Err(ProviderError::invalid_argument_shape(field, "is empty"));
    }
    if items > max as usize {
        return Err(ProviderError::batch_too_large(items, max));
    }
    Ok(())
}

/// Every key is unique.
pub(super) fn keys<'a>(field: &str, keys: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for (at, key) in keys.enumerate() {
        text(&format!("{field}[{at}].key"), key, LONG)?;
        if !seen.insert(key) {
            return Err(ProviderError::invalid_argument_shape(
                &format!("{field}[{at}].key"),
                "is a duplicate",
            ));
        }
    }
    Ok(())
}

pub(super) fn node(field: &str, node: &Option<NodeRef>) -> Result<()> {
    let node = present(field, node)?;
    text(&format!("{field}.name"), &node.name, NAME)?;
    short(&format!("{field}.provider_id"), &node.provider_id, LONG)
}

pub(super) fn service(field: &str, service: &Option<ServiceRef>) -> Result<()> {
    let service = present(field, service)?;
    text(&format!("{field}.uid"), &service.uid, UID)?;
    text(&format!("{field}.name"), &service.name, NAME)?;
    text(&format!("{field}.namespace"), &service.namespace, NAME)
}

pub(super) fn digest(field: &str, digest: &str) -> Result<()> {
    text(field, digest, DIGEST)
}
