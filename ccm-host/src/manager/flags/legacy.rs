//! Flags in existing manifests that have no effect here.
//!
//! Those of upstream's manager are accepted and validated, with a warning that says what to do instead: one row per flag,
//! from which clap's arguments, the docs page and the warnings are generated. So are `--feature-gates`: this host has
//! none, and upstream's are compared with what the host always does. Flags that upstream removed are refused, with an
//! error that says what to use instead.

use clap::{Arg, ArgMatches, Command};

use ccm_base::flag::{self, FlagError, Mistakes, Wrong};

/// The heading that marks these flags as without effect, for readers and for the table in the docs.
pub(super) const HEADING: &str = "Accepted without effect";

/// A flag without effect.
#[derive(Debug)]
struct Legacy {
    name: &'static str,
    kind: ValueKind,
    /// The value that asks for nothing, as does an empty one: no warning is due.
    nothing: &'static str,
    /// Why the flag has no effect, and what to do.
    instead: &'static str,
}

/// The type of the flag's value. Invalid values are refused, as any manager would.
#[derive(Clone, Copy, Debug)]
enum ValueKind {
    Switch,
    Duration,
    /// At least this.
    Number(u32),
    Text,
}

const LEGACY: [Legacy; 37] = [
    switch(
        "allow-untagged-cloud",
        "the cluster is named by its uid; a bridged provider may need the flag in its sidecar",
    ),
    text(
        "cloud-config",
        "only the provider knows its cloud: mount the file into the sidecar, and name it in the sidecar's own flag",
    ),
    Legacy {
        name: "concurrent-node-lifecycle-syncs",
        kind: ValueKind::Number(1),
        nothing: "1",
        instead: "all silent nodes are asked about at once, in batches",
    },
    switch("contention-profiling", NO_PROFILES),
    Legacy {
        name: "controller-start-interval",
        kind: ValueKind::Duration,
        nothing: "0s",
        instead: "controllers start in a fixed order, and each waits for its own caches",
    },
    switch("enable-leader-migration", NO_MIGRATION),
    text("external-cloud-volume-plugin", "volumes belong to CSI drivers"),
    text("kube-api-content-type", "the apiserver is spoken to in JSON"),
    text("leader-migration-config", NO_MIGRATION),
    Legacy { name: "log-flush-frequency", kind: ValueKind::Duration, nothing: "", instead: UNBUFFERED },
    Legacy { name: "log-json-info-buffer-size", kind: ValueKind::Text, nothing: "0", instead: UNBUFFERED },
    switch("log-json-split-stream", ONE_STREAM),
    Legacy { name: "log-text-info-buffer-size", kind: ValueKind::Text, nothing: "0", instead: UNBUFFERED },
    switch("log-text-split-stream", ONE_STREAM),
    Legacy {
        name: "min-resync-period",
        kind: ValueKind::Duration,
        nothing: "",
        instead: "caches are not replayed: see --node-status-update-frequency, --load-balancer-resync-period and \
                  --route-reconciliation-period",
    },
    Legacy {
        name: "node-sync-period",
        kind: ValueKind::Duration,
        nothing: "0s",
        instead: "see --node-status-update-frequency",
    },
    switch("profiling", NO_PROFILES),
    text("vmodule", "there is no verbosity per file: raise --v"),
    text("webhook-cert-dir", OWN_WEBHOOKS),
    switch("webhook-disable-http2-serving", OWN_WEBHOOKS),
    text("webhook-tls-cert-file", OWN_WEBHOOKS),
    text("webhook-tls-cipher-suites", OWN_WEBHOOKS),
    text("webhook-tls-curve-preferences", OWN_WEBHOOKS),
    text("webhook-tls-min-version", OWN_WEBHOOKS),
    text("webhook-tls-private-key-file", OWN_WEBHOOKS),
    text("webhook-tls-sni-cert-key", OWN_WEBHOOKS),
    switch("disable-http2-serving", ONE_HTTP),
    Legacy {
        name: "http2-max-streams-per-connection",
        kind: ValueKind::Number(0),
        nothing: "0",
        instead: ONE_HTTP,
    },
    switch("permit-address-sharing", "addresses that wait for late packets are always shared"),
    text("requestheader-allowed-names", NO_FRONT_PROXY),
    text("requestheader-client-ca-file", NO_FRONT_PROXY),
    text("requestheader-extra-headers-prefix", NO_FRONT_PROXY),
    text("requestheader-group-headers", NO_FRONT_PROXY),
    text("requestheader-uid-headers", NO_FRONT_PROXY),
    text("requestheader-username-headers", NO_FRONT_PROXY),
    text("tls-curve-preferences", "curves are X25519, P-256 and P-384"),
    text(
        "tls-sni-cert-key",
        "one certificate is shown to everybody: put its names into that of --tls-cert-file",
    ),
];

const ONE_HTTP: &str = "health and metrics are served over HTTP/1.1";
const NO_FRONT_PROXY: &str =
    "requests of the aggregation layer are believed in no other name: ask the host directly";
const NO_PROFILES: &str = "no profiles are served: look at the metrics";
const NO_MIGRATION: &str =
    "kube-controller-manager has no cloud controllers to take over any more: leave it out";
const OWN_WEBHOOKS: &str = "the host makes the certificate of its webhooks itself, and serves them over HTTP/1.1 with TLS 1.2 or 1.3";
const UNBUFFERED: &str = "each line is written at once";
const ONE_STREAM: &str = "all lines go to standard error";

const fn switch(name: &'static str, instead: &'static str) -> Legacy {
    Legacy { name, kind: ValueKind::Switch, nothing: "false", instead }
}

const fn text(name: &'static str, instead: &'static str) -> Legacy {
    Legacy { name, kind: ValueKind::Text, nothing: "", instead }
}

