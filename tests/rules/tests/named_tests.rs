//! Pages that name tests name tests that exist.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{collections::BTreeSet, fs};

use workspace_rules::{files, root};

fn functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["ccm-host", "proto", "tests", "provider-sdk", "providers"] {
        for file in files(&root().join(folder), ".rs").expect("readable checkout") {
            let source = fs::read_to_string(file).expect("text");
            for words in source.split("fn ").skip(1) {
                names.insert(
                    words.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect(),
                );
            }
        }
    }
    names
}

#[test]
fn every_test_that_a_page_names_exists() {
    let known = functions();
    for (page, least) in [("docs/differences.md", 15), ("docs/threat-model.md", 25)] {
        let text = fs::read_to_string(root().join(page)).expect("the page");
        // The last column of a table.
        let cells = text.lines().filter_map(|line| line.strip_suffix('|')?.rsplit('|').next());
        let named: Vec<&str> = cells
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .filter(|word| word.matches('_').count() >= 3 && !word.contains(' '))
            .collect();
        assert!(named.len() > least, "the way tests are named on {page} has changed: {named:?}");
        let missing: Vec<&&str> = named.iter().filter(|name| !known.contains(**name)).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:?}");
    }
}
