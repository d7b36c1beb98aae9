//! A kube-apiserver in memory, for tests and simulations.
//!
//! In: an [`ApiServer`], and for each process that talks to it a name. Out: a [`kube::Client`] for that process, a log of
//! every write, and every bad day that an apiserver can have: latency, throttling, lost requests and answers, watches that
//! break or fall silent, reads from a replica that lags, compaction, restarts.
//!
//! It answers as kube-apiserver v1.36 does: `tests/parity.rs` puts the same requests to both and compares. What is
//! stored is stamped, defaulted, validated and versioned; a write that changes nothing writes nothing; LIST pages are
//! of one version; watches resume, bookmark, stream lists and expire.
//!
//! Everything runs in the caller's task on tokio's clock, paused or not, and nothing is random but by the seed in
//! [`Options`]: the same calls at the same times give the same answers, to the byte.
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
//! Not there, because nobody here needs it: authorisation, server-side apply, protobuf, webhooks, garbage collection.

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