/// The command with these flags.
pub(super) fn arguments(command: Command) -> Command {
    LEGACY.iter().fold(command.next_help_heading(HEADING), |command, flag| command.arg(flag.arg()))
}

/// Checks those that were given.
pub(super) fn check(matches: &ArgMatches, mistakes: &mut Mistakes, warnings: &mut Vec<String>) {
    for flag in &LEGACY {
        if let Some(value) = matches.get_one::<String>(flag.name)
            && mistakes.keep(flag.asks_for_something(value)) == Some(true)
        {
            warnings.push(ignored(flag.name, value, flag.instead));
        }
    }
}

impl Legacy {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.name).long(self.name).help(sentence(self.instead));
        arg.value_name(match self.kind {
            ValueKind::Switch => "BOOL",
            ValueKind::Duration => "DURATION",
            ValueKind::Number(_) => "INT",
            ValueKind::Text => "STRING",
        })
    }

    fn asks_for_something(&self, text: &str) -> Result<bool, FlagError> {
        let asked = match self.kind {
            ValueKind::Switch => flag::switch(text),
            ValueKind::Duration => flag::duration(text).map(|_| text != self.nothing),
            ValueKind::Number(least) => flag::at_least(text, least).map(|_| text != self.nothing),
            ValueKind::Text => Ok(!text.is_empty() && text != self.nothing),
        };
        asked.map_err(|wrong| wrong.of(self.name, text))
    }
}

/// Upstream's gates for a cloud controller manager: the state that always holds here, and why the other has no effect.
const KNOWN: [(&str, bool, &str); 8] = [
    (
        "CloudControllerManagerWatchBasedRoutesReconciliation",
        true,
        "routes always follow the events of nodes, and are swept every --route-reconciliation-period",
    ),
    ("CloudControllerManagerWebhook", true, "the webhooks that --webhooks names are served"),
    ("ComponentFlagz", true, "/flagz is always served"),
    ("ComponentStatusz", true, "/statusz is always served"),
    ("ContextualLogging", true, "lines always carry their context"),
    (
        "ControllerManagerReleaseLeaderElectionLockOnExit",
        true,
        "a host that ends always gives its Lease back",
    ),
    ("LoggingBetaOptions", true, "--logging-format=json is always there"),
    ("NativeHistograms", false, "histograms have fixed buckets"),
];

/// Checks `--feature-gates`.
pub(super) fn check_gates(given: &[String], mistakes: &mut Mistakes, warnings: &mut Vec<String>) {
    for gate in flag::listed(given) {
        let read = in_vain(gate).map_err(|wrong| wrong.of("feature-gates", gate));
        if let Some(Some(why)) = mistakes.keep(read) {
            warnings.push(ignored("feature-gates", gate, why));
        }
    }
}

/// Why this setting of a gate has no effect, unless it asks for what holds anyway.
fn in_vain(gate: &str) -> Result<Option<&'static str>, Wrong> {
    let (name, state) = flag::named("feature-gates", gate, "NAME=true or NAME=false")?;
    let on = flag::switch(state).map_err(|wrong| Wrong { remedy: format!("write {name}=true"), ..wrong })?;
    Ok(match KNOWN.iter().find(|(known, ..)| *known == name) {
        Some((_, holds, _)) if *holds == on => None,
        Some((.., why)) => Some(why),
        None => Some("this host knows no such gate"),
    })
}

/// The warning about a given value.
pub(super) fn ignored(name: &str, value: &str, instead: &str) -> String {
    format!("--{name}={value} has no effect: {instead}")
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Flags of other processes or of the past: name, whether it took no value, what happened to it, what to do.
const REMOVED: [(&str, bool, &str, &str); 13] = [
    ("address", false, NO_PLAIN_PORT, "leave it out; see --bind-address"),
    ("logtostderr", true, TO_STDERR, "leave it out"),
    ("alsologtostderr", true, TO_STDERR, "leave it out"),
    ("stderrthreshold", false, TO_STDERR, "leave it out; choose how much is logged with --v"),
    ("log-dir", false, NO_FILES, REDIRECT),
    ("log-file", false, NO_FILES, REDIRECT),
    ("log-file-max-size", false, NO_FILES, REDIRECT),
    ("one-output", true, NO_FILES, "leave it out"),
    ("log-backtrace-at", false, GONE, "raise --v instead"),
    ("port", false, NO_PLAIN_PORT, "leave it out; see --secure-port"),
    ("skip-headers", true, GONE, "choose the shape with --logging-format"),
    ("add-dir-header", true, GONE, "choose the shape with --logging-format"),
    ("skip-log-headers", true, GONE, "choose the shape with --logging-format"),
];

const GONE: &str = "was removed from Kubernetes components";
const NO_PLAIN_PORT: &str = "was removed from Kubernetes components: there is no port without TLS";
const TO_STDERR: &str = "was removed from Kubernetes components: logs always go to standard error";
const NO_FILES: &str = "was removed from Kubernetes components: no log files are written";
const REDIRECT: &str = "redirect standard error";

/// The error for a flag that is not ours but well known; `given` is its spelling on the command line.
pub(super) fn explain(name: &str, given: &str) -> Option<FlagError> {
    REMOVED.iter().find(|(removed, ..)| *removed == name).map(|(.., problem, remedy)| FlagError {
        given: given.to_owned(),
        problem: (*problem).to_owned(),
        remedy: (*remedy).to_owned(),
    })
}

/// Whether the flag took no value, so that the next word is not its value.
pub(super) fn was_switch(name: &str) -> bool {
    REMOVED.iter().any(|(removed, is_switch, ..)| *removed == name && *is_switch)
}
