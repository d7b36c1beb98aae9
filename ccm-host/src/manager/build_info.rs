//! Which build this is: for `--version`, the metric `ccm_build_info` and the user agent.

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, if the build said so in `CCM_BUILD_COMMIT`.
pub const COMMIT: &str = match option_env!("CCM_BUILD_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// `--version`.
#[must_use]
pub fn short() -> String {
    format!("ccm-host v{VERSION}")
}

/// `--version=raw`: everything, on one line.
#[must_use]
pub fn raw() -> String {
    format!("version=v{VERSION} commit={COMMIT} os={} arch={}", std::env::consts::OS, std::env::consts::ARCH)
}
