//! The paths of this checkout's programs, and the cargo that builds them.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Cargo, for programs of this checkout.
///
/// Choose programs with `--bin`, not packages with `-p`: the features are then those of the whole workspace, as in
/// `cargo test`, so nothing is compiled twice.
pub fn cargo() -> Command {
    builder(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A command that builds at the root of this checkout, without the variables of an outer `cargo run` or `cargo test` that
/// describe its own package: ring's build script reads them and would run again, and everything above it would be
/// recompiled, under whoever links it meanwhile.
pub fn builder(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        // Packages with a build script have an OUT_DIR.
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "OUT_DIR" {
            command.env_remove(&name);
        }
    }
    command.current_dir(root());
    command
}
