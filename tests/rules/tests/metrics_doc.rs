//! `docs/metrics.md` is made from the places that register metrics.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{collections::BTreeMap, fs};

use workspace_rules::{files, root};

/// Name and help of every metric that the host registers, read from its source.
fn registered() -> BTreeMap<String, String> {
    let mut metrics = BTreeMap::new();
    for file in files(&root().join("ccm-host/src"), ".rs").expect("readable checkout") {
        let source = fs::read_to_string(file).expect("text");
        let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for call in source.split("register(").skip(1) {
            let mut texts = call.split('"');
            let (before, name, between, help) = (texts.next(), texts.next(), texts.next(), texts.next());
            let (Some(before), Some(name), Some(between), Some(help)) = (before, name, between, help) else {
                continue;
            };
            if before.trim().is_empty() && between.trim() == "," {
                metrics.insert(name.to_owned(), help.to_owned());
            }
        }
    }
    metrics
}

fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\nServed at `/metrics`. A counter's name gets `_total` in the exposition. Made from the source by \
         `UPDATE_DOCS=1 cargo test -p workspace-rules`; do not edit.\n\n| Metric | What it says |\n|---|---|\n",
    );
    for (name, help) in registered() {
        page.push_str(&format!("| `{name}` | {help} |\n"));
    }
    page
}

#[test]
fn the_page_of_metrics_is_current() {
    assert!(registered().len() > 30, "the way metrics are registered has changed: {:?}", registered());
    let path = root().join("docs/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, page()).expect("writable checkout");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, page(), "run: UPDATE_DOCS=1 cargo test -p workspace-rules");
}
