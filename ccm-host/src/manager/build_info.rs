//! The build's version and commit: for `--version`, the metric `ccm_build_info` and the user agent.

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, if the build set `CCM_BUILD_COMMIT`.
pub const COMMIT: &str = match option_env!("CCM_BUILD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The answer to `--version`.
#[must_use]
pub fn short() -> String {
    format!("ccm-host v{VERSION}")
}

/// The answer to `--version=raw`: everything, on one line.
#[must_use]
pub fn raw() -> String {
    format!("version=v{VERSION} commit={COMMIT} os={} arch={}", std::env::consts::OS, std::env::consts::ARCH)
}
