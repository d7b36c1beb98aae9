//! Control plane, provider and host together, and ways to disturb them.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    process::Output,
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use control_plane::ControlPlane;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;

use crate::{
    Cloud, Neighbour, Process, Profile, ProviderUnderTest, binaries, http, http::Caller, provider::DOOR, wait,
};

/// The user that the host runs as.
pub const HOST_USER: &str = "system:serviceaccount:kube-system:cloud-controller-manager";
/// The groups of that user, as a service account has them.
pub const HOST_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];

const RBAC: &str = include_str!("../../../deploy/rbac.yaml");

/// What to start, and how.
#[derive(Debug, Default)]
pub struct Options {
    /// How host and provider are built.
    pub profile: Profile,
    /// More flags for the host; they override ours.
    pub host: Vec<String>,
    /// More flags for the provider.
    pub provider: Vec<String>,
    /// A provider instead of the mock; it has no [`Cluster::cloud`].
    pub provider_under_test: Option<ProviderUnderTest>,
    /// The options of the control plane.
    pub control_plane: control_plane::Options,
    /// Whether to omit `deploy/rbac.yaml`: the caller grants the host its permissions.
    pub without_rights: bool,
    /// For the bench: neither records the host's requests, which costs the apiserver time, nor keeps the cloud in
    /// a file, which costs the provider time. The provider must not be restarted.
    pub unrecorded: bool,
}

impl Options {
    /// For the bench: records nothing that costs time.
    #[must_use]
    pub fn unrecorded(mut self) -> Self {
        self.unrecorded = true;
        self
    }

    /// Lets the caller grant the host its permissions.
    #[must_use]
    pub fn without_rights(mut self) -> Self {
        self.without_rights = true;
        self
    }

    /// Adds a flag for the host.
    #[must_use]
    pub fn host_flag(mut self, flag: impl Into<String>) -> Self {
        self.host.push(flag.into());
        self
    }

    /// Adds a flag for the provider.
    #[must_use]
    pub fn provider_flag(mut self, flag: impl Into<String>) -> Self {
        self.provider.push(flag.into());
        self
    }

    /// Starts this provider instead of the mock.
    #[must_use]
    pub fn provider_under_test(mut self, provider: ProviderUnderTest) -> Self {
        self.provider_under_test = Some(provider);
        self
    }

    /// Starts the control plane, the provider and the host, in this order, and returns when the host is ready.
    pub async fn start(self) -> Result<Cluster> {
        let mut cluster = self.start_without_host().await?;
        cluster.start_host()?;
        cluster.host_ready().await?;
        Ok(cluster)
    }

    /// Starts the control plane and the provider.
    pub async fn start_without_host(self) -> Result<Cluster> {
        let mut cluster = self.start_control_plane().await?;
        cluster.start_provider().await?;
        Ok(cluster)
    }

    /// Starts the control plane only.
    pub async fn start_control_plane(self) -> Result<Cluster> {
        // A second call would fail, but another test of this binary may already have made the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let binaries = tokio::task::spawn_blocking(move || binaries::folder(self.profile)).await??;
        let options =
            if self.unrecorded { self.control_plane } else { self.control_plane.audit_user(HOST_USER) };
        let control_plane = options.start().await?;
        if !self.without_rights {
            control_plane.apply_yaml(RBAC).await.context("cannot apply deploy/rbac.yaml")?;
        }
        let client = control_plane.admin_client()?;
        let host_kubeconfig = control_plane.kubeconfig_for(HOST_USER, &HOST_GROUPS)?;
        // Inside the control plane's directory, so that its guardian removes it. Private, as a socket's directory must
        // be.
        let folder = control_plane.dir().join("parts");
        fs::create_dir(&folder)?;
        let sockets = folder.join("socket");
        fs::create_dir(&sockets)?;
        fs::set_permissions(&sockets, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        Ok(Cluster {
            host: None,
            provider: None,
            client,
            control_plane,
            folder,
            binaries,
            host_kubeconfig,
            host_flags: self.host,
            provider_flags: self.provider,
            provider_under_test: self.provider_under_test,
            unrecorded: self.unrecorded,
        })
    }
}

/// A running cluster. The host ends first, then the provider, then the control plane.
pub struct Cluster {
    host: Option<Process>,
    provider: Option<Process>,
    /// A member of `system:masters`.
    pub client: Client,
    /// Counts the host's requests.
    pub control_plane: ControlPlane,
    folder: PathBuf,
    binaries: PathBuf,
    host_kubeconfig: PathBuf,
    host_flags: Vec<String>,
    provider_flags: Vec<String>,
    provider_under_test: Option<ProviderUnderTest>,
    unrecorded: bool,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("host", &self.host)
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host:\n{}\nprovider:\n{}", self.0.host_tail(), self.0.provider_tail())
    }
}

