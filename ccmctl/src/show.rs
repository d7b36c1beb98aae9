//! Prints documents: as tables for people, or as they came for machines.

use std::io::Write as _;

use anyhow::Result;
use ccm_state::{
    Balancer, Calls, Explanation, Guard, LastCall, LeftOut, NodeState, Provider, ProviderStatus, Report,
    Service, ServiceState, Standing,
    inventory::{Inventory, Items},
};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    cli::Format,
    table::{Table, plain},
};

#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// A reader that has seen enough may close its end.
    pub(crate) fn print(&self, document: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let text = match self.format {
            Format::Json => serde_json::to_string_pretty(document)? + "\n",
            Format::Table => text(),
        };
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    pub(crate) fn info(&self, providers: &[Provider]) -> Result<()> {
        self.print(&providers, || providers.iter().map(info).collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn status(&self, providers: &[Provider]) -> Result<()> {
        self.print(&providers, || providers.iter().map(status).collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn inventory(&self, inventory: &Inventory) -> Result<()> {
        self.print(inventory, || {
            let mut text = rows(&inventory.items).to_string();
            for part in &inventory.unreachable {
                text += &format!("not listed: {}\n", plain(part));
            }
            text
        })
    }

    pub(crate) fn node(&self, node: &NodeState) -> Result<()> {
        self.print(node, || explain(node, Timestamp::now()))
    }

    pub(crate) fn service(&self, service: &ServiceState) -> Result<()> {
        self.print(service, || explain_service(service, Timestamp::now()))
    }

    pub(crate) fn reports(&self, reports: &[Report]) -> Result<()> {
        self.print(&reports, || match reports {
            [] => "nothing is reported to wait\n".to_owned(),
            all => table(all).to_string(),
        })
    }

    pub(crate) fn guard(&self, guards: &[Guard]) -> Result<()> {
        self.print(&guards, || {
            if guards.is_empty() {
                return "no provider's nodes have been checked yet\n".to_owned();
            }
            guards.iter().map(guard).collect::<Vec<_>>().join("\n")
        })
    }

    /// What a command did or would do.
    pub(crate) fn done(&self, document: &impl Serialize, lines: &[String]) -> Result<()> {
        self.print(document, || lines.iter().map(|line| plain(line) + "\n").collect())
    }
}

fn info(provider: &Provider) -> String {
    let mut table = Table::new(&["PROVIDER", &plain(&provider.name)]);
    match &provider.info {
        None => table.row(["unknown".to_owned(), provider.reason.clone().unwrap_or_default()]),
        Some(info) => {
            for (what, value) in [
                ("name", info.name.clone()),
                ("version", info.version.clone()),
                ("contract", info.contract.join(" ")),
                ("capabilities", info.capabilities.join(" ")),
                ("provider ID prefixes", info.provider_id_prefixes.join(" ")),
                ("load balancer classes", info.load_balancer_classes.join(" ")),
            ] {
                table.row([what.to_owned(), value]);
            }
        }
    }
    table.to_string()
}

fn status(provider: &Provider) -> String {
    let word = match provider.status {
        ProviderStatus::Serving => "serving",
        ProviderStatus::Frozen => "frozen: destructive work is held back",
        ProviderStatus::Disconnected => "disconnected",
    };
    let mut table = Table::new(&["PROVIDER", &plain(&provider.name)]);
    table.row(["status".to_owned(), word.to_owned()]);
    if let Some(why) = &provider.reason {
        table.row(["why".to_owned(), why.clone()]);
    }
    if let Some(error) = &provider.last_error {
        let text = format!("{} {} at {}: {}", error.method, error.code, error.time, error.message);
        table.row(["last error".to_owned(), text]);
    }
    let mut text = table.to_string();
    if !provider.calls.is_empty() {
        let mut table = Table::new(&["METHOD", "CALLS", "FAILED", "MEDIAN", "SLOWEST", "MEAN"]);
        for calls in &provider.calls {
            table.row(measured(calls));
        }
        text += &format!("\n{table}");
    }
    text
}

fn measured(calls: &Calls) -> [String; 6] {
    let seconds = |seconds: f64| match seconds {
        short if short < 1.0 => format!("{:.1} ms", short * 1000.0),
        long => format!("{long:.1} s"),
    };
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let mean = calls.seconds / calls.count.max(1) as f64;
    [
        calls.method.clone(),
        calls.count.to_string(),
        calls.failed.to_string(),
        seconds(calls.recent_median_seconds),
        seconds(calls.recent_max_seconds),
        seconds(mean),
    ]
}

fn rows(items: &Items) -> Table {
    match items {
        Items::Instances(all) => {
            let mut table = Table::new(&["PROVIDER ID", "NAME", "STATE", "TYPE", "ZONE", "ADDRESSES"]);
            for one in all.clone() {
                let addresses = one.addresses.join(",");
                table.row([one.provider_id, one.name, one.state, one.instance_type, one.zone, addresses]);
            }
            table
        }
        Items::LoadBalancers(all) => {
            let mut table = Table::new(&["ID", "SERVICE", "STATE", "ADDRESSES", "OWNERSHIP"]);
            for one in all.clone() {
                table.row([one.id, one.service, one.state, one.addresses.join(","), one.ownership]);
            }
            table
        }
        Items::Routes(all) => {
            let mut table = Table::new(&["ID", "DESTINATION", "TARGET", "STATE"]);
            for one in all.clone() {
                table.row([one.id, one.destination, one.target, one.state]);
            }
            table
        }
        Items::Volumes(all) => {
            let mut table = Table::new(&["ID", "STATE", "LABELS", "ERROR"]);
            for one in all.clone() {
                table.row([one.id, one.state, one.labels.join(","), one.error]);
            }
            table
        }
        Items::Clusters(all) => {
            let mut table = Table::new(&["NAME", "ENDPOINT"]);
            for one in all.clone() {
                table.row([one.name, one.endpoint.unwrap_or_default()]);
            }
            table
        }
    }
}

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Settled => "nothing is to be done",
        Standing::LeftAlone => "left alone on purpose",
        Standing::Waiting => "waiting",
        Standing::Blocked => "blocked",
    }
}

/// Blocked ones first.
fn table(reports: &[Report]) -> Table {
    let mut sorted: Vec<_> = reports.iter().collect();
    sorted.sort_by_key(|one| (std::cmp::Reverse(one.explanation.standing), &one.explanation.from));
    let mut table = Table::new(&["CONTROLLER", "KEY", "OBJECT", "STANDING", "REASON", "WHY"]);
    for Report { key, object, explanation } in sorted {
        let object = object.clone().unwrap_or_default();
        let standing = word(explanation.standing).to_owned();
        let Explanation { from, reason, why, .. } = explanation;
        table.row([from.clone(), key.clone(), object, standing, reason.clone(), why.clone()]);
    }
    table
}

fn explain(node: &NodeState, now: Timestamp) -> String {
    let summary = &node.summary;
    let standing = word(summary.standing);
    let mut table = Table::new(&["NODE", &plain(&summary.name)]);
    table.row(["standing".to_owned(), standing.to_owned()]);
    table.row(["ready".to_owned(), summary.ready.to_string()]);
    table.row(["provider".to_owned(), summary.provider.clone().unwrap_or_default()]);
    table.row(["provider ID".to_owned(), node.provider_id.clone().unwrap_or_default()]);
    table.to_string() + &said(&node.explanations, now)
}

fn explain_service(state: &ServiceState, now: Timestamp) -> String {
    let Service { namespace, name, class, provider, standing, addresses, why, .. } = &state.summary;
    let mut table = Table::new(&["SERVICE", &plain(&format!("{namespace}/{name}"))]);
    table.row(["standing".to_owned(), word(*standing).to_owned()]);
    table.row(["class".to_owned(), class.clone().unwrap_or_default()]);
    table.row(["provider".to_owned(), provider.clone().unwrap_or_default()]);
    table.row(["addresses".to_owned(), addresses.join(", ")]);
    table.row(["nodes behind it".to_owned(), state.backends.to_string()]);
    for LeftOut { why, count, nodes } in &state.left_out {
        let more = if *count > nodes.len() { ", ..." } else { "" };
        table.row([format!("left out: {count}"), format!("{why}: {}{more}", nodes.join(", "))]);
    }
    for Balancer { provider, uid, known, last_call } in &state.balancers {
        let former = if *uid == state.uid { "" } else { ", of a former Service" };
        table.row(["balancer".to_owned(), format!("at {provider}{former}: {known}")]);
        if let Some(LastCall { call, time, answer }) = last_call {
            table.row(["last call".to_owned(), format!("{call} {}: {answer}", apart(*time, now))]);
        }
    }
    let mut text = table.to_string();
    if state.explanations.is_empty() && !why.is_empty() {
        text += &format!("\n{}.\n", sentence(why));
    }
    text + &said(&state.explanations, now)
}

fn said(explanations: &[Explanation], now: Timestamp) -> String {
    let mut text = String::new();
    for one in explanations {
        text += &format!("\n{} ({}):\n  {}.\n", plain(&one.from), plain(&one.reason), sentence(&one.why));
        text += &format!("  Next: {}.\n", plain(&one.next));
        let mut times = Vec::new();
        if let Some(last) = one.last_attempt {
            times.push(format!("last attempt {}", apart(last, now)));
        }
        if one.retries > 0 {
            times.push(format!("{} failures in a row", one.retries));
        }
        match one.next_attempt {
            Some(next) if next <= now => times.push("next attempt now".to_owned()),
            Some(next) => times.push(format!("next attempt {}", apart(next, now))),
            None => {}
        }
        if !times.is_empty() {
            text += &format!("  ({})\n", times.join(", "));
        }
    }
    text
}

/// Begins with a capital letter, ends without a full stop.
fn sentence(text: &str) -> String {
    let text = plain(text);
    let mut chars = text.trim_end_matches('.').chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

fn apart(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(time).as_secs();
    if seconds >= 0 { format!("{seconds} s ago") } else { format!("in {} s", -seconds) }
}

fn guard(guard: &Guard) -> String {
    let mut table = Table::new(&["PROVIDER", &plain(&guard.provider)]);
    let deletions = match guard {
        Guard { distrust: Some(_), .. } => "none: the provider is not believed now",
        Guard { contradicted: true, .. } => {
            "none in some zones, or none at all: the provider contradicts itself"
        }
        _ => "allowed, within the limits",
    };
    table.row(["deletions".to_owned(), deletions.to_owned()]);
    if let Some(why) = &guard.distrust {
        table.row(["why".to_owned(), why.clone()]);
    }
    table.row(["nodes".to_owned(), guard.nodes.to_string()]);
    table.row(["uncertain".to_owned(), guard.uncertain.to_string()]);
    table.row(["last pass".to_owned(), guard.last_pass.to_string()]);
    let mut text = table.to_string();
    if !guard.absent.is_empty() {
        let mut table = Table::new(&["ABSENT NODE", "CONFIRMED", "HELD BY", "WHY"]);
        for one in &guard.absent {
            let by = match (&one.rule, one.confirmed) {
                (_, true) => "confirmed by a person".to_owned(),
                (rule, false) => rule.clone().unwrap_or_default(),
            };
            let times = format!("{} of {}", one.confirmations, one.needed);
            table.row([one.name.clone(), times, by, one.why.clone()]);
        }
        text += &format!("\n{table}");
    }
    text
}

#[cfg(test)]
mod tests {
    use ccm_state::{Explanation, NodeSummary};

    use super::*;

    #[test]
    fn reports_are_a_table_with_the_blocked_first() {
        let report = |key: &str, standing| Report {
            key: key.to_owned(),
            object: (key == "csr-b").then(|| "Node b".to_owned()),
            explanation: Explanation {
                from: "kubelet-serving-csr-controller".to_owned(),
                standing,
                reason: "Reason".to_owned(),
                why: "because".to_owned(),
                next: String::new(),
                retries: 0,
                last_attempt: None,
                next_attempt: None,
            },
        };
        let text =
            table(&[report("csr-a", Standing::Waiting), report("csr-b", Standing::Blocked)]).to_string();
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "CONTROLLER KEY OBJECT STANDING REASON WHY",
                "kubelet-serving-csr-controller csr-b Node b blocked Reason because",
                "kubelet-serving-csr-controller csr-a - waiting Reason because",
            ]
        );
    }

    #[test]
    fn an_explanation_reads_as_sentences() {
        let now = Timestamp::from_second(100).unwrap();
        let one = Explanation {
            from: "cloud-node-controller".to_owned(),
            standing: Standing::Blocked,
            reason: "InstanceAbsent".to_owned(),
            why: "the cloud has no instance".to_owned(),
            next: "the host asks again".to_owned(),
            retries: 4,
            last_attempt: Some(Timestamp::from_second(97).unwrap()),
            next_attempt: Some(Timestamp::from_second(105).unwrap()),
        };
        let node = NodeState {
            api_version: String::new(),
            kind: String::new(),
            time: now,
            summary: NodeSummary {
                name: "n".to_owned(),
                provider: None,
                ready: false,
                standing: Standing::Blocked,
                why: String::new(),
            },
            uid: String::new(),
            provider_id: None,
            explanations: vec![one],
        };
        let text = explain(&node, now);
        let want = "cloud-node-controller (InstanceAbsent):\n  The cloud has no instance.\n  Next: the host asks again.\n  \
                    (last attempt 3 s ago, 4 failures in a row, next attempt in 5 s)\n";
        assert!(text.ends_with(want), "{text}");
    }

    #[test]
    fn a_service_says_where_it_is_and_what_it_waits_for() {
        let now = Timestamp::from_second(100).unwrap();
        let summary = Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            class: None,
            provider: Some("aws".to_owned()),
            standing: Standing::Blocked,
            addresses: vec!["192.0.2.1".to_owned()],
            why: "quota".to_owned(),
            retries: 2,
            next_attempt: None,
        };
        let explanation = Explanation {
            from: "service-lb-controller".to_owned(),
            standing: Standing::Blocked,
            reason: "SyncLoadBalancerFailed".to_owned(),
            why: "quota".to_owned(),
            next: "the host looks again".to_owned(),
            retries: 2,
            last_attempt: None,
            next_attempt: Some(Timestamp::from_second(105).unwrap()),
        };
        let balancer = |uid: &str, answer: &str| Balancer {
            provider: "aws".to_owned(),
            uid: uid.to_owned(),
            known: "as last applied".to_owned(),
            last_call: Some(LastCall {
                call: "ensure".to_owned(),
                time: Timestamp::from_second(97).unwrap(),
                answer: answer.to_owned(),
            }),
        };
        let left_out = LeftOut {
            why: "being deleted".to_owned(),
            count: 3,
            nodes: vec!["a".to_owned(), "b".to_owned()],
        };
        let state = ServiceState {
            api_version: String::new(),
            kind: String::new(),
            time: now,
            summary,
            uid: "u1".to_owned(),
            balancers: vec![balancer("u1", "no more balancers"), balancer("u0", "done")],
            backends: 7,
            left_out: vec![left_out],
            explanations: vec![explanation],
        };
        let text = explain_service(&state, now);
        for line in [
            "at aws: as last applied",
            "at aws, of a former Service: as last applied",
            "ensure 3 s ago: no more balancers",
            "being deleted: a, b, ...",
            "192.0.2.1",
            "service-lb-controller (SyncLoadBalancerFailed):\n  Quota.",
            "in 5 s",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert!(explain_service(&ServiceState { explanations: vec![], ..state }, now).contains("\nQuota.\n"));
    }
}
