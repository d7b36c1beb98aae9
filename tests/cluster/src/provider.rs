//! What is started as the provider.

use std::path::{Path, PathBuf};

/// A program that serves the contract where its flag `--endpoint` says. Its cloud is the test's own matter.
#[derive(Debug, Clone)]
pub struct ProviderUnderTest {
    /// As it names itself.
    pub name: String,
    /// What is started.
    pub program: PathBuf,
    /// Its flags, beside `--endpoint`.
    pub flags: Vec<String>,
    /// Variables of its environment, beside the test's own.
    pub environment: Vec<(String, String)>,
}

impl ProviderUnderTest {
    /// The mock, with its admin door and, if wanted, a cloud that outlives it.
    pub(crate) fn mock(binaries: &Path, folder: &Path, kept: bool) -> Self {
        let mut flags = vec![
            "--reflection".to_owned(),
            "--zones=zone-a,zone-b,zone-c".to_owned(),
            "--admin-address=127.0.0.1:0".to_owned(),
            format!("--admin-address-file={}", folder.join("admin-address").display()),
        ];
        if kept {
            flags.push(format!("--state-file={}", folder.join("cloud.json").display()));
        }
        let program = binaries.join("provider-mock");
        Self { name: "mock".to_owned(), program, flags, environment: Vec::new() }
    }
}
