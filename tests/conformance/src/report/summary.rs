//! The first page: whether the provider may be used, what is wrong, and what has not been tested.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{CaseReport, Conformance, Report, Verdict};
use crate::{case::Level, scenario::HOOKS};

/// The maximum number of characters of an observation on this page.
const SHOWN: usize = 160;
/// The maximum number of cases listed for one reason.
const NAMED: usize = 6;

pub(super) fn text(page: &mut String, report: &Report) {
    let _never_fails = write!(page, "\n**{}** {}\n", opening(report), counts(report));
    if let Some(why) = &report.ended_early {
        let _never_fails = write!(page, "\n**The run ended early: {why}.**\n");
    }
    waits(page, report);
    failed(page, report);
    not_shown(page, report);
}

/// What a real cloud asks for.
fn waits(page: &mut String, report: &Report) {
    if report.waits.calls.is_empty() {
        return;
    }
    let calls: Vec<_> =
        report.waits.calls.iter().map(|(reason, times)| format!("{reason} {times}")).collect();
    let _never_fails = write!(
        page,
        "\nThe provider asked for patience, and the suite waited as a host does: {}; {:.1} s in all.\n",
        calls.join(", "),
        report.waits.seconds
    );
}

fn opening(report: &Report) -> &'static str {
    match report.conformance() {
        Conformance::Conformant => "It keeps the contract, as far as was tried.",
        Conformance::NotConformant => "It breaks the contract and must not be used before that is mended.",
        Conformance::Incomplete => {
            "Nothing was seen that breaks the contract, but too little was seen to say that it keeps it, or something was left behind."
        }
    }
}

fn counts(report: &Report) -> String {
    format!(
        "{} cases passed, {} failed, {} could not be tried, {} are about what it does not claim to do.",
        report.count("pass"),
        report.count("FAIL"),
        report.count("not-run"),
        report.count("not-advertised")
    )
}

fn failed(page: &mut String, report: &Report) {
    let seen = |case: &CaseReport| match &case.verdict {
        Verdict::Fail { seen, .. } => Some(short(seen)),
        _ => None,
    };
    let failed: Vec<_> = report.cases.iter().filter_map(|case| Some((case, seen(case)?))).collect();
    if failed.is_empty() {
        return;
    }
    page.push_str(
        "\n## What failed\n\n| Case | This does not hold | Seen instead | Remedy |\n|---|---|---|---|\n",
    );
    for (case, seen) in failed {
        let (title, remedy) =
            (super::cell(case.title), super::cell(case.remedy.as_deref().unwrap_or_default()));
        let _never_fails = writeln!(page, "| {} | {title} | {seen} | {remedy} |", case.id);
    }
}

/// One short line without anything that Markdown would interpret.
fn short(seen: &str) -> String {
    let line = seen.replace(['`', '\n'], " ");
    let cut: String = line.chars().take(SHOWN).collect();
    let more = if cut.len() < line.len() { "…" } else { "" };
    format!("`{}{more}`", super::cell(&cut))
}

fn not_shown(page: &mut String, report: &Report) {
    let mut by_reason: BTreeMap<(bool, &str), Vec<&CaseReport>> = BTreeMap::new();
    for case in &report.cases {
        if let Verdict::NotRun { why } = &case.verdict {
            by_reason.entry((case.level != Level::Core, why)).or_default().push(case);
        }
    }
    if by_reason.is_empty() {
        return;
    }
    page.push_str(
        "\n## What was not shown\n\n| Why | What to do | Needed for a verdict | Cases |\n|---|---|---|---|\n",
    );
    for ((extended, why), cases) in by_reason {
        let (needed, todo) = (if extended { "no" } else { "yes" }, super::cell(&what_to_do(why)));
        let mut named: Vec<_> = cases.iter().take(NAMED).map(|case| case.id.to_owned()).collect();
        if cases.len() > NAMED {
            named.push(format!("and {} more", cases.len() - NAMED));
        }
        let _never_fails =
            writeln!(page, "| {} | {todo} | {needed} | {} |", super::cell(why), named.join(", "));
    }
}

fn what_to_do(why: &str) -> String {
    let hook = why.strip_prefix("no hook ").and_then(|name| HOOKS.iter().find(|hook| hook.name == name));
    match hook {
        Some(hook) => format!("give the scenario a hook that {}", hook.what),
        None if why.contains("max-wait") || why.contains("--case-timeout") => {
            "if the cloud is that slow, raise max-wait in the scenario and --case-timeout".to_owned()
        }
        None if why.starts_with("hook ") => "mend this hook of the scenario".to_owned(),
        None => "see the reason".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        cases,
        report::ProviderReport,
        target::{Made, Waits},
    };

    fn report(verdicts: &[(&str, Verdict)]) -> Report {
        let of = |(id, verdict): &(&str, Verdict)| {
            let case = cases::all().find(|case| case.id == *id).unwrap();
            CaseReport::new(case, verdict.clone(), Duration::ZERO, Made::default())
        };
        Report {
            suite: "1",
            endpoint: String::new(),
            provider: ProviderReport::default(),
            run_id: String::new(),
            seed: 0,
            filter: Vec::new(),
            began: String::new(),
            seconds: 0.0,
            waits: Waits::default(),
            resumed: None,
            made: Made::default(),
            ended_early: None,
            cases: verdicts.iter().map(of).collect(),
            left: Vec::new(),
        }
    }

    #[test]
    fn the_first_page_says_what_failed_with_its_remedy_and_what_was_not_shown_and_why() {
        let seen = "targets are {},\nnot {\"a|1\"}".to_owned();
        let fail = Verdict::Fail { expected: String::new(), seen };
        let no_hook = || Verdict::NotRun { why: "no hook inspect-load-balancer".to_owned() };
        let mut page = String::new();
        text(&mut page, &report(&[("BUILT-03", fail), ("BUILT-01", no_hook()), ("DEL-09", no_hook())]));
        for wanted in [
            "**It breaks the contract and must not be used before that is mended.** 0 cases passed, 1 failed, 2 could not",
            "| BUILT-03 | the instances of the set stand behind it, no other | `targets are {}, not {\"a\\|1\"}` | build all of",
            "| no hook inspect-load-balancer | give the scenario a hook that asks the cloud, never the provider, what \
             exists for this Service | yes | BUILT-01 |",
            "| no | DEL-09 |",
        ] {
            assert!(page.contains(wanted), "{wanted}\n{page}");
        }
    }

    #[test]
    fn what_is_incomplete_is_not_called_bad() {
        let mut page = String::new();
        text(&mut page, &report(&[("BUILT-01", Verdict::NotRun { why: "x".to_owned() })]));
        assert!(
            page.contains("Nothing was seen that breaks the contract, but too little was seen"),
            "{page}"
        );
    }
}
