//! Flags of other processes or of the past: recognised, so that the error can say what to use instead.

use crate::flag::FlagError;

/// Name, what happened to it, what to do.
const REMOVED: [(&str, &str, &str); 13] = [
    ("address", NO_PLAIN_PORT, "leave it out; see --bind-address"),
    ("logtostderr", TO_STDERR, "leave it out"),
    ("alsologtostderr", TO_STDERR, "leave it out"),
    ("stderrthreshold", TO_STDERR, "leave it out; choose how much is logged with --v"),
    ("log-dir", NO_FILES, REDIRECT),
    ("log-file", NO_FILES, REDIRECT),
    ("log-file-max-size", NO_FILES, REDIRECT),
    ("one-output", NO_FILES, "leave it out"),
    ("log-backtrace-at", "was removed from Kubernetes components", "raise --v instead"),
    ("port", NO_PLAIN_PORT, "leave it out; see --secure-port"),
    ("skip-headers", "was removed from Kubernetes components", "choose the shape with --logging-format"),
    ("add-dir-header", "was removed from Kubernetes components", "choose the shape with --logging-format"),
    ("skip-log-headers", "was removed from Kubernetes components", "choose the shape with --logging-format"),
];

const NO_PLAIN_PORT: &str = "was removed from Kubernetes components: there is no port without TLS";
const TO_STDERR: &str = "was removed from Kubernetes components: logs always go to standard error";
const NO_FILES: &str = "was removed from Kubernetes components: no log files are written";
const REDIRECT: &str = "redirect standard error";

/// The error for a flag that is not ours but well known; `given` is its spelling on the command line.
pub(super) fn explain(name: &str, given: &str) -> Option<FlagError> {
    REMOVED.iter().find(|(removed, ..)| *removed == name).map(|(_, problem, remedy)| FlagError {
        given: given.to_owned(),
        problem: (*problem).to_owned(),
        remedy: (*remedy).to_owned(),
    })
}

/// Whether the flag took no value, so that the next word is not its value.
pub(super) fn was_switch(name: &str) -> bool {
    matches!(
        name,
        "logtostderr"
            | "alsologtostderr"
            | "one-output"
            | "skip-headers"
            | "add-dir-header"
            | "skip-log-headers"
    )
}
