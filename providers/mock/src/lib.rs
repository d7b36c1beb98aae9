//! A complete in-memory cloud behind the contract, with an admin door.
