//! The memory of the shipped binary while tenants rename all labels and annotations again and again: what is gone is
//! forgotten. `cargo simulate-fast -- scale --nodes 2000 --services 5000 --limit-mib 1024` is the same at full size.

#![allow(clippy::print_stdout, reason = "shows what was measured")]

use std::process::Command;

use programs::{cargo, target};

#[test]
#[ignore = "takes more than a minute; .ci/run runs it beside others"]
fn tenants_who_rename_everything_do_not_make_the_host_grow() {
    let built = cargo().args(["build", "--quiet", "--locked", "--bin", "ccm-host"]).status().unwrap();
    assert!(built.success());
    let host = target().join("debug/ccm-host");
    let measured = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(["scale", "--nodes=400", "--services=800", "--renames=32", "--host"])
        .arg(host)
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&measured.stdout));
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
}
