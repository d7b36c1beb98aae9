//! The format that people read: a first page for everybody, then details.

use std::fmt::Write as _;

use super::{CaseReport, Report, Verdict, cell, summary};

pub(super) fn text(report: &Report) -> String {
    let mut page = String::new();
    let provider = &report.provider;
    let _never_fails =
        writeln!(page, "# Conformance of {} {}: {}", provider.name, provider.version, report.verdict_words());
    summary::text(&mut page, report);
    page.push_str("\n## Profiles\n\n| Profile | Verdict | Passed | Failed | Not advertised | Not run |\n|---|---|---|---|---|---|\n");
    for profile in report.profiles() {
        let verdict = profile.verdict.map_or("not advertised", super::Conformance::word);
        let _never_fails = writeln!(
            page,
            "| {} | {verdict} | {} | {} | {} | {} |",
            profile.profile.name(),
            profile.passed,
            profile.failed,
            profile.not_advertised,
            profile.not_run
        );
    }
    let _never_fails = write!(
        page,
        "\nSuite {}, endpoint `{}`, SDK {}, run {}, seed {}, began {}, took {:.1} s.\n",
        report.suite,
        report.endpoint,
        if provider.sdk.is_empty() { "unknown" } else { &provider.sdk },
        report.run_id,
        report.seed,
        report.began,
        report.seconds
    );
    failures(&mut page, report);
    if !report.left.is_empty() {
        page.push_str("\n## Left behind\n\n");
        for left in &report.left {
            let _never_fails = writeln!(page, "- {}: {}", left.what, left.why);
        }
    }
    page.push_str("\n## All cases\n\n| Case | Level | Verdict | ms | What holds |\n|---|---|---|---|---|\n");
    for case in &report.cases {
        let _never_fails = writeln!(
            page,
            "| {} | {:?} | {} | {} | {} |",
            case.id,
            case.level,
            words(&case.verdict),
            case.millis,
            cell(case.title)
        );
    }
    page
}

fn failures(page: &mut String, report: &Report) {
    let failed: Vec<&CaseReport> =
        report.cases.iter().filter(|case| matches!(case.verdict, Verdict::Fail { .. })).collect();
    if failed.is_empty() {
        return;
    }
    page.push_str("\n## Failures in detail\n");
    for case in failed {
        let Verdict::Fail { expected, seen } = &case.verdict else { continue };
        let _never_fails = write!(page, "\n### {} ({:?}): {}\n\n", case.id, case.level, case.title);
        for rule in &case.contract {
            let tag = rule.rule.map(|tag| format!("`[R:{tag}]` ")).unwrap_or_default();
            let _never_fails = writeln!(page, "> {tag}{}", rule.sentence);
        }
        let _never_fails = write!(page, "\n- expected: {expected}\n- seen: `{}`\n", seen.replace('`', "'"));
    }
}

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Pass | Verdict::Fail { .. } => verdict.word().to_owned(),
        Verdict::NotAdvertised { why } | Verdict::NotRun { why } => {
            format!("{}: {}", verdict.word(), cell(why))
        }
    }
}
