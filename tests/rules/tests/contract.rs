//! The contract as a document: every RPC says what an implementer must know.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::fs;

use workspace_rules::{files, root};

/// Each RPC with the comment above it.
fn rpcs() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in files(&root().join("proto/ccm"), ".proto").expect("readable checkout") {
        let text = fs::read_to_string(file).expect("text");
        let mut comment = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("//") {
                comment.push_str(words);
                comment.push('\n');
            } else {
                if let Some(rpc) = line.strip_prefix("rpc ") {
                    let name = rpc.split('(').next().unwrap_or_default();
                    found.push((name.to_owned(), comment.clone()));
                }
                comment.clear();
            }
        }
    }
    found
}

#[test]
fn every_rpc_says_purpose_idempotency_deadline_and_errors() {
    let rpcs = rpcs();
    assert_eq!(rpcs.len(), 19, "a new RPC? Say here how many there are");
    for (name, comment) in rpcs {
        assert!(comment.trim_start().starts_with(&name), "{name}: the comment does not begin with the name");
        for word in ["Idempotent", "eadline", "| Condition", "The host then"] {
            assert!(comment.contains(word), "{name}: nothing is said about {word:?}");
        }
    }
}

#[test]
fn every_rpc_declares_its_idempotency() {
    for file in files(&root().join("proto/ccm"), ".proto").expect("readable checkout") {
        let text = fs::read_to_string(&file).expect("text");
        let rpcs = text.lines().filter(|line| line.trim().starts_with("rpc ")).count();
        assert_eq!(text.matches("option idempotency_level").count(), rpcs, "{}", file.display());
    }
}
