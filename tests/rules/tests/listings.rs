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
        let fences = text.lines().filter(|line| line.starts_with(FENCE)).count();
        assert!(fences % 2 == 0, "{}: a code block without a beginning or an end", page.display());
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

/// The table of docs/write-a-provider.md walks through the examples by the names of their functions.
#[test]
fn the_examples_have_the_functions_that_the_guide_names() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect(path);
    let guide = read("docs/write-a-provider.md");
    let (_, table) = guide.split_once("\n## A whole provider\n").expect("the section");
    let (table, _) = table.split_once("\n## ").expect("a section after it");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let names: Vec<&str> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 10, "{names:?}");
    let examples = [
        ("provider-sdk/rust/examples/small_cloud.rs", "fn "),
        ("provider-sdk/python/examples/small_cloud.py", "def "),
        ("provider-sdk/go/examples/small-cloud/main.go", " "),
    ]
    .map(|(path, before)| (path, before, read(path).to_lowercase()));
    for name in names {
        for (path, before, text) in &examples {
            let name = if path.ends_with(".go") { name.replace('_', "") } else { name.to_owned() };
            let found = ["", "_"].iter().any(|private| text.contains(&format!("{before}{private}{name}(")));
            assert!(found, "{path} has no function {name}");
        }
    }
}

/// The walks of docs/architecture.md name the file and the functions of each step.
#[test]
fn the_walks_lead_through_functions_that_exist() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let (mut steps, mut lost) = (0, Vec::new());
    for place in page.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit_once(" | ")) {
        for place in place.1.split("; ") {
            let mut names = place.split('`').skip(1).step_by(2);
            let Some(path) =
                names.next().filter(|path| path.starts_with("ccm-host/") && path.ends_with(".rs"))
            else {
                continue;
            };
            let text = fs::read_to_string(root().join(path));
            steps += 1;
            lost.extend(text.as_ref().err().map(|error| format!("{path}: {error}")));
            let text = text.unwrap_or_default();
            let gone = names.filter(|name| !text.contains(&format!("fn {name}")));
            lost.extend(gone.map(|name| format!("{path} has no function {name}")));
        }
    }
    assert!(steps > 40, "only {steps} steps were found: are the tables written otherwise?");
    assert!(lost.is_empty(), "{lost:#?}");
}
