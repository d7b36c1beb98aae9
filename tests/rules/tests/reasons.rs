//! People and programs read the same about a reason: the options of `ErrorReason`.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use workspace_rules::{files, root};

/// A reason, as its line describes it.
struct Reason {
    comment: String,
    codes: Vec<String>,
    class: String,
}

/// All reasons by their name on the wire.
fn reasons() -> BTreeMap<String, Reason> {
    let text =
        fs::read_to_string(root().join("proto/ccm/cloudprovider/v1alpha1/errors.proto")).expect("text");
    let (mut found, mut comment) = (BTreeMap::new(), String::new());
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("//") {
            comment = comment + words + " ";
            continue;
        }
        if let Some(value) = line.strip_prefix("ERROR_REASON_") {
            let name = value.split(' ').next().unwrap_or_default();
            let codes = value.split('"').skip(1).step_by(2).map(str::to_owned).collect();
            let class = value.split("RETRY_CLASS_").nth(1).unwrap_or_default();
            let class = class.trim_end_matches(|last: char| !last.is_ascii_uppercase());
            let class = class.split(',').next().unwrap_or_default().to_owned();
            found.insert(name.to_owned(), Reason { comment: comment.clone(), codes, class });
        }
        comment.clear();
    }
    assert!(found.len() > 30, "only {} reasons are seen: is a line written otherwise?", found.len());
    found
}

fn words(text: &str) -> Vec<&str> {
    text.split(|mark: char| !mark.is_ascii_alphanumeric() && mark != '_').collect()
}

#[test]
fn the_comment_of_a_reason_says_its_codes_and_its_class() {
    for (name, Reason { comment, codes, class }) in reasons() {
        let words = words(&comment);
        if let Some(at) = words.iter().position(|word| word.eq_ignore_ascii_case("code")) {
            let told: Vec<_> = words[at + 1..].iter().step_by(2).take(codes.len()).collect();
            assert_eq!(told, codes.iter().collect::<Vec<_>>(), "{name}");
        }
        let says = |word: &str| words.contains(&word) && !comment.contains("No retry");
        for (word, its) in [("retry", "BACKOFF"), ("slow", "SLOW"), ("wait", "WAIT")] {
            assert!(!says(word) || class == its, "{name} is of class {class}, and its comment says {word:?}");
        }
    }
}

/// Rows such as `| the cloud is down | UNAVAILABLE | CLOUD_API_UNAVAILABLE | retries |`, here with one code each.
#[test]
fn tables_of_the_contract_say_the_codes_of_reasons() {
    let reasons = reasons();
    let mut compared = 0;
    for file in files(&root().join("proto/ccm"), ".proto").expect("readable checkout") {
        for row in fs::read_to_string(&file).expect("text").lines() {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let [_, _, code, reason, ..] = cells[..] else { continue };
            if let Some(Reason { codes, .. }) = reasons.get(reason)
                && !code.starts_with("OK")
            {
                assert!(codes.iter().any(|one| one == code), "{}: {row}", file.display());
                compared += 1;
            }
        }
    }
    assert!(compared > 40, "only {compared} rows are compared: is a table written otherwise?");
}

/// `docs/add-a-reason.md` says what each file is for.
#[test]
fn each_sdk_can_say_each_reason() {
    let sdks = [
        ("provider-sdk/rust/src", ".rs", "/gen/"),
        ("provider-sdk/go", ".go", "/gen/"),
        ("provider-sdk/python/src", ".py", "/gen/"),
    ];
    for (folder, ending, generated) in sdks {
        let all = files(&root().join(folder), ending).expect("readable checkout");
        let by_hand = all.iter().filter(|file| !file.to_string_lossy().contains(generated));
        let text: String = by_hand.map(|file| fs::read_to_string(file).expect("text")).collect();
        let said: BTreeSet<_> =
            words(&text).into_iter().map(|word| word.replace("ErrorReason_", "")).collect();
        for reason in reasons().into_keys() {
            let name = format!("ERROR_REASON_{reason}");
            let of_rust: String = reason.split('_').map(capitalised).collect();
            assert!(
                said.contains(&name) || said.contains(&of_rust),
                "{folder} never says {reason}: see docs/add-a-reason.md"
            );
        }
    }
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_owned() + &rest.to_ascii_lowercase()
}
