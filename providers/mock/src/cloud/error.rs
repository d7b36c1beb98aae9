//! What the cloud refuses, in the cloud's own words.

/// Why the cloud did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// The credentials are refused.
    #[error("the cloud refuses the credentials")]
    CredentialsInvalid,
    /// The credentials ran out.
    #[error("the credentials of the provider ran out")]
    CredentialsExpired,
    /// A right is missing.
    #[error("the right {action:?} is missing")]
    PermissionDenied {
        /// The right.
        action: String,
    },
    /// The API does not answer.
    #[error("the API of the cloud does not answer")]
    Unreachable,
    /// A zone does not answer.
    #[error("zone {zone} does not answer")]
    ZoneUnreachable {
        /// The zone.
        zone: String,
    },
    /// More than one machine answers to the node.
    #[error("{count} instances claim node {node}")]
    Ambiguous {
        /// Name of the node.
        node: String,
        /// How many.
        count: usize,
    },
    /// There is no such machine.
    #[error("no instance for node {node}")]
    InstanceNotFound {
        /// Name or provider ID of the node.
        node: String,
    },
    /// Something of that name exists already.
    #[error("{what} exists already")]
    AlreadyExists {
        /// What.
        what: String,
    },
    /// There is no such thing.
    #[error("{what} does not exist")]
    NotFound {
        /// What.
        what: String,
    },
    /// The request makes no sense, where the field is one of Kubernetes.
    #[error("{message}")]
    InvalidConfiguration {
        /// Path of the field in the Service.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// The request makes no sense.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
    },
    /// The cloud cannot do that.
    #[error("{message}")]
    Unsupported {
        /// Path of the field in the Service.
        field: String,
        /// What it cannot do.
        message: String,
    },
    /// Another controller looks after this Service.
    #[error("load balancer class {class:?} is looked after elsewhere")]
    ImplementedElsewhere {
        /// The class.
        class: String,
    },
    /// It belongs to another cluster.
    #[error("{what} belongs to another cluster")]
    OwnedByOtherCluster {
        /// What.
        what: String,
    },
    /// It belongs to a former controller, and may not be taken over.
    #[error("load balancer {name} of a former controller exists and adoption is refused")]
    AdoptionRefused {
        /// Its name.
        name: String,
    },
    /// The balancer must be made or rebuilt first.
    #[error("load balancer needs to be ensured: {why}")]
    NeedsEnsure {
        /// Why.
        why: String,
    },
    /// The route was re-pointed.
    #[error("route {id} was changed since it was listed")]
    RouteChanged {
        /// The route.
        id: String,
    },
    /// No room in the route table.
    #[error("the route table holds its {limit} routes already")]
    RouteTableFull {
        /// The limit.
        limit: u32,
    },
    /// A quota is used up.
    #[error("quota of {limit} {subject} is used up")]
    QuotaExceeded {
        /// Of what.
        subject: String,
        /// The limit.
        limit: u32,
    },
    /// Nothing left to give.
    #[error("the cloud has no {what} left")]
    OutOfCapacity {
        /// Of what.
        what: String,
    },
    /// The text is no SSH key, or its kind is refused.
    #[error("no usable SSH public key: {why}")]
    InvalidSshKey {
        /// Why.
        why: String,
    },
}
