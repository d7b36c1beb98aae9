//! The contract as a document: every RPC says what an implementer must know.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::fs;

use workspace_rules::{files, root};

/// Each RPC with the comment above it, and the line after it.
fn rpcs() -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for file in files(&root().join("proto/ccm"), ".proto").expect("readable checkout") {
        let text = fs::read_to_string(file).expect("text");
        let mut comment = String::new();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if let Some(words) = line.strip_prefix("//") {
                comment.push_str(words);
                comment.push('\n');
            } else {
                if let Some(rpc) = line.strip_prefix("rpc ") {
                    let name = rpc.split('(').next().unwrap_or_default();
                    let option = lines.next().unwrap_or_default();
                    found.push((name.to_owned(), comment.clone(), option.to_owned()));
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
    for (name, comment, _) in rpcs {
        assert!(comment.trim_start().starts_with(&name), "{name}: the comment does not begin with the name");
        for word in ["Idempotent", "eadline", "| Condition", "The host then"] {
            assert!(comment.contains(word), "{name}: nothing is said about {word:?}");
        }
    }
}

#[test]
fn deadlines_are_the_same_in_comments_and_options() {
    let mut compared = 0;
    for (name, comment, option) in rpcs() {
        let words = comment.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((_, said)) = words.split_once("Deadline: ") else { continue };
        if !option.starts_with("option (method)") {
            continue;
        }
        let numbers = |text: &str| -> Vec<u32> {
            text.split(|char: char| !char.is_ascii_digit())
                .filter_map(|word| word.parse().ok())
                .take(2)
                .collect()
        };
        assert_eq!(numbers(said), numbers(&option), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 17, "all but GetInfo, and WatchInstances, which has none");
}

#[test]
fn every_rpc_declares_its_idempotency() {
    for file in files(&root().join("proto/ccm"), ".proto").expect("readable checkout") {
        let text = fs::read_to_string(&file).expect("text");
        let rpcs = text.lines().filter(|line| line.trim().starts_with("rpc ")).count();
        assert_eq!(text.matches("option idempotency_level").count(), rpcs, "{}", file.display());
    }
}
