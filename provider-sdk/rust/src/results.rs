//! Answers for one query of a batch of instances, spelt as the contract wants them.

use std::time::SystemTime;

use crate::ProviderError;
use crate::proto::{Instance, InstanceResult, InstanceState};

/// The machine is there, read from the place that decides it, now.
#[must_use]
pub fn found(key: impl Into<String>, state: InstanceState, instance: Instance) -> InstanceResult {
    InstanceResult { instance: Some(instance), ..looked(key.into(), state) }
}

/// The machine was looked for where it must be, with the rights to see it, and is not there.
///
/// This is evidence for deletion: answer [`unknown`] whenever the look itself failed or saw only a part.
#[must_use]
pub fn absent(key: impl Into<String>) -> InstanceResult {
    looked(key.into(), InstanceState::Absent)
}

/// The machine belongs to another cloud, account or region.
#[must_use]
pub fn not_owned(key: impl Into<String>) -> InstanceResult {
    InstanceResult { key: key.into(), state: InstanceState::NotOwned.into(), ..Default::default() }
}

/// Nothing is known about the machine, and why. The other queries of the batch are none the worse for it.
#[must_use]
pub fn unknown(key: impl Into<String>, error: &ProviderError) -> InstanceResult {
    InstanceResult { key: key.into(), error: Some(error.to_item()), ..Default::default() }
}

fn looked(key: String, state: InstanceState) -> InstanceResult {
    InstanceResult {
        key,
        state: state.into(),
        authoritative: true,
        observed_at: Some(SystemTime::now().into()),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ErrorReason;

    #[test]
    fn only_what_was_looked_at_is_authoritative() {
        let there = found("a", InstanceState::Stopped, Instance::default());
        assert!(there.authoritative && there.observed_at.is_some() && there.instance.is_some());
        let gone = absent("a");
        assert!(gone.authoritative && gone.observed_at.is_some() && gone.state() == InstanceState::Absent);
        assert!(!not_owned("a").authoritative);
        let lost = unknown("a", &ProviderError::location_unreachable("eu-1"));
        assert!(!lost.authoritative && lost.state() == InstanceState::Unspecified);
        assert_eq!(lost.error.unwrap().reason(), ErrorReason::LocationUnreachable);
    }
}
