//! `docs/flags.md` and `docs/config.schema.json`, made from the flags.
//!
//! Name, type, default, group and help come from the flag definitions; only upstream's defaults are kept here.

use std::fmt::Write as _;

use clap::ArgAction;
use serde_json::{Value, json};

use crate::manager::flags::{args::COMMAND_LINE_ONLY, command, legacy};

/// A flag compared with the same flag of the upstream cloud controller manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upstream {
    /// Same name, same meaning, same default.
    Kept,
    /// Same name and meaning, another default; this is upstream's.
    DefaultDiffers(&'static str),
    /// Same name, accepted without effect so that old manifests start.
    WithoutEffect,
    /// Only this host has it.
    New,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlagDoc {
    pub(super) name: String,
    /// The type of the value, as in the help text.
    kind: String,
    default: String,
    group: String,
    help: String,
    repeatable: bool,
    upstream: Upstream,
}

/// Flags that upstream has, with upstream's defaults in our spelling.
const UPSTREAM_DEFAULTS: [(&str, &str); 53] = [
    ("allocate-node-cidrs", "false"),
    ("authentication-kubeconfig", ""),
    ("authentication-skip-lookup", "false"),
    ("authentication-token-webhook-cache-ttl", "10s"),
    ("authentication-tolerate-lookup-failure", "false"),
    ("authorization-always-allow-paths", "/healthz,/readyz,/livez"),
    ("authorization-kubeconfig", ""),
    ("authorization-webhook-cache-authorized-ttl", "10s"),
    ("authorization-webhook-cache-unauthorized-ttl", "10s"),
    ("bind-address", "0.0.0.0"),
    ("cert-dir", ""),
    ("cidr-allocator-type", "RangeAllocator"),
    ("client-ca-file", ""),
    ("cloud-provider", ""),
    ("cluster-cidr", ""),
    ("cluster-name", "kubernetes"),
    ("concurrent-node-status-updates", "0"),
    ("concurrent-node-syncs", "1"),
    ("concurrent-service-syncs", "1"),
    ("configure-cloud-routes", "true"),
    ("controllers", "*"),
    ("help", ""),
    ("kube-api-burst", "30"),
    ("kube-api-qps", "20"),
    ("kubeconfig", ""),
    ("leader-elect", "true"),
    ("leader-elect-lease-duration", "15s"),
    ("leader-elect-renew-deadline", "10s"),
    ("leader-elect-resource-lock", "leases"),
    ("leader-elect-resource-name", "cloud-controller-manager"),
    ("leader-elect-resource-namespace", "kube-system"),
    ("leader-elect-retry-period", "2s"),
    ("logging-format", "text"),
    ("master", ""),
    ("node-cidr-mask-size", "0"),
    ("node-cidr-mask-size-ipv4", "0"),
    ("node-cidr-mask-size-ipv6", "0"),
    ("node-monitor-period", "5s"),
    ("node-status-update-frequency", "5m"),
    ("permit-port-sharing", "false"),
    ("route-reconciliation-period", "10s"),
    ("secure-port", "10258"),
    ("service-cluster-ip-range", ""),
    ("tls-cert-file", ""),
    ("tls-cipher-suites", ""),
    ("tls-min-version", "VersionTLS12"),
    ("tls-private-key-file", ""),
    ("v", "0"),
    ("use-service-account-credentials", "false"),
    ("version", ""),
    ("webhook-bind-address", "0.0.0.0"),
    ("webhook-secure-port", "10260"),
    ("webhooks", ""),
];

const GLOBAL: &str = "Global";

/// All flags, in the order and the groups of the help text.
pub(super) fn table() -> Vec<FlagDoc> {
    let mut flags: Vec<_> = command().get_arguments().filter_map(flag_doc).collect();
    let groups: Vec<_> = flags.iter().map(|flag| flag.group.clone()).collect();
    flags.sort_by_key(|flag| groups.iter().position(|group| *group == flag.group));
    flags
}

fn flag_doc(arg: &clap::Arg) -> Option<FlagDoc> {
    let name = arg.get_long()?;
    let group = arg.get_help_heading().unwrap_or(GLOBAL);
    let default =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",");
    let kind = arg.get_value_names().and_then(|names| names.first()).map_or("", |kind| kind.as_str());
    Some(FlagDoc {
        name: name.to_owned(),
        kind: if matches!(arg.get_action(), ArgAction::Help) { String::new() } else { kind.to_owned() },
        upstream: upstream(name, group, &default),
        default,
        group: group.to_owned(),
        help: arg.get_help().map(|help| help.to_string()).unwrap_or_default(),
        repeatable: matches!(arg.get_action(), ArgAction::Append),
    })
}

fn upstream(name: &str, group: &str, default: &str) -> Upstream {
    if group == legacy::HEADING {
        return Upstream::WithoutEffect;
    }
    let Some((_, theirs)) = UPSTREAM_DEFAULTS.iter().find(|(upstream, _)| *upstream == name) else {
        return Upstream::New;
    };
    if *theirs == default { Upstream::Kept } else { Upstream::DefaultDiffers(theirs) }
}

