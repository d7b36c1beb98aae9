//! `tests/conformance/serve`, which all runs against sidecars use: it waits for a socket, but not for ever.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{path::Path, process::Command};

/// Its output for a provider that is this command, and gets this many seconds.
fn told(command: &[&str], within: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let serve = Path::new(env!("CARGO_MANIFEST_DIR")).join("serve");
    let socket = format!("--endpoint=unix://{}/p.sock", folder.path().display());
    let ran = Command::new(serve)
        .arg(folder.path())
        .args(command)
        .arg(socket)
        .env("SERVE_WITHIN", within)
        .output()
        .unwrap();
    assert!(!ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stderr).unwrap()
}

#[test]
fn a_provider_that_never_opens_its_socket_is_told() {
    for (command, within, why) in [
        (["sh", "-c", "echo not today; exec sleep 600"], "5", "nothing after 5 s; this is its log:"),
        (["sh", "-c", "echo not today; exit 3"], "60", "it has ended; this is its log:"),
    ] {
        let told = told(&command, within);
        let lines: Vec<_> = told.lines().collect();
        assert!(lines[0].starts_with("sh -c echo") && lines[0].ends_with(why), "{told}");
        assert!(lines[0].contains("does not open its socket /"), "{told}");
        assert_eq!(lines[1..], ["not today"], "{told}");
    }
}
