//! Which gRPC code belongs to which reason: the table in `errors.proto`.

use tonic::Code;

use crate::proto::ErrorReason;

/// The gRPC code of a reason when a whole call fails with it.
///
/// Reasons that the contract knows only beside an item get the code nearest in meaning.
#[must_use]
pub fn code_of(reason: ErrorReason) -> Code {
    use ErrorReason as R;
    match reason {
        R::Unspecified => Code::Unknown,
        R::InternalError => Code::Internal,
        R::MethodNotSupported => Code::Unimplemented,
        R::ResumeTokenExpired => Code::OutOfRange,
        R::OwnedByOtherCluster => Code::AlreadyExists,
        R::CloudPermissionDenied => Code::PermissionDenied,
        R::InstanceNotFound | R::VolumeNotFound | R::ClusterNotFound => Code::NotFound,
        R::PeerNotTrusted | R::CloudCredentialsInvalid | R::CloudCredentialsExpired => Code::Unauthenticated,
        R::UnsupportedFeature
        | R::InvalidConfiguration
        | R::InvalidArgumentShape
        | R::BatchTooLarge
        | R::InvalidToken
        | R::InvalidSshKey => Code::InvalidArgument,
        R::PageTokenExpired | R::ConcurrentOperation | R::StaleRevision | R::RouteChanged => Code::Aborted,
        R::RateLimited | R::QuotaExceeded | R::CapacityUnavailable | R::RouteTableFull => {
            Code::ResourceExhausted
        }
        R::InstanceAmbiguous
        | R::ImplementedElsewhere
        | R::AdoptionRefused
        | R::NeedsEnsure
        | R::InvalidProviderConfig
        | R::StaleLeader
        | R::UnknownBackendSet => Code::FailedPrecondition,
        R::MetadataNotReady
        | R::LocationUnreachable
        | R::RetryLater
        | R::ProviderOverloaded
        | R::CloudApiUnavailable
        | R::ShuttingDown => Code::Unavailable,
    }
}