/// The contents of `docs/flags.md`.
fn markdown() -> String {
    let mut page = String::from(HEAD);
    let mut group = String::new();
    for flag in table() {
        if flag.group != group {
            group.clone_from(&flag.group);
            let _ = write!(page, "\n## {group}\n\n| Flag | Value | Default | Upstream | What it does |\n");
            page.push_str("|---|---|---|---|---|\n");
        }
        let _ = writeln!(
            page,
            "| `--{}` | {} | {} | {} | {} |",
            flag.name,
            cell(&flag.kind.replace('|', "\\|")),
            cell(&flag.default),
            upstream_cell(flag.upstream),
            flag.help
        );
    }
    page
}

fn cell(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

fn upstream_cell(upstream: Upstream) -> String {
    match upstream {
        Upstream::Kept => "same".to_owned(),
        Upstream::DefaultDiffers(theirs) => format!("default `{theirs}`"),
        Upstream::WithoutEffect => "no effect here".to_owned(),
        Upstream::New => "new".to_owned(),
    }
}

const HEAD: &str = "\
# Flags of ccm-host

Made from the flag definitions; after a change run `UPDATE_DOCS=1 cargo test -p ccm-host flags_doc`.

Everything may stand in a YAML file for `--config` as well, by the same names; a flag on the command line wins.
[config.schema.json](config.schema.json) says what the file may hold. Lists and maps may be written as such:

```yaml
provider:
  mock: unix:///run/ccm/mock.sock
controllers: [cloud-node, service]
concurrent-node-syncs: 8
```

Flags are written `--name=value` or `--name value`, with `_` accepted for `-`; switches also as `--name` alone.
Durations are written as in other Kubernetes components: `250ms`, `30s`, `1h30m`. Every mistake is reported at once,
with its remedy, and ends the process with exit code 1. A flag that upstream has and that cannot mean anything here is
accepted with a warning that says what to do. The column *Upstream* compares with the Kubernetes cloud
controller manager: the same, another default there, or new here.
";

/// A duration that the host reads; `flag::duration` has the rules.
const DURATION: &str = r"^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// The contents of `docs/config.schema.json`: the schema of a `--config` file, for editors and for checks before a
/// roll-out.
fn schema() -> Value {
    let properties: serde_json::Map<String, Value> = table()
        .into_iter()
        .filter(|flag| !COMMAND_LINE_ONLY.contains(&flag.name.as_str()))
        .map(|flag| (flag.name.clone(), property(&flag)))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "File for --config of ccm-host",
        "description": "The names of the flags; a flag on the command line wins.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn property(flag: &FlagDoc) -> Value {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let map = json!({"type": "object", "additionalProperties": {"type": ["string", "boolean"]}});
    let mut property = match flag.kind.as_str() {
        "BOOL" => json!({"type": "boolean"}),
        "INT" => json!({"type": "integer"}),
        "NUMBER" => json!({"type": "number"}),
        "DURATION" if flag.upstream != Upstream::WithoutEffect => {
            json!({"type": "string", "pattern": DURATION})
        }
        "PORT" => json!({"type": ["integer", "string"]}),
        "LIST" | "UIDS" => json!({"anyOf": [{"type": "string"}, list, map]}),
        _ if flag.repeatable => json!({"anyOf": [{"type": "string"}, list, map]}),
        _ => json!({"type": "string"}),
    };
    property["description"] = json!(flag.help);
    if !flag.default.is_empty() {
        property["default"] = json!(flag.default);
    }
    property
}

#[test]
fn config_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config.schema.json");
    let text = format!("{:#}\n", schema());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == text,
        "docs/config.schema.json is old: run UPDATE_DOCS=1 cargo test -p ccm-host schema"
    );
}

#[test]
fn flags_doc_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/flags.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, markdown()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap();
    assert!(page == markdown(), "docs/flags.md is old: run UPDATE_DOCS=1 cargo test -p ccm-host flags_doc");
}

#[test]
fn every_flag_says_what_it_is() {
    for flag in table() {
        assert!(!flag.help.is_empty(), "--{} has no help", flag.name);
        assert!(flag.name == "help" || !flag.kind.is_empty(), "--{} has no kind", flag.name);
        assert!(!flag.help.contains('|') && !flag.help.contains('\n'), "--{} breaks the table", flag.name);
    }
}

#[test]
fn upstream_table_names_only_flags_that_exist() {
    let names: Vec<String> = table().into_iter().map(|flag| flag.name).collect();
    for (name, _) in UPSTREAM_DEFAULTS {
        assert!(names.iter().any(|known| known == name), "--{name} is not a flag of this host");
    }
}

#[test]
fn compares_with_upstream() {
    let table = table();
    let of = |name: &str| table.iter().find(|flag| flag.name == name).map(|flag| flag.upstream);
    assert_eq!(of("node-monitor-period"), Some(Upstream::Kept));
    assert_eq!(of("concurrent-node-syncs"), Some(Upstream::DefaultDiffers("1")));
    assert_eq!(of("feature-gates"), Some(Upstream::WithoutEffect));
    assert_eq!(of("provider"), Some(Upstream::New));
}
