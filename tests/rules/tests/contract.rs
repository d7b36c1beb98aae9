//! The contract as a document: every RPC says what an implementer must know.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

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

/// The fields of each message, and the values of all enums.
fn names() -> (BTreeMap<String, BTreeSet<String>>, BTreeSet<String>) {
    let (mut messages, mut values) = (BTreeMap::<_, BTreeSet<_>>::new(), BTreeSet::new());
    for file in files(&root().join("proto/ccm"), ".proto").expect("readable checkout") {
        let mut message = None;
        for line in fs::read_to_string(file).expect("text").lines() {
            if let Some(rest) = line.strip_prefix("message ") {
                message = rest.split(' ').next().map(str::to_owned);
            } else if line == "}" {
                message = None;
            }
            let declared = line.split_once(" = ").filter(|_| !line.trim_start().starts_with("//"));
            let Some(name) = declared.and_then(|(before, _)| before.rsplit(' ').next()) else { continue };
            match &message {
                Some(message) => messages.entry(message.clone()).or_default().insert(name.to_owned()),
                None => values.insert(name.to_owned()),
            };
        }
    }
    (messages, values)
}

/// What a line names of the contract, and whether it is there: `Limits.max_page_size` is a field, `Limits.max_batch_*` stands
/// for several, CAPABILITY_ADOPTION is a value.
fn named<'a>(
    line: &'a str,
    messages: &BTreeMap<String, BTreeSet<String>>,
    values: &BTreeSet<String>,
) -> Vec<(&'a str, bool)> {
    let is_of_a_field =
        |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || "_*".contains(char);
    let field = |quoted: &'a str| {
        let (message, field) = quoted.split_once('.')?;
        let fields = messages.get(message).filter(|_| field.chars().all(is_of_a_field))?;
        let is_there = match field.strip_suffix('*') {
            Some(start) => fields.iter().any(|one| one.starts_with(start)),
            None => fields.contains(field),
        };
        Some((quoted, is_there))
    };
    let words = line.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let capabilities =
        words.filter(|word| word.strip_prefix("CAPABILITY_").is_some_and(|name| !name.is_empty()));
    let fields = line.split('`').skip(1).step_by(2).filter_map(field);
    fields.chain(capabilities.map(|word| (word, values.contains(word)))).collect()
}

#[test]
fn what_is_named_of_the_contract_exists() {
    let (messages, values) = names();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    // These tell what the contract was.
    let is_past = |path: &str| {
        ["/gen/", "CHANGELOG.md", "/docs/adr/", "contract-changes.md"].iter().any(|part| path.contains(part))
    };
    for ending in [".md", ".proto", ".rs", ".go", ".py"] {
        for file in files(&root(), ending).expect("readable checkout") {
            let path = file.display().to_string();
            let text = if is_past(&path) { String::new() } else { fs::read_to_string(&file).expect("text") };
            let is_prose = |line: &&str| {
                ending == ".md" || ["//", "#"].iter().any(|mark| line.trim_start().starts_with(mark))
            };
            for line in text.lines().filter(is_prose) {
                for (name, is_there) in named(line, &messages, &values) {
                    compared += 1;
                    if !is_there {
                        wrong.push(format!("{path}: {name}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "the contract has no\n{}", wrong.join("\n"));
    assert!(compared > 90, "only {compared} names are compared: are they written otherwise?");
}
