//! Checks before a provider is served: everything advertised exists and is within the contract's bounds.

use std::time::Duration;

use cloudprovider_proto::{defaults, service_names};
use thiserror::Error;

use super::{Identity, Services};
use crate::proto::{Capability, GetCapabilitiesResponse};

/// The least `Limits.max_message_bytes`.
const LEAST_MESSAGE_BYTES: u32 = 4 << 20;
const LONGEST_NAME: usize = 63;
const LONGEST_TEXT: usize = 64;

/// Why a provider cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is not a DNS subdomain of at most 63 bytes.
    #[error(
        "the name {name:?} is not a DNS subdomain of at most 63 bytes; use lowercase letters, digits, '-' and '.'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A text is empty or too long.
    #[error("{field} has {length} bytes; it needs 1 to {max}")]
    Length {
        /// What it is.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// The provider serves Instances but has no provider ID prefix, so that no node can be routed to it.
    #[error("instances are served without a provider-ID prefix; call provider_id_prefix")]
    NoPrefix,
    /// The provider advertises a capability but does not serve its service.
    #[error("{} is advertised but {service} is not served; give its implementation or drop the capability", .capability.as_str_name())]
    CapabilityWithoutService {
        /// The capability.
        capability: Capability,
        /// The service that it needs.
        service: &'static str,
    },
    /// A capability is unknown or duplicated.
    #[error("capability number {number} is unknown, unspecified or duplicate")]
    Capability {
        /// The number.
        number: i32,
    },
    /// A value that has no effect without a service that is not served.
    #[error("{field} is set but {service} is not served")]
    FieldWithoutService {
        /// The value.
        field: &'static str,
        /// The service that it needs.
        service: &'static str,
    },
    /// A limit or interval is outside the bounds of the contract.
    #[error("{field} is {value}; it needs to be {allowed}")]
    OutOfRange {
        /// What it is.
        field: &'static str,
        /// Its value.
        value: String,
        /// What the contract allows.
        allowed: &'static str,
    },
}

pub(super) fn identity(identity: &Identity, services: &Services) -> Result<(), BuildError> {
    if !is_subdomain(&identity.name) {
        return Err(BuildError::Name { name: identity.name.clone() });
    }
    let version = identity.vendor_version.len();
    if version > LONGEST_TEXT {
        return Err(BuildError::Length { field: "vendor_version", length: version, max: LONGEST_TEXT });
    }
    if !(1..=LONGEST_TEXT).contains(&identity.epoch.len()) {
        let length = identity.epoch.len();
        return Err(BuildError::Length { field: "process_epoch", length, max: LONGEST_TEXT });
    }
    if identity.prefixes.iter().any(String::is_empty) {
        return Err(BuildError::Length { field: "provider_id_prefix", length: 0, max: LONGEST_TEXT });
    }
    if services.instances.is_some() && identity.prefixes.is_empty() {
        return Err(BuildError::NoPrefix);
    }
    Ok(())
}

fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(label)
}

pub(super) fn capabilities(answer: &GetCapabilitiesResponse, services: &Services) -> Result<(), BuildError> {
    for (at, number) in answer.capabilities.iter().enumerate() {
        let known = Capability::try_from(*number).ok().filter(|one| *one != Capability::Unspecified);
        let Some(capability) = known.filter(|_| !answer.capabilities[..at].contains(number)) else {
            return Err(BuildError::Capability { number: *number });
        };
        let service = capability.service();
        if !services.names().iter().any(|served| served.rsplit('.').next() == Some(service)) {
            return Err(BuildError::CapabilityWithoutService { capability, service });
        }
    }
    if !answer.load_balancer_classes.is_empty() && services.load_balancers.is_none() {
        let (field, service) = ("load_balancer_classes", service_names::LOAD_BALANCERS);
        return Err(BuildError::FieldWithoutService { field, service });
    }
    Ok(())
}

pub(super) fn limits(answer: &GetCapabilitiesResponse) -> Result<(), BuildError> {
    let bytes = answer.limits.as_ref().map_or(0, |limits| limits.max_message_bytes);
    if bytes != 0 && !(LEAST_MESSAGE_BYTES..=defaults::HARD_MAX_MESSAGE_BYTES).contains(&bytes) {
        return Err(BuildError::OutOfRange {
            field: "limits.max_message_bytes",
            value: bytes.to_string(),
            allowed: "4 MiB to 64 MiB, or 0 for 16 MiB",
        });
    }
    let intervals = answer.intervals.unwrap_or_default();
    positive("intervals.resume_token_validity", intervals.resume_token_validity)?;
    positive("intervals.bookmark_interval", intervals.bookmark_interval)?;
    positive("intervals.watch_max_age", intervals.watch_max_age)?;
    positive("intervals.instance_sweep", intervals.instance_sweep)
}

fn positive(field: &'static str, value: Option<prost_types::Duration>) -> Result<(), BuildError> {
    let Some(value) = value else { return Ok(()) };
    match Duration::try_from(value) {
        Ok(duration) if !duration.is_zero() => Ok(()),
        _ => Err(BuildError::OutOfRange {
            field,
            value: format!("{} s and {} ns", value.seconds, value.nanos),
            allowed: "positive, or absent for the default",
        }),
    }
}

#[cfg(test)]
mod tests;
