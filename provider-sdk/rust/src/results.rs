//! Results of one query of BatchGetInstances, in the form that the contract requires.

use std::time::SystemTime;

use crate::ProviderError;
use crate::proto::{Instance, InstanceQuery, InstanceResult, InstanceState};

/// The instance exists, read from the system of record now.
#[must_use]
pub fn found(key: impl Into<String>, state: InstanceState, instance: Instance) -> InstanceResult {
    InstanceResult { instance: Some(instance), ..looked(key.into(), state) }
}

/// The provider looked where the instance must be, with permission to see it, and it does not exist.
///
/// With a provider ID in the query this is evidence for deletion: return [`unknown`] if the look-up itself
/// failed or covered only part of the cloud. Without a provider ID it is not evidence, because a look-up by
/// name may miss an instance.
#[must_use]
pub fn absent(query: &InstanceQuery) -> InstanceResult {
    let by_id = query.node.as_ref().is_some_and(|node| !node.provider_id.is_empty());
    InstanceResult { authoritative: by_id, ..absent_by_key(query) }
}

/// Like [`absent`], for a provider with `Capability::InstancesKeyedByName`: here the name alone is evidence.
#[must_use]
pub fn absent_by_key(query: &InstanceQuery) -> InstanceResult {
    looked(query.key.clone(), InstanceState::Absent)
}

/// The instance belongs to another cloud, account or region.
#[must_use]
pub fn not_owned(key: impl Into<String>) -> InstanceResult {
    InstanceResult { key: key.into(), state: InstanceState::NotOwned.into(), ..Default::default() }
}

/// The state of the instance is unknown, with the reason. The other queries of the batch are unaffected.
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
    use crate::proto::{ErrorReason, NodeRef};

    #[test]
    fn only_what_was_looked_at_is_authoritative() {
        let there = found("a", InstanceState::Stopped, Instance::default());
        assert!(there.authoritative && there.observed_at.is_some() && there.instance.is_some());
        let node = |id: &str| Some(NodeRef { provider_id: id.to_owned(), ..NodeRef::default() });
        let [by_id, by_name] =
            ["test://a", ""].map(|id| InstanceQuery { key: "a".to_owned(), node: node(id) });
        let gone = absent(&by_id);
        assert!(gone.authoritative && gone.observed_at.is_some() && gone.state() == InstanceState::Absent);
        assert!(!absent(&by_name).authoritative && absent_by_key(&by_name).authoritative);
        assert!(!not_owned("a").authoritative);
        let lost = unknown("a", &ProviderError::location_unreachable("eu-1"));
        assert!(!lost.authoritative && lost.state() == InstanceState::Unspecified);
        assert_eq!(lost.error.unwrap().reason(), ErrorReason::LocationUnreachable);
    }
}
