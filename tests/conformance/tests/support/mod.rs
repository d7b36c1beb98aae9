//! The mock as a process that is restarted whenever it ends, and the suite's own program.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
    time::Duration,
};

use provider_mock::{admin::Client, fault::Fault};
use tempfile::TempDir;
use tokio::{process::Command, task::JoinHandle};

pub const PATIENCE: Duration = Duration::from_secs(30);
/// Times and sizes short enough for a test, which the provider advertises as the contract requires; on a busy machine, a hook that
/// runs within such a time takes a second or two.
pub const ADVERTISE: &str = "resume-token-validity=3s,bookmark-interval=200ms,watch-max-age=6s,\
                         max-batch-instances=60,max-batch-load-balancers=20,max-batch-routes=30,max-batch-volumes=40,page-size=10";

/// A mock that keeps running, whatever is done to it.
pub struct Mock {
    pub folder: TempDir,
    pub admin: Client,
    pub address: SocketAddr,
    keeper: JoinHandle<()>,
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// The directory of the mock's program, built once.
pub fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = programs::cargo().args(["build", "--quiet", "--bin", "provider-mock"]).status();
        assert!(built.unwrap().success(), "cargo cannot build provider-mock");
        // Our own program is in the same directory.
        Path::new(env!("CARGO_BIN_EXE_provider-conformance")).parent().unwrap().to_owned()
    })
}

pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Mock {
    pub async fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = format!("unix://{}", socket(folder.path()).display());
        Self::start_at(folder, &endpoint, more).await
    }

    pub async fn start_at(folder: TempDir, endpoint: &str, more: &[&str]) -> Self {
        let address = free_address();
        let mut arguments: Vec<String> = vec![
            "--endpoint".into(),
            endpoint.into(),
            "--admin-address".into(),
            address.to_string(),
            "--admin-address-file".into(),
            folder.path().join("admin").display().to_string(),
            "--state-file".into(),
            folder.path().join("state").display().to_string(),
            "--log-level".into(),
            "warn".into(),
        ];
        if !more.contains(&"--advertise") {
            arguments.extend(["--advertise".to_owned(), ADVERTISE.to_owned()]);
        }
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        // Built here, where nobody waits for the mock yet.
        let program = programs().join("provider-mock");
        let keeper = tokio::spawn(keep(program, folder.path().to_owned(), arguments));
        let file = folder.path().join("admin");
        let admin = Client::from_address_file(&file, PATIENCE).await;
        let admin = admin.unwrap_or_else(|error| panic!("{error}\n{}", log(folder.path())));
        Self { folder, admin, address, keeper }
    }

    pub async fn fault(&self, text: &str) {
        let fault: Fault = text.parse().unwrap();
        self.admin.add_fault(&fault).await.unwrap();
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", socket(self.folder.path()).display())
    }

    /// The suite's program with this mock's environment.
    pub fn suite(&self, arguments: &[&str]) -> Command {
        let mut suite = Command::new(env!("CARGO_BIN_EXE_provider-conformance"));
        suite.args(arguments).kill_on_drop(true).stdin(Stdio::null());
        for (name, value) in self.surroundings() {
            suite.env(name, value);
        }
        suite
    }

    /// The variables that the scenario's hooks read.
    pub fn surroundings(&self) -> [(&'static str, String); 4] {
        let path = format!("{}:{}", programs().display(), std::env::var("PATH").unwrap_or_default());
        let pid = self.folder.path().join("pid").display().to_string();
        let log = self.folder.path().join("log").display().to_string();
        [
            ("PATH", path),
            ("PROVIDER_MOCK_ADMIN", self.address.to_string()),
            ("PROVIDER_PID_FILE", pid),
            ("PROVIDER_LOG", log),
        ]
    }

    /// From now on it is not restarted.
    pub fn start_no_more(&self) {
        std::fs::write(self.folder.path().join(NO_MORE), "").unwrap();
    }
}

const NO_MORE: &str = "no-more";

/// Restarts it repeatedly.
async fn keep(program: PathBuf, folder: PathBuf, arguments: Vec<String>) {
    loop {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
        let started =
            Command::new(&program).args(&arguments).stderr(Stdio::from(log)).kill_on_drop(true).spawn();
        let mut child = started.unwrap();
        std::fs::write(folder.join("pid"), child.id().unwrap_or(0).to_string()).unwrap();
        child.wait().await.unwrap();
        if folder.join(NO_MORE).exists() {
            return;
        }
    }
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("run").join("ccm.sock")
}

/// The whole output of a program.
pub fn told(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout))
}

pub fn scenario() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/mock.yaml")
}
