//! `docs/metrics.md` is generated from the code that registers metrics. An end-to-end test compares it with what a host
//! serves.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use workspace_rules::{files, root};

/// The page's description of a metric.
#[derive(Debug)]
struct Metric {
    kind: &'static str,
    labels: Vec<String>,
    help: String,
}

/// A file, and all of them: what it does not declare itself, another one does.
type Sources<'a> = [&'a str; 2];

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
        let sources = [source.as_str(), all.as_str()];
        let mut before = "";
        for piece in source.split("registry") {
            let (method, call) = piece.split_once('(').unwrap_or_default();
            if let Some((name, help, value)) = arguments(call) {
                let (kind, labels) = match method.trim_start() {
                    ".register" => registered_as(sources, value),
                    _ => of_field(sources, assigned(sources, before)),
                };
                metrics.extend([metric(name, kind, labels, help)]);
            }
            before = piece;
        }
        if let Some((_, collector)) = source.split_once("impl Collector for ") {
            let labels = match source.split_once("encode_family(") {
                Some((before, call)) => labels(sources, before, closed(call)),
                None => Vec::new(),
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
fn registered_as(sources: Sources<'_>, value: &str) -> (&'static str, Vec<String>) {
    if value.starts_with("Info::") {
        let texts = sources[0].split("let build = [").nth(1).and_then(|rest| rest.split(";").next());
        let pairs = texts.unwrap_or_default().split("(\"").skip(1);
        return ("info", pairs.filter_map(|pair| Some(pair.split_once('"')?.0.to_owned())).collect());
    }
    of_field(sources, value.split(".clone()").next().unwrap_or_default())
}

/// The field or variable that the value after this text becomes; what a function returns, becomes one of that type.
fn assigned<'a>(sources: Sources<'a>, before: &'a str) -> &'a str {
    let before = before.trim_end();
    if let Some((_, returned)) = before.strip_suffix(" {").and_then(|function| function.rsplit_once("-> ")) {
        let of_type = sources.into_iter().find_map(|source| source.split_once(&format!(": {returned},")));
        return of_type
            .map_or("", |(before, _)| before.rsplit(char::is_whitespace).next().unwrap_or_default());
    }
    let name = match before.strip_suffix('=') {
        Some(variable) => variable.rsplit("let ").next().and_then(|name| name.split(':').next()),
        None => before.trim_end_matches(':').rsplit(char::is_whitespace).next(),
    };
    name.unwrap_or_default().trim()
}

/// Type and labels of a metric, from the declaration of its field.
fn of_field(sources: Sources<'_>, field: &str) -> (&'static str, Vec<String>) {
    let is_metric = |declared: &&str| {
        ["Counter", "Family", "Gauge", "Histogram", "Unsuffixed"].iter().any(|kind| declared.contains(kind))
    };
    let declared = sources
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| {
            line.split_once(&format!("{field}: ")).filter(|(before, _)| is_declaration(before))
        })
        .map(|(_, declared)| {
            let alias = format!("type {} = ", declared.trim_end_matches(','));
            let aliased = sources.into_iter().find_map(|source| source.split_once(&alias));
            aliased.and_then(|(_, rest)| rest.split(';').next()).unwrap_or(declared)
        })
        .find(is_metric)
        .unwrap_or_else(|| panic!("no field {field:?} is declared as a metric"));
    let is_family = ["Family<", "Histograms<"].iter().any(|family| declared.starts_with(family));
    let labels = if is_family { labels_of(sources, field) } else { Vec::new() };
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

/// The names of a family's labels, from where its series are made: the same in each place.
fn labels_of(sources: Sources<'_>, family: &str) -> Vec<String> {
    let call = format!("{family}.get_or_create");
    let in_source = |source: &str| -> BTreeSet<Vec<String>> {
        let calls = source.match_indices(&call).filter_map(|(at, _)| {
            let (before, call) = source.split_at(at);
            let (_, call) = call.split_once('(')?;
            (!before.ends_with(is_word)).then(|| labels(sources, before, closed(call)))
        });
        calls.collect()
    };
    let made: Vec<_> =
        sources.into_iter().map(in_source).find(|made| !made.is_empty()).into_iter().flatten().collect();
    let [labels] = made.as_slice() else { panic!("the labels of {family:?} are {made:?}") };
    labels.clone()
}

/// The names of the labels that an expression makes: those of the variable or the function that it begins with, if that
/// returns labels, and those that it spells out.
fn labels(sources: Sources<'_>, before: &str, expression: &str) -> Vec<String> {
    let expression = expression.trim_start().trim_start_matches('&');
    let path = expression.split(|char: char| !is_word(char) && char != '.').next().unwrap_or_default();
    let (is_method, name) = path.rsplit_once('.').map_or((false, path), |(_, name)| (true, name));
    let variable = || before.rsplit_once(&format!("let {name} =")).filter(|_| !is_method);
    let made = if name.is_empty() {
        None
    } else if let Some((before, value)) = variable() {
        value.split(';').next().map(|value| labels(sources, before, value))
    } else {
        let starts = [format!("fn {name}("), format!("fn {name}<")];
        let found = sources.into_iter().find_map(|source| {
            let mut found = starts.iter().flat_map(|start| source.split(start.as_str()).skip(1));
            found.find_map(|rest| {
                let (head, body) = rest.split_once('{')?;
                ["-> MetricLabels", "-> OfProvider"].iter().any(|made| head.contains(made)).then_some(body)
            })
        });
        found.map(|body| labels(sources, "", closed(body)))
    };
    let spelled =
        expression.split("(\"").skip(1).filter_map(|label| Some(label.split_once('"')?.0.to_owned()));
    made.into_iter().flatten().chain(spelled).collect()
}

/// What stands before the bracket that closes one opened before it.
fn closed(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|char: char| {
        depth += i32::from("([{".contains(char)) - i32::from(")]}".contains(char));
        depth < 0
    });
    &text[..end.unwrap_or(text.len())]
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
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
