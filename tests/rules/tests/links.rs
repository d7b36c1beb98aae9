//! Links between the pages of this checkout lead somewhere.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::fs;

use workspace_rules::{files, root};

#[test]
fn relative_links_resolve() {
    let mut broken = Vec::new();
    for page in files(&root(), ".md").expect("readable checkout") {
        let text = fs::read_to_string(&page).expect("text");
        for target in targets(&text) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            if !page.parent().expect("a file has a folder").join(path).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// The targets of `[text](target)` outside of code blocks.
fn targets(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find(')') else { break };
            found.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
    found
}

#[test]
fn a_link_in_a_code_block_is_not_a_link() {
    assert_eq!(targets("[a](b.md)\n```\n[c](d.md)\n```\n[e](f.md#g) [h](i)"), ["b.md", "f.md#g", "i"]);
}

/// Whoever opens a decision learns in its first lines that another one replaced it, wholly or in part.
#[test]
fn a_superseded_decision_says_so() {
    let folder = root().join("docs/adr");
    let decisions: Vec<(String, String)> = files(&folder, ".md")
        .expect("readable checkout")
        .into_iter()
        .map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read_to_string(&file).expect("text"))
        })
        .collect();
    let head = |number: &str| {
        let found = decisions.iter().find(|(name, _)| name.starts_with(number));
        let (_, text) = found.unwrap_or_else(|| panic!("there is no decision {number}"));
        text.split("**Context.**").next().unwrap_or_default().to_lowercase()
    };
    let mut silent = Vec::new();
    let mut expect = |old: &str, new: &str| {
        if !head(old).split_once("superseded").is_some_and(|(_, by)| by.contains(new)) {
            silent.push(format!("{old} does not say that {new} superseded it"));
        }
    };
    for (name, text) in &decisions {
        for line in text.lines() {
            if name == "README.md" {
                let Some((row, by)) = line.split_once("superseded by ") else { continue };
                let Some(old) = row.strip_prefix("| [").and_then(|row| row.get(..4)) else { continue };
                by.split(|char: char| !char.is_ascii_digit())
                    .filter(|number| number.len() == 4)
                    .for_each(|new| expect(old, new));
            } else if let Some(rest) = line.strip_prefix("Supersedes [") {
                expect(&rest[..4], &name[..4]);
            }
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}
