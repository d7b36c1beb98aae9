//! `docs/metrics.md` is generated from the code that registers metrics. An end-to-end test compares it with what a host
//! serves.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use workspace_rules::{files, root};

/// The page's description of a metric.
#[derive(Debug)]
struct Metric {
    kind: &'static str,
    labels: Vec<String>,
    help: String,
}

/// Every metric of the host by its served name, read from its source: registered ones, and those that a
/// collector creates at each scrape.
fn registered() -> BTreeMap<String, Metric> {
    let files = files(&root().join("ccm-host"), ".rs").expect("readable checkout");
    let shipped = |path: PathBuf| {
        let source = fs::read_to_string(path).expect("text");
        source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
    };
    let sources: Vec<String> = files.into_iter().map(shipped).collect();
    let all = sources.concat();
    let mut metrics = BTreeMap::new();
    for source in &sources {
        // What a file does not declare itself, another one does.
        let declarations = &format!("{source}{all}");
        let mut before = "";
        for piece in source.split("registry") {
            let (method, call) = piece.split_once('(').unwrap_or_default();
            if let Some((name, help, value)) = arguments(call) {
                let (kind, labels) = match method.trim_start() {
                    ".register" => registered_as(declarations, value),
                    _ => of_field(declarations, assigned(before)),
                };
                metrics.extend([metric(name, kind, labels, help)]);
            }
            before = piece;
        }
        if let Some((_, collector)) = source.split_once("impl Collector for ") {
            let labels = if collector.contains("encode_family(") {
                source.split("EncodeLabelSet)]\nstruct ").nth(1).map(fields).unwrap_or_default()
            } else {
                Vec::new()
            };
            let mut before = "";
            for call in collector.split('(') {
                let kind = if before.ends_with("counter") { "counter" } else { "gauge" };
                before = call;
                let call = call.trim_start().strip_prefix("&mut encoder,").unwrap_or(call);
                if let Some((name, help, _)) = arguments(call) {
                    metrics.extend([metric(name, kind, labels.clone(), help)]);
                }
            }
        }
    }
    metrics
}

fn metric(name: &str, kind: &'static str, labels: Vec<String>, help: &str) -> (String, Metric) {
    let ending = match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    (format!("{name}{ending}"), Metric { kind, labels, help: help.to_owned() })
}

/// The first two arguments of a call, if both are texts, and the rest.
fn arguments(call: &str) -> Option<(&str, &str, &str)> {
    let mut texts = call.splitn(5, '"');
    let (before, name, between, help) = (texts.next()?, texts.next()?, texts.next()?, texts.next()?);
    (before.trim().is_empty() && between.trim() == ",")
        .then(|| (name, help, texts.next().unwrap_or_default().trim_start_matches([',', ' ', '\n'])))
}

/// Type and labels of a metric that is registered under one more name, or that says what is in its labels itself.
fn registered_as(source: &str, value: &str) -> (&'static str, Vec<String>) {
    if value.starts_with("Info::") {
        let texts = source.split("let build = [").nth(1).and_then(|rest| rest.split(";").next());
        let pairs = texts.unwrap_or_default().split("(\"").skip(1);
        return ("info", pairs.filter_map(|pair| Some(pair.split_once('"')?.0.to_owned())).collect());
    }
    of_field(source, value.split(".clone()").next().unwrap_or_default())
}

/// The field or variable that the value after this text becomes.
fn assigned(before: &str) -> &str {
    let before = before.trim_end();
    let name = match before.strip_suffix('=') {
        Some(variable) => variable.rsplit("let ").next().and_then(|name| name.split(':').next()),
        None => before.trim_end_matches(':').rsplit(char::is_whitespace).next(),
    };
    name.unwrap_or_default().trim()
}

/// Type and labels of a metric, from the declaration of its field.
fn of_field(source: &str, field: &str) -> (&'static str, Vec<String>) {
    let is_metric = |declared: &&str| {
        ["Counter", "Family", "Gauge", "Histogram", "Unsuffixed"].iter().any(|kind| declared.contains(kind))
    };
    let declared = source
        .lines()
        .filter_map(|line| {
            line.split_once(&format!("{field}: ")).filter(|(before, _)| is_declaration(before))
        })
        .map(|(_, declared)| {
            let alias = format!("type {} = ", declared.trim_end_matches(','));
            source.split_once(&alias).and_then(|(_, rest)| rest.split(';').next()).unwrap_or(declared)
        })
        .find(is_metric)
        .unwrap_or_else(|| panic!("no field {field:?} is declared as a metric"));
    let family = ["Family<", "Histograms<"].iter().find_map(|family| declared.strip_prefix(family));
    let labels = family.and_then(|rest| rest.split([',', '>']).next()).map_or_else(Vec::new, |labels| {
        let of = source.split(&format!("struct {labels} {{")).nth(1);
        fields(of.expect("labels are a declared struct"))
    });
    let kind = if declared.contains("Histogram") {
        "histogram"
    } else if declared.contains("Unsuffixed") {
        "unknown"
    } else if declared.contains("Counter") {
        "counter"
    } else {
        "gauge"
    };
    (kind, labels)
}

/// Whether a field is declared here, rather than assigned.
fn is_declaration(before: &str) -> bool {
    let before = before.trim();
    before.is_empty() || before == "pub" || (before.starts_with("pub(") && before.ends_with(')'))
}

/// The names of a struct's fields, from the text that begins inside it.
fn fields(body: &str) -> Vec<String> {
    let inside = body.split("\n}").next().unwrap_or_default();
    let names = inside.lines().filter_map(|line| line.split_once(": ").map(|(name, _)| name.trim()));
    names.filter_map(|name| Some(name.rsplit(' ').next()?.to_owned())).collect()
}

fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\nServed at `/metrics`, as OpenMetrics. A histogram has `_bucket` (with `le`), `_sum` and `_count` \
         behind its name. A series is there from the first time that it counts. Alerts and a dashboard are in \
         [deploy](../deploy/README.md). Made from the source by `UPDATE_DOCS=1 cargo test -p workspace-rules`; do not \
         edit.\n\n| Metric | Type | Labels | What it says |\n|---|---|---|---|\n",
    );
    for (name, Metric { kind, labels, help }) in registered() {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        page.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
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
