//! A complete in-memory cloud behind the contract, with an admin door.
#![warn(missing_docs)]

pub mod cloud;
