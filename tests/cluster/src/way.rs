//! One host's own connection to the apiserver. It can be cut, and its source address identifies the host in the audit
//! log.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use crate::Cluster;

/// Open until it is cut; ends when dropped.
#[derive(Debug)]
pub struct Way {
    source: Ipv4Addr,
    kubeconfig: PathBuf,
    cut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Way {
    /// Opens a way for the host with this number, which must be unique in the cluster: the source address contains it.
    pub async fn open(cluster: &Cluster, number: u16) -> Result<Self> {
        let [high, low] = number.to_be_bytes();
        let source = Ipv4Addr::new(127, 1, high, low);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = cluster.control_plane.url();
        let apiserver =
            url.trim_start_matches("https://").parse().with_context(|| format!("{url}: no address"))?;
        let here = format!("https://{}", listener.local_addr()?);
        let kubeconfig = cluster.folder().join(format!("way-{number}.kubeconfig"));
        fs::write(&kubeconfig, fs::read_to_string(cluster.host_kubeconfig())?.replace(url, &here))?;
        let cut = watch::Sender::new(false);
        let task = tokio::spawn(accept(listener, source.into(), apiserver, cut.subscribe()));
        Ok(Self { source, kubeconfig, cut, task })
    }

    /// The source address in the audit log.
    pub fn source(&self) -> String {
        self.source.to_string()
    }

    /// The flag that sends the host through it.
    pub fn host_flag(&self) -> String {
        format!("--kubeconfig={}", self.kubeconfig.display())
    }

    /// Cuts it: from now on nothing gets through in either direction, and neither side is told.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, source: IpAddr, apiserver: SocketAddr, cut: watch::Receiver<bool>) {
    // An error means that a peer has already disconnected.
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(carry(stream, source, apiserver, cut.clone()));
    }
}

async fn carry(
    mut from: TcpStream,
    source: IpAddr,
    apiserver: SocketAddr,
    mut cut: watch::Receiver<bool>,
) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    let mut to = socket.connect(apiserver).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    tokio::select! {
        carried = copy_bidirectional(&mut from, &mut to) => drop(carried?),
        () = async { drop(cut.wait_for(|cut| *cut).await) } => {}
    }
    // A cut way keeps both ends open: the peers hear nothing, but are not disconnected.
    while *cut.borrow() && cut.changed().await.is_ok() {}
    Ok(())
}
