//! Every ID of the behaviour specification is in a test, or on the page of differences with its reason.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]
#![allow(clippy::print_stdout, reason = "the share is for people")]

use std::{collections::BTreeSet, fs, path::Path};

use workspace_rules::{
    files, root,
    spec_ids::{self, SpecId, WEAKNESSES},
};

/// Groups that concern no controller of this host; the page of differences says why for each.
const OUT_OF_SCOPE: [&str; 4] = ["PV", "KLT", "SYNC", "CLD"];

/// At least this percentage of the scenarios in scope must be in tests.
const SHARE: usize = 98;

/// The part of a source file that is compiled only for tests.
fn test_code(path: &Path) -> String {
    let source = fs::read_to_string(path).expect("text");
    let is_test = path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs");
    match source.find("#[cfg(test)]") {
        _ if is_test => source,
        Some(at) => source[at..].to_owned(),
        None => String::new(),
    }
}

fn in_tests(known: &BTreeSet<SpecId>) -> BTreeSet<SpecId> {
    let mut found = BTreeSet::new();
    for folder in ["ccm-host", "tests/e2e"] {
        for file in files(&root().join(folder), ".rs").expect("readable checkout") {
            found.extend(spec_ids::claimed(&test_code(&file), known));
        }
    }
    found
}

fn on_the_page(known: &BTreeSet<SpecId>) -> BTreeSet<SpecId> {
    let page = fs::read_to_string(root().join("docs/differences.md")).expect("the page");
    spec_ids::claimed(&page, known)
}

fn listed<'a>(ids: impl IntoIterator<Item = &'a SpecId>) -> String {
    ids.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_list_is_whole() {
    let all = spec_ids::all();
    let weaknesses = all.iter().filter(|id| WEAKNESSES.contains(&id.group)).count();
    assert_eq!((all.len(), weaknesses), (579, 78), "spec-ids.txt is the specification's own list");
}

#[test]
fn every_scenario_is_in_a_test_or_among_the_differences() {
    let all = spec_ids::all();
    let (tests, page) = (in_tests(&all), on_the_page(&all));
    let scenarios: BTreeSet<SpecId> = all
        .into_iter()
        .filter(|id| !OUT_OF_SCOPE.contains(&id.group) && !WEAKNESSES.contains(&id.group))
        .collect();
    let missing: Vec<&SpecId> =
        scenarios.iter().filter(|id| !tests.contains(id) && !page.contains(id)).collect();
    assert!(missing.is_empty(), "neither in a test nor in docs/differences.md: {}", listed(missing));
    let tested = scenarios.intersection(&tests).count();
    let untested = listed(scenarios.difference(&tests));
    println!("{tested} of {} scenarios in scope are in tests; only told: {untested}", scenarios.len());
    assert!(tested * 100 >= scenarios.len() * SHARE, "too few are in tests; missing there: {untested}");
}

#[test]
fn every_weakness_has_its_row() {
    let all = spec_ids::all();
    let page = on_the_page(&all);
    let missing: Vec<&SpecId> =
        all.iter().filter(|id| WEAKNESSES.contains(&id.group) && !page.contains(id)).collect();
    assert!(missing.is_empty(), "without a row in docs/differences.md: {}", listed(missing));
}

#[test]
fn what_is_out_of_scope_is_on_the_page_with_its_reason() {
    let all = spec_ids::all();
    let page = on_the_page(&all);
    let missing: Vec<&SpecId> =
        all.iter().filter(|id| OUT_OF_SCOPE.contains(&id.group) && !page.contains(id)).collect();
    assert!(missing.is_empty(), "docs/differences.md does not say why these are out: {}", listed(missing));
}

#[test]
fn nobody_claims_what_the_specification_does_not_have() {
    let all = spec_ids::all();
    let last = |group| all.iter().filter(|id| id.group == group).map(|id| id.number).max();
    let claimed: BTreeSet<SpecId> = in_tests(&all).union(&on_the_page(&all)).copied().collect();
    // The list has a range of the specification under its ends: nothing in between is invented.
    let invented: Vec<&SpecId> =
        claimed.iter().filter(|id| id.number == 0 || Some(id.number) > last(id.group)).collect();
    assert!(invented.is_empty(), "not in spec-ids.txt: {}", listed(invented));
}

#[test]
fn a_claim_is_an_id_or_a_range() {
    let all = spec_ids::all();
    let rows = [
        ("LIFE-7", "LIFE-7"),
        ("(NODE-12, SW-3)", "NODE-12 SW-3"),
        ("LIFE-7..13", "LIFE-7 LIFE-13"),
        ("TNT-6..7 and TNT-1", "TNT-1 TNT-6 TNT-7"),
        ("NODE-999", "NODE-999"),
        ("UNODE-12, X-SW-3, NODE-, NODE", ""),
    ];
    for (text, want) in rows {
        assert_eq!(listed(&spec_ids::claimed(text, &all)), want, "{text}");
    }
}
