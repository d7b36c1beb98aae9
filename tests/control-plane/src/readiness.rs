//! Waits until the servers are usable, and says why if they are not.

use std::{
    fs,
    os::unix::fs::FileTypeExt as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use rustix::process::Pid;
use thiserror::Error;
use tokio::time::{sleep, timeout};

use crate::{
    process,
    servers::{APISERVER, ETCD, Layout},
};

const LOOK_AGAIN: Duration = Duration::from_millis(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const LOG_LINES: usize = 20;

/// Somebody else took the port after our check: worth another start with another port.
#[derive(Debug, Error)]
#[error("another process took the port that was chosen for the apiserver")]
pub(crate) struct PortTaken;

/// A server that is being awaited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Starting<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) pid: Pid,
    pub(crate) deadline: Instant,
}

impl Starting<'_> {
    /// Returns when etcd listens.
    pub(crate) async fn etcd(self) -> Result<()> {
        let socket = self.layout.etcd_socket();
        while !is_socket(&socket) {
            self.keep_waiting(ETCD).await?;
        }
        Ok(())
    }

    /// Returns when the apiserver has finished starting, including the creation of the system namespaces.
    pub(crate) async fn apiserver(self, admin: &Client) -> Result<()> {
        while !is_ready(admin).await {
            self.keep_waiting(APISERVER).await?;
        }
        let namespaces = Api::<Namespace>::all(admin.clone());
        for name in ["default", "kube-system"] {
            while !exists(&namespaces, name).await {
                self.keep_waiting(APISERVER).await?;
            }
        }
        Ok(())
    }

    async fn keep_waiting(&self, server: &str) -> Result<()> {
        if !process::is_alive(self.pid) {
            let log = tail(&self.layout.log(server));
            if server == APISERVER && log.contains("address already in use") {
                bail!(PortTaken);
            }
            bail!("{server} ended before it was ready; the end of its log:\n{log}");
        }
        if Instant::now() >= self.deadline {
            let [etcd, apiserver] = [ETCD, APISERVER].map(|name| tail(&self.layout.log(name)));
            bail!(
                "{server} is not ready in time\n-- the end of etcd's log:\n{etcd}\n-- of the apiserver's:\n{apiserver}"
            );
        }
        sleep(LOOK_AGAIN).await;
        Ok(())
    }
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

async fn is_ready(admin: &Client) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else { return false };
    matches!(timeout(ANSWER_WITHIN, admin.request_text(request)).await, Ok(Ok(_)))
}

async fn exists(namespaces: &Api<Namespace>, name: &str) -> bool {
    matches!(timeout(ANSWER_WITHIN, namespaces.get_metadata(name)).await, Ok(Ok(_)))
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).with_context(|| format!("cannot read {}", log.display()));
    let text =
        text.map_or_else(|error| format!("{error:#}"), |text| String::from_utf8_lossy(&text).into_owned());
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
