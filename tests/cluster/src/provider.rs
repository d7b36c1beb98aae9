//! The process that is started as the provider.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use tokio::net::UnixStream;

use crate::{Cloud, Process, wait};

/// A second mock, with its own cloud. Ends when dropped.
#[derive(Debug)]
pub struct Neighbour {
    name: String,
    process: Process,
    folder: PathBuf,
}

impl Neighbour {
    pub(crate) async fn start(
        name: &str,
        flags: &[String],
        binaries: &Path,
        folder: PathBuf,
    ) -> Result<Self> {
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        let mut provider = ProviderUnderTest::mock(binaries, &folder, false);
        provider.flags.push(format!("--name={name}"));
        provider.name = name.to_owned();
        let process = provider.start(&folder.join("provider.sock"), &folder, flags).await?;
        Ok(Self { name: name.to_owned(), process, folder })
    }

    /// The host's flag for it.
    pub fn host_flag(&self) -> String {
        format!("--provider={}=unix://{}", self.name, self.folder.join("provider.sock").display())
    }

    /// The door to its cloud.
    pub fn cloud(&self) -> Result<Cloud> {
        Cloud::behind(&self.folder.join(DOOR))
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// The file to which the mock writes the address of its admin door.
pub(crate) const DOOR: &str = "admin-address";

/// A program that serves the contract at its flag `--endpoint`. The test itself cares for its cloud.
#[derive(Debug, Clone)]
pub struct ProviderUnderTest {
    /// The provider's name, as it reports it.
    pub name: String,
    /// The program to start.
    pub program: PathBuf,
    /// Its flags besides `--endpoint`.
    pub flags: Vec<String>,
    /// Environment variables in addition to the test's own.
    pub environment: Vec<(String, String)>,
}

impl ProviderUnderTest {
    /// The mock, with its admin door and, on request, a cloud that outlives it.
    pub(crate) fn mock(binaries: &Path, folder: &Path, kept: bool) -> Self {
        let mut flags = vec![
            "--reflection".to_owned(),
            "--zones=zone-a,zone-b,zone-c".to_owned(),
            "--admin-address=127.0.0.1:0".to_owned(),
            format!("--admin-address-file={}", folder.join(DOOR).display()),
        ];
        if kept {
            flags.push(format!("--state-file={}", folder.join("cloud.json").display()));
        }
        let program = binaries.join("provider-mock");
        Self { name: "mock".to_owned(), program, flags, environment: Vec::new() }
    }

    /// Starts it, and returns when its socket is open, and its admin door if it has one.
    pub(crate) async fn start(&self, socket: &Path, folder: &Path, more: &[String]) -> Result<Process> {
        let door = folder.join(DOOR);
        let has_door = self.flags.iter().any(|flag| flag.starts_with("--admin-address-file="));
        let _ = fs::remove_file(&door);
        let mut flags = vec![format!("--endpoint=unix://{}", socket.display())];
        flags.extend(self.flags.iter().chain(more).cloned());
        let log = folder.join("provider.log");
        let mut process = Process::start(&self.name, &self.program, &flags, &self.environment, &log)?;
        wait::until("the provider's doors", async || {
            anyhow::ensure!(process.is_running(), "{} ended at once:\n{}", self.name, process.tail());
            let open = (!has_door || door.exists()) && UnixStream::connect(socket).await.is_ok();
            Ok(open.then_some(()))
        })
        .await
        .with_context(|| format!("{} did not start", self.name))?;
        Ok(process)
    }
}
