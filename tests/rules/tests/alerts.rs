//! The section "Alerts" of `docs/operate.md` is generated from `deploy/prometheus/alerts.yaml`: `UPDATE_DOCS=1`
//! rewrites it.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{collections::BTreeMap, fs};

use serde::Deserialize;
use workspace_rules::root;

const HEADING: &str = "\n## Alerts\n";
const ALERTS: &str = "deploy/prometheus/alerts.yaml";

#[derive(Deserialize)]
struct File {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    alert: String,
    expr: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn alerts() -> Vec<Alert> {
    let text = fs::read_to_string(root().join(ALERTS)).expect("the alerts");
    let file: File = serde_saphyr::from_str(&text).expect("YAML in the shape of a PrometheusRule");
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

fn section() -> String {
    let mut section = format!(
        "{HEADING}\nWhat each alert of [{ALERTS}](../{ALERTS}) means, and what to do. Made from that file by \
         `UPDATE_DOCS=1 cargo test -p workspace-rules`; do not edit.\n"
    );
    for alert in alerts() {
        let said = |name: &str| linked(&alert.annotations[name]);
        section.push_str(&format!(
            "\n### {}\n\n{}: `{}`\n\n{}\n\n**Do:** {}\n",
            alert.alert,
            alert.labels["severity"],
            alert.expr,
            said("description"),
            said("remedy")
        ));
    }
    section
}

/// Pages and files of this checkout become links, relative to `docs/`.
fn linked(text: &str) -> String {
    let link = |word: &str| {
        let path = word.trim_end_matches(['.', ',', ')', ':']);
        let target = path.trim_start_matches('(');
        if !target.contains('/') || !root().join(target).is_file() {
            return word.to_owned();
        }
        let seen = target.strip_prefix("docs/").map_or_else(|| format!("../{target}"), str::to_owned);
        word.replace(target, &format!("[{target}]({seen})"))
    };
    text.split(' ').map(link).collect::<Vec<_>>().join(" ")
}

/// The page with its section generated from the current alerts; the rest stays.
fn page(written: &str) -> String {
    let (before, after) = written.split_once(HEADING).unwrap_or((written, ""));
    let next = after.find("\n## ").map_or("", |start| &after[start..]);
    format!("{before}{}{next}", section())
}

#[test]
fn the_remedies_of_all_alerts_are_on_the_page() {
    let path = root().join("docs/operate.md");
    let written = fs::read_to_string(&path).expect("the page");
    let current = page(&written);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &current).expect("writable checkout");
    }
    let written = fs::read_to_string(&path).expect("the page");
    assert!(written == current, "run: UPDATE_DOCS=1 cargo test -p workspace-rules");
}

#[test]
fn alerts_lead_to_their_remedies() {
    let mut names = Vec::new();
    for alert in alerts() {
        let anchor = format!("docs/operate.md#{}", alert.alert.to_lowercase());
        assert_eq!(alert.annotations.get("runbook_url"), Some(&anchor), "{}", alert.alert);
        for name in ["summary", "description", "remedy"] {
            let text = alert.annotations.get(name).map(String::as_str).unwrap_or_default();
            assert!(text.len() > 20 && text.ends_with('.'), "{name} of {}: {text:?}", alert.alert);
        }
        names.push(alert.alert);
    }
    assert!(names.len() > 20, "{names:?}");
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "two alerts have one name: {names:?}");
}
