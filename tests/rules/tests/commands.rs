//! Scripts that build something of this workspace name a target, not a package: a choice of packages is a choice of features,
//! and what others have built is compiled anew for minutes.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::fs;

use workspace_rules::{files, root};

#[test]
fn no_script_chooses_packages() {
    let (mut wrong, mut scripts) = (Vec::new(), 0);
    for file in files(&root(), "").expect("readable checkout") {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if !(text.starts_with("#!") || file.ends_with(".cargo/config.toml")) {
            continue;
        }
        scripts += 1;
        let builds = |line: &&str| {
            ["cargo run", "cargo build", "cargo test", "= \"run"].iter().any(|one| line.contains(one))
        };
        // Nothing is below what starts the demo.
        let chooses = |line: &&str| {
            (line.contains(" -p ") || line.contains("--package ")) && !line.contains("--package programs ")
        };
        // What is optimised shares nothing with what is tested.
        let optimised = |line: &&str| line.contains("--release");
        for line in text.lines().filter(builds).filter(chooses).filter(|line| !optimised(line)) {
            wrong.push(format!("{}: {}", file.display(), line.trim()));
        }
    }
    assert!(wrong.is_empty(), "name a --bin, a --test or an --example instead:\n{}", wrong.join("\n"));
    assert!(scripts > 20, "only {scripts} scripts are seen");
}
