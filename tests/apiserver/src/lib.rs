//! A kube-apiserver in memory, for tests and simulations.
//!
//! In: an [`ApiServer`], and a name for each process that talks to it. Out: a [`kube::Client`] for that process, a log
//! of every write, and every fault that an apiserver can have: latency, throttling, lost requests and answers, watches
//! that break or fall silent, reads from a replica that lags, compaction, restarts.
//!
//! It answers as kube-apiserver v1.37 does: `tests/parity.rs` sends the same requests to both and compares. It stamps,
//! defaults, validates and versions what it stores; a write that changes nothing is not a write; LIST pages are
//! of one version; watches resume, bookmark, stream lists and expire.
//!
//! Everything runs in the caller's task on tokio's clock, paused or not, and all randomness comes from the seed in
//! [`Options`]: the same calls at the same times get the same answers, byte for byte.
//!
//! ```
//! # use k8s_openapi::api::core::v1::Node;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), kube::Error> {
//! let server = apiserver::ApiServer::new(apiserver::Options::default());
//! let nodes: kube::Api<Node> = kube::Api::all(server.client("kubelet"));
//! nodes.create(&Default::default(), &serde_json::from_str(r#"{"metadata": {"name": "n1"}}"#).unwrap()).await?;
//! assert_eq!(server.world().list::<Node>().len(), 1);
//! # Ok(()) }
//! ```
//!
//! Missing, because nothing here needs it: authorisation, server-side apply, protobuf, webhooks, garbage collection.

mod asked;
mod faults;
mod journal;
mod kind;
mod object;
mod patch;
mod refusal;
mod rules;
mod selector;
mod serve;
mod server;
mod store;
mod world;
mod write;

pub use asked::{Asked, Verb};
pub use faults::{Cut, Fault, Faults, Interception, View};
pub use journal::Write;
pub use kind::Kind;
pub use object::{Key, Object};
pub use refusal::{About, Cause, Refusal};
pub use serve::{Endpoint, Lost};
pub use server::{ApiServer, History, Options};
pub use world::{Held, World};
