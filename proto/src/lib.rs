//! The CloudProvider contract: generated messages, clients and servers.
//!
//! The `.proto` files beside this crate are the contract and its documentation; this crate only holds what is generated
//! from them, the names that both ends must spell alike, what neither end shows of a text, and the descriptors for
//! reflection.

#![allow(
    clippy::doc_markdown,
    clippy::doc_lazy_continuation,
    clippy::doc_overindented_list_items,
    clippy::large_enum_variant,
    unreachable_pub,
    missing_debug_implementations,
    rustdoc::invalid_html_tags,
    rustdoc::bare_urls,
    rustdoc::broken_intra_doc_links,
    reason = "generated code and comments that are written for every language"
)]

/// Who is there, and what does it speak? Frozen.
pub mod discovery {
    /// Package `ccm.discovery.v1`.
    pub mod v1 {
        tonic::include_proto!("ccm.discovery.v1");
    }
}

/// What a provider of a cloud does.
pub mod cloudprovider {
    /// Package `ccm.cloudprovider.v1alpha1`.
    pub mod v1alpha1 {
        tonic::include_proto!("ccm.cloudprovider.v1alpha1");
    }
}

pub mod method;
mod reason;
pub mod scrub;
mod shape;

pub use cloudprovider::v1alpha1;
pub use reason::code_name;
pub use shape::{Misshapen, RequestMessage};

/// Encoded `google.protobuf.FileDescriptorSet` of the whole contract, for reflection and skew tests.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Rows of requests in text format, and how each is refused; `proto/vectors/README.md` says how to read them.
pub const SHAPE_VECTORS: &str = include_str!("../vectors/shapes.json");

/// The descriptors as they were when the package was first released: the baseline of `buf breaking` and of skew tests.
pub const BASELINE_DESCRIPTOR_SET: &[u8] = include_bytes!("../baseline/v1alpha1.binpb");

/// `google.rpc.ErrorInfo.domain` of every error of this contract.
pub const ERROR_DOMAIN: &str = "cloudprovider.ccm";

/// Fully qualified names of the services, as `GetInfoResponse.services` lists them.
pub mod service_names {
    /// Served by every provider, frozen.
    pub const DISCOVERY: &str = "ccm.discovery.v1.Discovery";
    /// Served by every provider.
    pub const CLOUD_PROVIDER: &str = "ccm.cloudprovider.v1alpha1.CloudProvider";
    /// Machines.
    pub const INSTANCES: &str = "ccm.cloudprovider.v1alpha1.Instances";
    /// Balancers.
    pub const LOAD_BALANCERS: &str = "ccm.cloudprovider.v1alpha1.LoadBalancers";
    /// Routes.
    pub const ROUTES: &str = "ccm.cloudprovider.v1alpha1.Routes";
    /// Volume labels.
    pub const VOLUMES: &str = "ccm.cloudprovider.v1alpha1.Volumes";
    /// Clusters of the cloud.
    pub const CLUSTERS: &str = "ccm.cloudprovider.v1alpha1.Clusters";
}

/// Values that stand where a provider advertises none. The proto comments are their source.
pub mod defaults {
    use std::time::Duration;

    /// `Limits.max_batch_*`.
    pub const MAX_BATCH: u32 = 500;
    /// `Limits.max_page_size`.
    pub const MAX_PAGE_SIZE: u32 = 500;
    /// `Limits.max_message_bytes`.
    pub const MAX_MESSAGE_BYTES: u32 = 16 << 20;
    /// Largest `Limits.max_message_bytes` that a host accepts.
    pub const HARD_MAX_MESSAGE_BYTES: u32 = 64 << 20;
    /// `BackendSet`: the sets that came last and are known by their digests.
    pub const KNOWN_BACKEND_SETS: usize = 4;
    /// `Limits.max_concurrent_reads`.
    pub const MAX_CONCURRENT_READS: u32 = 16;
    /// `Limits.max_concurrent_mutations`.
    pub const MAX_CONCURRENT_MUTATIONS: u32 = 8;
    /// `Intervals.resume_token_validity`.
    pub const TOKEN_VALIDITY: Duration = Duration::from_secs(300);
    /// `Intervals.bookmark_interval`.
    pub const BOOKMARK_INTERVAL: Duration = Duration::from_secs(30);
    /// `Intervals.watch_max_age`.
    pub const WATCH_MAX_AGE: Duration = Duration::from_secs(1800);
    /// `InProgress.retry_after` where it is absent or zero.
    pub const IN_PROGRESS_RETRY_AFTER: Duration = Duration::from_secs(5);
    /// Largest sum of error details in bytes.
    pub const MAX_ERROR_DETAIL_BYTES: usize = 4 << 10;
    /// Longest `message` in bytes.
    pub const MAX_MESSAGE_TEXT_BYTES: usize = 1 << 10;
}
