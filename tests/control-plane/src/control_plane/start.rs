//! Starts a control plane from its options.

use std::{
    net::Ipv4Addr,
    sync::atomic::AtomicUsize,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use kube::Client;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::{ControlPlane, Servers};
use crate::{
    Assets, audit,
    authority::{self, Authority},
    guardian::Guardian,
    kubeconfig::{self, Identity, write_private},
    options::Options,
    port,
    readiness::{PortTaken, Starting},
    root,
    servers::{Apiserver, Layout, Server, etcd},
};

/// Losing the race for a random port once is rare; five times in a row has another cause.
const PORTS_TO_TRY: usize = 5;

impl ControlPlane {
    pub(crate) async fn start_with(options: Options) -> Result<Self> {
        // An error means that the caller has already installed one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let assets = spawn_blocking(Assets::find)
            .await
            .context("the search for etcd and kube-apiserver broke off")??;
        let mut attempt = 1;
        loop {
            match Self::start_once(&options, &assets).await {
                Err(error) if error.is::<PortTaken>() && attempt < PORTS_TO_TRY => attempt += 1,
                result => return result,
            }
        }
    }

    async fn start_once(options: &Options, assets: &Assets) -> Result<Self> {
        let deadline = Instant::now() + options.ready_within;
        let layout = Layout::new(root::fresh_dir(options.root.as_deref()));
        let mut guardian = Guardian::start(layout.dir())?;

        let port = port::free_port()?;
        let address = options.machines.unwrap_or(Ipv4Addr::LOCALHOST);
        let url = Apiserver::url(address, port);
        let authority = Authority::new()?;
        let admin_token = format!("{:032x}", fastrand::u128(..));
        write_files(&layout, options, &authority, &admin_token)?;
        let admin = Identity::Token(admin_token);
        write_private(&layout.admin_kubeconfig(), &kubeconfig::text(&url, &authority, &admin))?;

        let etcd = etcd(&assets.etcd, &layout);
        let pid = guardian.run(layout.dir(), &etcd)?;
        Starting { layout: &layout, pid, deadline }.etcd().await?;
        let apiserver = Apiserver { program: &assets.apiserver, layout: &layout, port, options }.server();
        let control_plane = Self {
            url,
            authority,
            admin,
            etcd,
            apiserver,
            servers: Mutex::new(Servers { guardian, etcd: pid, apiserver: None }),
            kubeconfigs: AtomicUsize::new(0),
            audited: !options.audit_users.is_empty(),
            ready_within: options.ready_within,
            layout,
        };
        let limit = deadline.saturating_duration_since(Instant::now());
        control_plane.start_apiserver_within(&control_plane.apiserver, limit).await?;
        Ok(control_plane)
    }

    /// Runs the apiserver and waits until it is ready.
    pub(super) async fn start_apiserver_within(&self, apiserver: &Server, limit: Duration) -> Result<()> {
        let pid = self.run_apiserver(apiserver)?;
        let starting = Starting { layout: &self.layout, pid, deadline: Instant::now() + limit };
        starting.apiserver(&self.impatient_client()?).await
    }

    /// Runs etcd and the apiserver again, once both were killed; returns when they are ready.
    pub(super) async fn start_again(&self) -> Result<()> {
        let deadline = Instant::now() + self.ready_within;
        let pid = {
            let mut servers = self.servers.lock();
            servers.etcd = servers.guardian.run(self.layout.dir(), &self.etcd)?;
            servers.etcd
        };
        Starting { layout: &self.layout, pid, deadline }.etcd().await?;
        self.start_apiserver_within(&self.apiserver, self.ready_within).await
    }

    /// The ordinary client retries with growing delays; waiting for readiness has its own interval.
    fn impatient_client(&self) -> Result<Client> {
        let mut config = kubeconfig::client_config(&self.url, &self.authority, &self.admin)?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }
}

fn write_files(layout: &Layout, options: &Options, authority: &Authority, admin_token: &str) -> Result<()> {
    let serving = authority.serving(options.machines)?;
    let service_account = authority::new_key()?;
    write_private(&layout.ca_certificate(), &authority.pem())?;
    write_private(&layout.serving_certificate(), &serving.pem)?;
    write_private(&layout.serving_key(), &serving.key_pem)?;
    write_private(&layout.service_account_key(), &service_account.serialize_pem())?;
    write_private(&layout.service_account_public_key(), &service_account.public_key_pem())?;
    write_private(&layout.tokens(), &format!("{admin_token},admin,admin,\"system:masters\"\n"))?;
    if options.machines.is_some() {
        let client = authority.client("kube-apiserver", &["system:masters"])?;
        write_private(&layout.ca_key(), &authority.key_pem())?;
        write_private(&layout.kubelet_client_certificate(), &client.pem)?;
        write_private(&layout.kubelet_client_key(), &client.key_pem)?;
    }
    if !options.audit_users.is_empty() {
        write_private(&layout.audit_policy(), &audit::policy(&options.audit_users))?;
    }
    Ok(())
}
