//! `docs/metrics.md` is made from the places that register metrics.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{collections::BTreeMap, fs};

use workspace_rules::{files, root};

/// Name and help of every metric of the host, read from its source: those that are registered, and those that a collector
/// makes at each scrape.
fn registered() -> BTreeMap<String, String> {
    let mut metrics = BTreeMap::new();
    for file in files(&root().join("ccm-host/src"), ".rs").expect("readable checkout") {
        let source = fs::read_to_string(file).expect("text");
        let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        metrics.extend(source.split("register(").skip(1).filter_map(first_pair));
        if let Some((_, collector)) = source.split_once("impl Collector for ") {
            metrics.extend(collector.split('(').skip(1).filter_map(|call| {
                first_pair(call.trim_start().strip_prefix("&mut encoder,").unwrap_or(call))
            }));
        }
    }
    metrics
}

/// The first two arguments of a call, if both are texts.
fn first_pair(arguments: &str) -> Option<(String, String)> {
    let mut texts = arguments.split('"');
    let (before, name, between, help) = (texts.next()?, texts.next()?, texts.next()?, texts.next()?);
    (before.trim().is_empty() && between.trim() == ",").then(|| (name.to_owned(), help.to_owned()))
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
    assert!(
        ["workqueue_depth", "process_open_fds"].iter().all(|name| registered().contains_key(*name))
            && registered().len() > 40,
        "the way metrics are registered has changed: {:?}",
        registered()
    );
    let path = root().join("docs/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, page()).expect("writable checkout");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, page(), "run: UPDATE_DOCS=1 cargo test -p workspace-rules");
}
