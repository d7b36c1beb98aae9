//! The real binary: what it says about a wrong command line, what it serves, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

const LIMIT: Duration = Duration::from_secs(30);

fn ccm_host(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccm-host"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(words: &[&str]) -> Output {
    ccm_host(words).output().unwrap()
}

/// Ends the process when a test fails half-way.
struct Running(Child);

impl Running {
    fn start(words: &[&str]) -> Self {
        Self(ccm_host(words).spawn().unwrap())
    }

    fn signal(&self, name: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(id, name).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        until("the process ends", || self.0.try_wait().unwrap())
    }

    fn log(&mut self) -> String {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "waited {LIMIT:?} until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn address(file: &Path) -> String {
    until("the address is written", || std::fs::read_to_string(file).ok()).trim().to_owned()
}

/// From whoever shows the certificate that the process wrote into this folder.
fn get(address: &str, folder: &Path, path: &str) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = rustls::RootCertStore::empty();
    let written = CertificateDer::from_pem_file(folder.join("cloud-controller-manager.crt")).unwrap();
    roots.add(written).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    let mut stream = rustls::StreamOwned::new(session, connection);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_wrong_command_line_ends_with_1_and_every_remedy() {
    let result = output(&["--provider=mock=/run/mock.sock", "--no-such=1", "--port=0"]);
    assert_eq!(result.status.code(), Some(1));
    assert!(result.stdout.is_empty());
    assert_eq!(
        String::from_utf8(result.stderr).unwrap(),
        "error: --no-such: unknown flag: see --help for all flags\n\
         error: --port: was removed from Kubernetes components: there is no port without TLS: leave it out; see \
         --secure-port\n"
    );
}

#[test]
fn version_and_help_end_with_0() {
    let version = output(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    let expected = format!("ccm-host v{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(version.stdout).unwrap(), expected);
    let help = output(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("--node-monitor-period"));
}

#[test]
fn a_taken_port_ends_with_1_and_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let port = format!("--secure-port={}", address.port());
    let result = output(&["--provider=mock=/run/mock.sock", "--bind-address=127.0.0.1", &port]);
    assert_eq!(result.status.code(), Some(1));
    let log = String::from_utf8(result.stderr).unwrap();
    assert!(log.contains(&format!("error: cannot serve on {address}: give another --secure-port")), "{log}");
}

#[test]
fn serves_logs_its_flags_and_ends_cleanly() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("address");
        let certificates = format!("--cert-dir={}", dir.path().display());
        let get = |address: &str, path: &str| get(address, dir.path(), path);
        let file_flag = format!("--serving-address-file={}", file.display());
        let mut running = Running::start(&[
            "--provider=mock=/run/mock.sock",
            // Nobody listens there: the process waits for its apiserver, and is alive.
            "--master=https://127.0.0.1:1",
            "--bind-address=127.0.0.1",
            "--secure-port=auto",
            &certificates,
            "--authorization-always-allow-paths=/livez,/readyz,/metrics",
            "--logging-format=json",
            "--node-sync-period=1s",
            &file_flag,
        ]);
        let address = address(&file);
        assert!(get(&address, "/livez").ends_with("\r\n\r\nok"));
        assert!(get(&address, "/livez?verbose").contains("[+]ping ok\n"));
        until("readiness says what is waited for", || {
            get(&address, "/readyz?verbose")
                .contains("[-]startup failed: waiting for the apiserver")
                .then_some(())
        });
        let metrics = get(&address, "/metrics");
        assert!(metrics.contains("ccm_build_info{") && metrics.contains("process_open_fds "), "{metrics}");
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(0), "{signal:?}");
        assert!(!file.exists());
        let log = running.log();
        for text in
            [r#"FLAG: --node-monitor-period=\"5s\""#, "--node-sync-period=1s has no effect", "asked to stop"]
        {
            assert!(log.contains(text), "{text} is not in\n{log}");
        }
    }
}