/// The last output of host and provider, for the message of a failed test.
pub struct Parts<'a>(&'a Cluster);

impl Cluster {
    /// The kubeconfig of the host's user.
    pub fn host_kubeconfig(&self) -> &std::path::Path {
        &self.host_kubeconfig
    }

    /// Where the provider listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket/provider.sock")
    }

    /// A private directory that is removed with the cluster.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Starts the provider, and returns when its socket is open, and the mock's admin door too.
    pub async fn start_provider(&mut self) -> Result<()> {
        let provider = self.provider_under_test.clone();
        let provider = provider
            .unwrap_or_else(|| ProviderUnderTest::mock(&self.binaries, &self.folder, !self.unrecorded));
        // The former one holds the socket and the state.
        self.provider = None;
        let process = provider.start(&self.socket(), &self.folder, &self.provider_flags).await?;
        self.provider = Some(process);
        Ok(())
    }

    /// Starts a second mock, whose provider IDs begin with its name.
    pub async fn start_neighbour(&self, name: &str, flags: &[String]) -> Result<Neighbour> {
        Neighbour::start(name, flags, &self.binaries, self.folder.join(name)).await
    }

    /// Adds a flag for the next start of the host.
    pub fn add_host_flag(&mut self, flag: impl Into<String>) {
        self.host_flags.push(flag.into());
    }

    /// Sets the flags for the next start of the provider, instead of those of [`Options`].
    pub fn set_provider_flags(&mut self, flags: Vec<String>) {
        self.provider_flags = flags;
    }

    /// Starts the host; [`Cluster::host_ready`] waits for it.
    pub fn start_host(&mut self) -> Result<()> {
        self.host = Some(self.start_replica("host", &[])?);
        Ok(())
    }

    /// Starts the host with only these arguments. [`Cluster::host_ready`] finds it if `--serving-address-file` is
    /// `host-address` and `--cert-dir` `host-certificate`, both in [`Cluster::folder`].
    pub fn start_host_as(&mut self, arguments: &[String]) -> Result<()> {
        let log = self.folder.join("host.log");
        self.host = Some(Process::start("ccm-host", &self.binaries.join("ccm-host"), arguments, &[], &log)?);
        Ok(())
    }

    /// A kubeconfig with a token of the ServiceAccount `kube-system/NAME`, like a pod's.
    pub async fn service_account(&self, name: &str) -> Result<PathBuf> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), "kube-system");
        let spec = TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let granted = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = granted.status.with_context(|| format!("no token for {name} was granted"))?.token;
        let cluster = json!({
            "server": self.control_plane.url(),
            "certificate-authority-data": STANDARD.encode(self.control_plane.ca_pem()),
        });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "cluster", "cluster": cluster }],
            "users": [{ "name": name, "user": { "token": token } }],
            "contexts": [{ "name": name, "context": { "cluster": "cluster", "user": name } }],
            "current-context": name,
        });
        let path = self.folder.join(format!("{name}.kubeconfig"));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(kubeconfig.to_string().as_bytes())?;
        Ok(path)
    }

    /// Starts another host next to the first, with the same flags and these. The caller ends it.
    pub fn start_replica(&self, name: &str, more: &[String]) -> Result<Process> {
        let provider = self.provider_under_test.as_ref().map_or("mock", |provider| &provider.name);
        self.start_beside(format!("--provider={provider}=unix://{}", self.socket().display()), name, more)
    }

    /// Starts another host next to the first, with a provider process of its own, as each pod has one.
    pub fn start_replica_with(&self, provider: &Neighbour, name: &str, more: &[String]) -> Result<Process> {
        self.start_beside(provider.host_flag(), name, more)
    }

    fn start_beside(&self, provider: String, name: &str, more: &[String]) -> Result<Process> {
        let address = self.folder.join(format!("{name}-address"));
        let _ = fs::remove_file(&address);
        let mut flags = vec![
            provider,
            format!("--kubeconfig={}", self.host_kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            // A single host, which must not wait for its predecessor's Lease.
            "--leader-elect=false".to_owned(),
            "--secure-port=auto".to_owned(),
            format!("--cert-dir={}", self.folder.join(format!("{name}-certificate")).display()),
            format!("--serving-address-file={}", address.display()),
        ];
        flags.extend(self.host_flags.iter().chain(more).cloned());
        let log = self.folder.join(format!("{name}.log"));
        Process::start("ccm-host", &self.binaries.join("ccm-host"), &flags, &[], &log)
    }

    /// Kills the provider and starts it again with more flags, which override earlier ones.
    pub async fn restart_provider_with(&mut self, flags: &[String]) -> Result<()> {
        self.provider()?.kill()?;
        self.provider_flags.extend_from_slice(flags);
        self.start_provider().await
    }

    /// Ends the host and starts it again with more flags, which override earlier ones. Returns when it is ready.
    pub async fn restart_host_with(&mut self, flags: &[String]) -> Result<()> {
        let status = self.host()?.terminate().await?;
        anyhow::ensure!(status.success(), "ccm-host ended with {status} after SIGTERM");
        self.host_flags.extend_from_slice(flags);
        self.start_host()?;
        self.host_ready().await
    }

    /// Waits until the host's `/readyz` succeeds.
    pub async fn host_ready(&mut self) -> Result<()> {
        wait::until("the host's /readyz", async || {
            let host = self.host.as_mut().context("the host was not started")?;
            anyhow::ensure!(host.is_running(), "ccm-host ended:\n{}", host.tail());
            Ok(matches!(self.host_get("/readyz").await, Ok((200, _))).then_some(()))
        })
        .await
        .with_context(|| format!("the host printed:\n{}", self.host_tail()))
    }

    /// The running host.
    pub fn host(&mut self) -> Result<&mut Process> {
        self.host.as_mut().context("the host was not started")
    }

    /// The running provider.
    pub fn provider(&mut self) -> Result<&mut Process> {
        self.provider.as_mut().context("the provider was not started")
    }

    /// The door to the cloud behind the provider.
    pub fn cloud(&self) -> Result<Cloud> {
        Cloud::behind(&self.folder.join(DOOR))
    }

    /// Sends a GET to the host's serving port as the administrator.
    pub async fn host_get(&self, path: &str) -> Result<(u16, String)> {
        self.host_get_as(&Caller::of(&self.control_plane.admin_kubeconfig())?, path).await
    }

    /// Sends a GET to the host's serving port.
    pub async fn host_get_as(&self, caller: &Caller, path: &str) -> Result<(u16, String)> {
        let certificate = self.folder.join("host-certificate/cloud-controller-manager.crt");
        http::get(&self.host_address()?, &certificate, path, caller).await
    }

    /// The host's serving address.
    pub fn host_address(&self) -> Result<String> {
        let address =
            fs::read_to_string(self.folder.join("host-address")).context("the host serves nothing yet")?;
        Ok(address.trim().to_owned())
    }

    /// Runs `ccmctl` to completion with these arguments and a kubeconfig.
    pub async fn ccmctl(&self, kubeconfig: &std::path::Path, arguments: &[&str]) -> Result<Output> {
        let mut command = self.ccmctl_command(kubeconfig).await?;
        command.args(arguments).output().await.context("ccmctl cannot be run")
    }

    /// `ccmctl` with a kubeconfig, without a subcommand.
    pub async fn ccmctl_command(&self, kubeconfig: &std::path::Path) -> Result<tokio::process::Command> {
        let program = tokio::task::spawn_blocking(|| binaries::program("ccmctl")).await??;
        let mut command = tokio::process::Command::new(program);
        command.arg("--kubeconfig").arg(kubeconfig).kill_on_drop(true);
        Ok(command)
    }

    /// The arguments with which `ccmctl` reaches this host without a pod.
    pub fn ccmctl_way(&self) -> Result<[String; 3]> {
        let certificate = self.folder.join("host-certificate/cloud-controller-manager.crt");
        Ok([
            format!("--server=https://{}", self.host_address()?),
            format!("--certificate-authority={}", certificate.display()),
            "--tls-server-name=localhost".to_owned(),
        ])
    }

    /// The host's metrics.
    pub async fn host_metrics(&self) -> Result<String> {
        Ok(self.host_get("/metrics").await?.1)
    }

    /// The last output of host and provider.
    pub fn parts(&self) -> Parts<'_> {
        Parts(self)
    }

    fn host_tail(&self) -> String {
        self.host.as_ref().map(Process::tail).unwrap_or_default()
    }

    fn provider_tail(&self) -> String {
        self.provider.as_ref().map(Process::tail).unwrap_or_default()
    }
}
