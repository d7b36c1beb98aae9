//! One process of the host: everything that ships, except its sockets.

use std::{
    ffi::OsString,
    sync::{Arc, OnceLock},
};

use anyhow::Result;
use apiserver::{ApiServer, Faults};
use ccm_cloud::Dialer;
use ccm_host::{
    assembly::testing::{Surroundings, start_within},
    manager::{
        flags::{self, Request, Settings},
        metrics::Metrics,
        process,
    },
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;

use crate::{
    line::{Distant, Line},
    provider::Provider,
    record::Record,
};

/// The end of the second provider's endpoint.
const EDGE: &str = "/edge.sock";
/// Flags of every host.
const FLAGS: [&str; 8] = [
    "--provider=mock=unix:///simulated/mock.sock",
    "--master=http://apiserver",
    "--secure-port=0",
    "--leader-elect=false",
    "--cluster-cidr=10.244.0.0/16",
    "--controllers=*,nodeipam",
    "--allocate-node-cidrs=true",
    "--service-cluster-ip-range=10.96.0.0/12",
];

/// A running host.
#[derive(Debug)]
pub struct Host {
    /// Its name at the apiserver.
    pub name: String,
    /// The line to the apiserver.
    pub api: Line,
    /// The line to the provider.
    pub cloud: Line,
    /// The line to the second one.
    edge: Line,
    /// The faults of its requests to the apiserver.
    pub faults: Faults,
    stop: CancellationToken,
    ended: Arc<Mutex<Option<String>>>,
    metrics: Arc<OnceLock<Metrics>>,
}

/// The settings of a host with these flags, parsed like its command line.
///
/// # Errors
/// A flag is invalid.
pub fn settings(more: &[String]) -> Result<Settings> {
    let args = FLAGS.iter().map(ToString::to_string).chain(more.iter().cloned()).map(OsString::from);
    match flags::parse(args) {
        Ok(Request::Run(settings)) => Ok(*settings),
        Ok(Request::Print(text)) => anyhow::bail!("the flags only print: {text}"),
        Err(mistakes) => {
            anyhow::bail!("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
    }
}

impl Host {
    /// Starts it; must be called within a `LocalSet`.
    pub fn start(
        name: String,
        settings: Settings,
        server: &ApiServer,
        provider: &Provider,
        edge: Option<&Provider>,
        record: &Record,
    ) -> Self {
        let (api, cloud, beyond) = (Line::default(), Line::default(), Line::default());
        let (stop, ended) = (CancellationToken::new(), Arc::new(Mutex::new(None)));
        let surroundings = Surroundings {
            apiserver: BoxCloneSyncService::new(Distant::new(api.clone(), server.endpoint(&name))),
            dialer: {
                let (provider, cloud) = (provider.clone(), cloud.clone());
                let (edge, beyond) = (edge.cloned(), beyond.clone());
                Dialer::new(move |endpoint| match &edge {
                    Some(edge) if endpoint.to_string().ends_with(EDGE) => edge.dial(&beyond),
                    _ => provider.dial(&cloud),
                })
            },
        };
        let elects = settings.election.leader_elect;
        let metrics = Arc::new(OnceLock::new());
        let (asked, end, record, who) = (stop.clone(), Arc::clone(&ended), record.clone(), name.clone());
        let seen = Arc::clone(&metrics);
        tokio::task::spawn_local(async move {
            let mut told = false;
            let stop = asked.clone();
            let ran = process::until(
                settings,
                async |process| {
                    seen.get_or_init(|| process.metrics.clone());
                    start_within(process, surroundings).await
                },
                async || {
                    // Asked once; nothing ends the draining early.
                    if std::mem::replace(&mut told, true) {
                        std::future::pending::<()>().await;
                    }
                    stop.cancelled().await;
                    "the simulation"
                },
            )
            .await;
            let how = ran.map_or_else(|error| format!("{error:#}"), |()| "ended".to_owned());
            record.note(&who, &format!("ends: {how}"));
            let is_lost = elects && how.contains("leadership was lost");
            if !asked.is_cancelled() && !is_lost {
                record.broken("a host ended that nobody had told to", format!("{who}: {how}"));
            }
            *end.lock() = Some(how);
        });
        let faults = server.faults_of(&name);
        Self { name, api, cloud, edge: beyond, faults, stop, ended, metrics }
    }

    /// Tells it to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Disconnects it: from now on it neither sends nor receives anything. It stops by itself, unseen.
    pub fn kill(&self) {
        self.api.close();
        self.cloud.close();
        self.edge.close();
        self.stop.cancel();
    }

    /// Whether it says that it has something left to do.
    pub fn is_waiting(&self) -> bool {
        let text = self.metrics.get().and_then(|metrics| metrics.encode().ok()).unwrap_or_default();
        text.lines().any(|line| {
            line.starts_with("ccm_reports{") && !line.contains("\"LeftAlone\"") && !line.ends_with(" 0")
        })
    }

    /// Whether it was told to stop.
    pub fn is_leaving(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.lock().is_some()
    }
}
