//! Contract, cases, hooks and pages agree.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{collections::BTreeSet, fs, path::Path};

use provider_conformance::{
    cases::{self, costs},
    cli, contract, report,
    scenario::{HOOKS, Scenario},
    target::Made,
};

#[test]
fn every_rule_has_a_case_and_every_case_a_sentence() {
    let rules: BTreeSet<_> = contract::tags().collect();
    let tried: BTreeSet<_> = cases::all().flat_map(|case| case.rules).copied().collect();
    assert_eq!(tried, rules);
    for case in cases::all() {
        assert!(!case.rules.is_empty() || !case.words.is_empty(), "{}: no sentence of the contract", case.id);
        for words in case.words {
            assert!(contract::says(words), "{}: the contract does not say {words:?}", case.id);
        }
    }
}

#[test]
fn every_rule_has_a_remedy() {
    let without: Vec<_> = contract::tags().filter(|tag| report::remedy(tag).is_none()).collect();
    assert_eq!(without, Vec::<&str>::new());
}

#[test]
fn ids_are_unique_and_there_are_enough() {
    let ids: Vec<_> = cases::all().map(|case| case.id).collect();
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    assert!(ids.len() >= 120, "{} cases", ids.len());
}

#[test]
fn every_hook_is_known_and_every_known_hook_is_used() {
    let known: BTreeSet<_> = HOOKS.iter().map(|hook| hook.name).collect();
    let needed: BTreeSet<_> = cases::all().flat_map(|case| case.hooks).copied().collect();
    assert_eq!(needed, known);
}

fn doc(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

#[test]
fn the_page_of_cases_is_current() {
    let path = doc("conformance-cases.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, cli::page()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, cli::page(), "run: UPDATE_DOCS=1 cargo test -p provider-conformance --test rules");
}

/// Money is spent by these numbers.
#[test]
fn the_page_about_your_cloud_tells_what_the_estimate_tells() {
    let page = fs::read_to_string(doc("conformance-on-your-cloud.md")).unwrap();
    let yaml = page.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    let indent = yaml.len() - yaml.trim_start().len();
    let scenario: String =
        yaml.lines().map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect();
    let scenario = Scenario::from_yaml(&scenario).unwrap();
    let all = cases::all().count();
    let Made { balancers, instances } = cases::all().map(|case| costs::of(case).made).sum();
    let time: std::time::Duration = cases::all().map(|case| costs::time(costs::of(case), &scenario)).sum();
    let minutes = time.as_secs().div_ceil(60);
    for told in [
        format!(": {all} cases, run "),
        format!(
            "about {balancers} balancers and {instances} instances will be made; it takes about {minutes} min"
        ),
        format!("| about {balancers} in a whole run,"),
        format!("| about {instances}, at most "),
        format!("is {balancers} times the smallest charge for a balancer, and {instances} times that"),
        format!("[131/{all}, "),
    ] {
        assert!(page.contains(&told), "docs/conformance-on-your-cloud.md does not say {told:?}");
    }
}

#[test]
fn the_reference_tells_every_hook() {
    let page = fs::read_to_string(doc("conformance.md")).unwrap();
    for hook in HOOKS {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", hook.name)));
        let row = row.unwrap_or_else(|| panic!("docs/conformance.md does not tell the hook {}", hook.name));
        for variable in hook.variables {
            assert!(row.contains(&format!("`{variable}`")), "{}: {variable} is not told", hook.name);
        }
        assert!(row.contains(hook.what), "{}: what it does is told otherwise than in the code", hook.name);
    }
}
