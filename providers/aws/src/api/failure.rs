//! Why a call of AWS failed, and which of the contract's reasons that is.

use std::error::Error;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::error::{BuildError, ProvideErrorMetadata, SdkError};
use cloudprovider_sdk::ProviderError;

use super::Action;

/// How long to wait after AWS has throttled a call.
const AFTER_THROTTLING: Duration = Duration::from_secs(5);

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    action: Action,
    /// AWS's code, or one of the constants below.
    code: String,
    /// AWS's words, of which only the code and what is parsed from them leave this process.
    message: String,
    paced: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// No answer, or one that is no answer of AWS.
const NONE: &str = "none";
/// There was no call: AWS's bucket would have been empty for longer than the caller waits.
const PACED: &str = "paced";
/// There was no call: nothing to sign it with.
const NO_CREDENTIALS: &str = "NoCredentials";
/// There was no call: something in it is missing.
const UNWRITTEN: &str = "unwritten";
const THROTTLED: [&str; 5] =
    ["RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "DependencyThrottle"];

/// EC2's code for credentials that it does not know, and for what belongs to somebody else: a Service can name that.
const AUTH: &str = "AuthFailure";
/// In its message, if it is the credentials.
const UNKNOWN_CREDENTIALS: &str = "validate the provided access credentials";

/// What one account can have in one region.
const QUOTAS: [&str; 11] = [
    "TooManyLoadBalancers",
    "TooManyTargetGroups",
    "TooManyTargets",
    "TooManyListeners",
    "TooManyPolicies",
    "TooManyRegistrationsForTargetId",
    "TooManyUniqueTargetGroupsPerLoadBalancer",
    "TooManyTags",
    RULES,
    "SecurityGroupLimitExceeded",
    "SecurityGroupsPerInterfaceLimitExceeded",
];
/// Those of the nodes' groups: network balancers need some for each of their ports.
const RULES: &str = "RulesPerSecurityGroupLimitExceeded";
/// What is wrong with a Service.
const FIELDS: [(&str, &str); 12] = [
    ("InvalidSubnet", SUBNETS),
    ("InvalidSubnetID.NotFound", SUBNETS),
    ("SubnetNotFound", SUBNETS),
    ("AvailabilityZoneNotSupported", SUBNETS),
    (
        "AllocationIdNotFound",
        "metadata.annotations[service.beta.kubernetes.io/aws-load-balancer-eip-allocations]",
    ),
    ("CertificateNotFound", "metadata.annotations[service.beta.kubernetes.io/aws-load-balancer-ssl-cert]"),
    (
        "SSLPolicyNotFound",
        "metadata.annotations[service.beta.kubernetes.io/aws-load-balancer-ssl-negotiation-policy]",
    ),
    ("InvalidSecurityGroup", GROUPS),
    ("InvalidScheme", "metadata.annotations[service.beta.kubernetes.io/aws-load-balancer-internal]"),
    ("InvalidConfigurationRequest", "metadata.annotations"),
    ("UnsupportedProtocol", "metadata.annotations"),
    ("ValidationError", "metadata.annotations"),
];
const SUBNETS: &str = "metadata.annotations[service.beta.kubernetes.io/aws-load-balancer-subnets]";
const GROUPS: &str = "metadata.annotations[service.beta.kubernetes.io/aws-load-balancer-security-groups]";
/// What passes once something else has ended, or AWS tells everywhere of what was made or deleted just now.
const BUSY: [&str; 14] = [
    "DependencyViolation",
    "ResourceInUse",
    "DuplicateTargetGroupName",
    "DuplicateListener",
    "DuplicateLoadBalancerName",
    "LoadBalancerNotFound",
    "TargetGroupNotFound",
    "ListenerNotFound",
    "InvalidGroup.NotFound",
    "InvalidGroup.Duplicate",
    "InvalidPermission.Duplicate",
    "InvalidPermission.NotFound",
    "InvalidRoute.NotFound",
    "RouteAlreadyExists",
];
const WHILE_BUSY: Duration = Duration::from_secs(10);

/// What only a person changes.
const NOT_PERMITTED: &str = "OperationNotPermitted";
const WHILE_NOT_PERMITTED: Duration = Duration::from_secs(300);

impl Failure {
    pub(super) fn of<E: ProvideErrorMetadata>(action: Action, error: SdkError<E>) -> Self
    where
        SdkError<E>: Error + Send + Sync + 'static,
    {
        let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
        let code = match error.code() {
            // EC2 throttles with 503.
            Some(code) if status < 500 || THROTTLED.contains(&code) => code,
            None if comes_from_credentials(&error) => NO_CREDENTIALS,
            _ => NONE,
        }
        .to_owned();
        let message = error.message().unwrap_or_default().to_owned();
        Self { action, code, message, paced: None, source: Some(Box::new(error)) }
    }

    pub(super) fn no_answer(action: Action) -> Self {
        Self { action, code: NONE.to_owned(), message: String::new(), paced: None, source: None }
    }

    pub(super) fn paced(action: Action, wait: Duration) -> Self {
        Self { action, code: PACED.to_owned(), message: String::new(), paced: Some(wait), source: None }
    }

    pub(crate) fn unwritten(action: Action, error: BuildError) -> Self {
        let (code, source) = (UNWRITTEN.to_owned(), Some(Box::new(error) as _));
        Self { action, code, message: String::new(), paced: None, source }
    }

    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// For how long the call would have waited for its turn, if that is why there was none. A new balancer waits for its turn after
    /// AWS has throttled it, too: its bucket is so small that others of the account empty it, and that need not stop anything else.
    pub(crate) fn paced_for(&self) -> Option<Duration> {
        let makes_balancer = self.action == Action::CreateLoadBalancer;
        self.paced.or_else(|| (makes_balancer && self.is_throttled()).then_some(AFTER_THROTTLING))
    }

    pub(crate) fn is_silence(&self) -> bool {
        self.code == NONE
    }

    pub(crate) fn is_throttled(&self) -> bool {
        THROTTLED.contains(&&*self.code)
    }

    /// The same call about something else would fare no better now.
    pub(crate) fn is_for_all(&self) -> bool {
        self.is_throttled() || self.is_silence() || self.paced.is_some()
    }

    pub(super) fn is_about_credentials(&self) -> bool {
        self.has_expired()
            || self.code == AUTH && self.message.contains(UNKNOWN_CREDENTIALS)
            || [
                "IncompleteSignature",
                "InvalidAccessKeyId",
                "InvalidClientTokenId",
                "SignatureDoesNotMatch",
                "UnrecognizedClientException",
                "MissingAuthenticationToken",
                NO_CREDENTIALS,
            ]
            .contains(&&*self.code)
    }

    fn has_expired(&self) -> bool {
        ["ExpiredToken", "ExpiredTokenException", "RequestExpired"].contains(&&*self.code)
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.code == AUTH && !self.is_about_credentials()
            || ["UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OptInRequired"]
                .contains(&&*self.code)
    }

    /// A security group can have no more rules.
    pub(crate) fn is_full_of_rules(&self) -> bool {
        self.code == RULES
    }

    /// Of balancing, AWS has buckets of their own: nodes and routes go on.
    fn rate_limited(&self, wait: Duration) -> ProviderError {
        let error = ProviderError::rate_limited(wait);
        if self.action.is_of_balancing() { error.with_metadata("scope", "LoadBalancers") } else { error }
    }

    /// As the contract has it. The table is the study's, 6.4.
    pub(crate) fn to_error(&self) -> ProviderError {
        let error = if let Some(wait) = self.paced {
            self.rate_limited(wait)
        } else if self.is_throttled() {
            self.rate_limited(AFTER_THROTTLING)
        } else if self.has_expired() {
            ProviderError::cloud_credentials_expired()
        } else if self.is_about_credentials() {
            ProviderError::cloud_credentials_invalid()
        } else if self.is_denied() {
            ProviderError::cloud_permission_denied(&self.action.name())
        } else if self.is_silence() {
            ProviderError::cloud_api_unavailable()
        } else if QUOTAS.contains(&&*self.code) {
            let remedy = match &*self.code {
                RULES => "; raise the quota, or start the provider with --shared-node-rule",
                "TooManyTags" => {
                    "; name fewer in the annotation aws-load-balancer-additional-resource-tags, since five or six more are the provider's, \
                     and remove from the balancer what it names no more"
                }
                _ => "",
            };
            ProviderError::quota_exceeded(
                "the account in this region",
                &format!("{}: {}{remedy}", self.code, self.message),
            )
        } else if self.code.starts_with("Insufficient") {
            ProviderError::capacity_unavailable(&format!("room ({}: {})", self.code, self.message))
        } else if let Some((_, field)) = FIELDS.iter().find(|(code, _)| *code == self.code) {
            ProviderError::invalid_configuration(field, &format!("AWS refuses it: {}", self.message))
        } else if self.action == Action::DeleteLoadBalancer
            && [NOT_PERMITTED, "ResourceInUse"].contains(&&*self.code)
        {
            let why = format!(
                "AWS keeps the load balancer: {}: {}; switch off its deletion protection, or remove the endpoint service or VPC \
                 link that uses it",
                self.code, self.message
            );
            ProviderError::retry_later(WHILE_NOT_PERMITTED, &why)
        } else if self.code == NOT_PERMITTED {
            let why = format!("AWS does not permit {}: {}", self.action.name(), self.message);
            ProviderError::retry_later(WHILE_NOT_PERMITTED, &why)
        } else if BUSY.contains(&&*self.code) {
            let why =
                format!("{} waits for another change: {}: {}", self.action.name(), self.code, self.message);
            ProviderError::retry_later(WHILE_BUSY, &why)
        } else {
            ProviderError::internal(format!(
                "{} answered {}: {}",
                self.action.name(),
                self.code,
                self.message
            ))
        };
        error.with_metadata("code", &self.code).with_metadata("call", self.action.name())
    }
}

impl From<Failure> for ProviderError {
    fn from(failure: Failure) -> Self {
        let error = failure.to_error();
        match failure.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

/// Whether a call was not made because there is nothing to sign it with.
fn comes_from_credentials(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source()).any(|error| error.is::<CredentialsError>())
}
