//! The format that build servers read: a suite for each profile.

use std::fmt::Write as _;

use super::{CaseReport, Report, Verdict};
use crate::case::Level;

pub(super) fn text(report: &Report) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (cases, failed) = (report.cases.len(), report.count("FAIL"));
    let _never_fails = writeln!(
        xml,
        "<testsuites name=\"provider-conformance\" tests=\"{cases}\" failures=\"{failed}\" time=\"{:.3}\">",
        report.seconds
    );
    for profile in report.profiles() {
        let name = profile.profile.name();
        let of = || report.cases.iter().filter(|case| case.profile == profile.profile);
        let skipped = profile.not_run + profile.not_advertised;
        let _never_fails = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" skipped=\"{skipped}\">",
            of().count(),
            profile.failed
        );
        of().for_each(|case| write_case(&mut xml, name, case));
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn write_case(xml: &mut String, profile: &str, case: &CaseReport) {
    let seconds = case.millis as f64 / 1000.0;
    let name = escaped(&format!("{} {}", case.id, case.title));
    let _never_fails =
        write!(xml, "    <testcase classname=\"{profile}\" name=\"{name}\" time=\"{seconds:.3}\">");
    match &case.verdict {
        Verdict::Pass => {}
        Verdict::Fail { expected, seen } => {
            let kind = if case.level == Level::Core { "core" } else { "extended" };
            let message = escaped(&format!("expected: {expected}; seen: {seen}"));
            let contract: Vec<_> = case.contract.iter().map(|rule| rule.sentence.as_str()).collect();
            let contract = escaped(&contract.join("\n"));
            let _never_fails =
                write!(xml, "<failure type=\"{kind}\" message=\"{message}\">{contract}</failure>");
        }
        Verdict::NotAdvertised { why } | Verdict::NotRun { why } => {
            let message = escaped(&format!("{}: {why}", case.verdict.word()));
            let _never_fails = write!(xml, "<skipped message=\"{message}\"/>");
        }
    }
    xml.push_str("</testcase>\n");
}

/// Escapes a text for an attribute or an element. Characters that XML cannot represent become question marks.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' => safe.push_str("&#10;"),
            '\t' => safe.push_str("&#9;"),
            other if other.is_control() => safe.push('?'),
            other => safe.push(other),
        }
    }
    safe
}
