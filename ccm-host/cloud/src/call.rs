//! Calls to a provider: one RPC, or many questions in one.
//!
//! ```text
//! question ─► gather ─► batch ─► split ─► limit ─► rpc ─► provider
//!            (lanes)   (match   (halve,  (permit) (deadline,
//!                       keys)   offenders)         span)
//! ```

pub(super) mod answer;
pub(super) mod batch;
pub(super) mod gather;
pub(super) mod limit;
pub(super) mod list;
pub(super) mod rpc;
pub(super) mod sets;
pub(super) mod split;
