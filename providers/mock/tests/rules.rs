//! The contract's rules, the code's breaches and the README's tables are the same set.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{collections::BTreeSet, fs, path::Path};

use provider_mock::{breach, fault::KINDS};

/// Rules that a mock cannot break from the inside, each with the reason. There are none yet.
const NOT_OURS: [(&str, &str); 0] = [];

/// Breaches of sentences that carry no tag.
const WITHOUT_TAG: [&str; 6] =
    ["unknown-enum", "unknown-field", "unknown-frame", "message-size", "answer-parts", "required-missing"];

fn proto_texts(folder: &Path, texts: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            proto_texts(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            texts.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

fn tags() -> BTreeSet<String> {
    let mut texts = String::new();
    proto_texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/ccm"), &mut texts);
    let found = texts.split("[R:").skip(1).filter_map(|rest| rest.split(']').next());
    found.map(str::to_owned).collect()
}

#[test]
fn every_rule_can_be_broken_or_says_why_not() {
    let tags = tags();
    assert!(tags.len() > 40, "only {} tags found", tags.len());
    let known: BTreeSet<_> = breach::all()
        .map(|breach| breach.name)
        .filter(|rule| !WITHOUT_TAG.contains(rule))
        .chain(NOT_OURS.iter().map(|(rule, _)| *rule))
        .map(str::to_owned)
        .collect();
    assert_eq!(known, tags);
}

#[test]
fn no_breach_is_there_twice() {
    let rules: Vec<_> = breach::all().map(|breach| breach.name).collect();
    let distinct: BTreeSet<_> = rules.iter().collect();
    assert_eq!(distinct.len(), rules.len());
}

/// Rows of the README's table under this heading: the first cell's code, the second, and the last.
fn rows(readme: &str, heading: &str) -> Vec<(String, String, String)> {
    let (_, section) = readme.split_once(heading).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.replace('`', "").trim().to_owned()).collect()
    };
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    lines.map(cells).map(|cells| (cells[0].clone(), cells[1].clone(), cells[2].clone())).collect()
}

#[test]
fn the_readme_lists_every_fault() {
    let wanted: Vec<_> = KINDS
        .iter()
        .map(|kind| {
            let keys: Vec<_> = kind.choices.iter().map(|key| key.replace('_', "-")).collect();
            (kind.name.to_owned(), keys.join(", "), kind.what.to_owned())
        })
        .collect();
    assert_eq!(rows(include_str!("../README.md"), "\n## Faults\n"), wanted);
}

#[test]
fn the_readme_lists_every_breach() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once("\n## Breaches\n").unwrap();
        let (lead, table) = rest.split_once("| `").unwrap();
        let (_, after) = table.split_once("|\n\n").unwrap();
        let rows = breach::all().map(|breach| {
            let ways: Vec<_> = breach.choices.iter().map(|way| format!("`{way}`")).collect();
            format!("| `{}` | {} | {} |\n", breach.name, ways.join(", "), breach.what)
        });
        let table: String = rows.collect();
        fs::write(&path, format!("{before}\n## Breaches\n{lead}{table}\n{after}")).unwrap();
    }
    let wanted: Vec<_> = breach::all()
        .map(|breach| (breach.name.to_owned(), breach.choices.join(", "), breach.what.replace('`', "")))
        .collect();
    let readme = fs::read_to_string(&path).unwrap();
    assert_eq!(
        rows(&readme, "\n## Breaches\n"),
        wanted,
        "run: UPDATE_DOCS=1 cargo test -p provider-mock --test rules"
    );
}
