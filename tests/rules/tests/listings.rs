//! Listings of the documentation are files of this checkout, which CI compiles and runs: `UPDATE_DOCS=1` rewrites them.
//!
//! A listing is a code block after the line `<!-- listing: PATH -->`; PATH is relative to the root.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::fs;

use workspace_rules::{files, root};

const MARK: &str = "<!-- listing: ";
const FENCE: &str = "```";

#[test]
fn listings_equal_their_files() {
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    let mut found = 0;
    for page in files(&root().join("docs"), ".md").expect("readable checkout") {
        let text = fs::read_to_string(&page).expect("text");
        let (current, listings) = with_listings(&text);
        found += listings;
        if update && current != text {
            fs::write(&page, &current).expect("writable checkout");
        }
        assert!(
            update || current == text,
            "a listing of {} is not its file any more; run UPDATE_DOCS=1 cargo test -p workspace-rules",
            page.display()
        );
    }
    assert!(found > 0, "no page has a listing: is the mark spelled otherwise?");
}

/// The page with each listing replaced by its current file, and the number of listings.
fn with_listings(text: &str) -> (String, usize) {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines();
    let mut listings = 0;
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(path) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        listings += 1;
        let file = fs::read_to_string(root().join(path)).expect("a listing names a file of this checkout");
        let opening =
            lines.next().filter(|line| line.starts_with(FENCE)).expect("a listing has a code block");
        assert!(lines.by_ref().any(|line| line == FENCE), "the code block of {path} has no end");
        out.push_str(&format!("{opening}\n{}\n{FENCE}\n", file.trim_end()));
    }
    (out, listings)
}
