//! Builders of answers.

use crate::{
    AddressType, CloudError, ErrorReason, Instance, InstanceAddress, InstanceAnswer, InstanceState,
    VolumeAnswer, VolumeState, digest,
};

/// An instance with that provider ID, an internal address `10.0.0.1` and a host name.
pub fn instance(provider_id: &str) -> Instance {
    Instance {
        provider_id: provider_id.to_owned(),
        name: provider_id.rsplit('/').next().unwrap_or_default().to_owned(),
        instance_type: Some("small".to_owned()),
        addresses: vec![
            InstanceAddress { kind: AddressType::InternalIp, address: "10.0.0.1".to_owned() },
            InstanceAddress { kind: AddressType::Hostname, address: "host-1".to_owned() },
        ],
        zone: Some("zone-1".to_owned()),
        region: Some("region-1".to_owned()),
        ..Instance::default()
    }
}

/// An answer about a volume that has these labels, if it is there.
pub fn volume(state: VolumeState, labels: &[(&str, &str)]) -> VolumeAnswer {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    VolumeAnswer { state, labels, error: None, rejected: Vec::new() }
}

/// An authoritative answer.
pub fn machine(state: InstanceState, instance: Option<Instance>) -> InstanceAnswer {
    InstanceAnswer {
        state,
        authoritative: true,
        observed_at: Some(jiff::Timestamp::UNIX_EPOCH),
        instance,
        error: None,
        events: Vec::new(),
    }
}

/// An error with this reason; UNAVAILABLE without one.
pub fn error(method: &'static str, reason: Option<ErrorReason>) -> CloudError {
    let code = if reason.is_some() { tonic::Code::FailedPrecondition } else { tonic::Code::Unavailable };
    let message = reason.map_or("gone", ErrorReason::wire_name).to_owned();
    CloudError {
        method,
        reason,
        code,
        message,
        retry_after: None,
        scope: String::new(),
        is_unanswered: false,
    }
}

/// The caller does not know what became of its call.
pub(super) fn unanswered(method: &'static str, code: tonic::Code) -> CloudError {
    CloudError { code, is_unanswered: code == tonic::Code::Unavailable, ..error(method, None) }
}

/// The digest of some balancer that was made for a Service of this class.
pub fn digest_for(class: Option<&str>) -> String {
    digest::join(class, "service", "backends")
}
