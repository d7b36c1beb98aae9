//! Who may call, and how.

use std::{
    cell::Cell,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
};

use cloudprovider_proto::discovery::v1::{GetInfoRequest, discovery_client::DiscoveryClient};

use crate::{
    case::{Case, Outcome, Profile::Security, Stop},
    scenario::Variables,
    target::{Endpoint, Wire},
    trial::{Trial, expect, failed, good},
};

const PEER: &[&str] = &["The provider does not trust the peer. Code UNAUTHENTICATED."];

pub(super) const CASES: &[Case] = &[
    Case::new("SEC-01", Security, "the socket is for its owner and group alone", &[], &socket_mode)
        .words(PEER),
    Case::new(
        "SEC-02",
        Security,
        "the folder of the socket lets no stranger in and no stranger write",
        &[],
        &folder_mode,
    )
    .words(PEER),
    Case::new("SEC-03", Security, "another user is not served", &[], &another_user).words(PEER).extended(),
    Case::new("SEC-04", Security, "TCP without TLS is not served", &[], &plain_tcp).words(PEER),
    Case::new("SEC-05", Security, "TLS without a client's certificate is not served", &[], &anonymous_tls)
        .words(PEER),
    Case::new(
        "SEC-07",
        Security,
        "renewed certificates are taken up without a restart, and no call is cut for it",
        &[],
        &renewed_certificates,
    )
    .words(&["picks up renewed certificates without a restart and without interrupting calls"])
    .hooks(&["renew-certificates"])
    .extended(),
];

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

fn socket(t: &Trial) -> Result<PathBuf, Stop> {
    match t.wire().endpoint() {
        Endpoint::Unix(path) => Ok(path.clone()),
        Endpoint::Tls { .. } => Err(Stop::NotAdvertised("the endpoint is no Unix socket".to_owned())),
    }
}

fn tcp(t: &Trial) -> Outcome {
    match t.wire().endpoint() {
        Endpoint::Unix(_) => Err(Stop::NotAdvertised("the endpoint is a Unix socket".to_owned())),
        Endpoint::Tls { .. } => Ok(()),
    }
}

fn mode(path: &Path) -> Result<u32, Stop> {
    let data = std::fs::symlink_metadata(path);
    let data = data.map_err(|error| Stop::NotRun(format!("cannot look at {}: {error}", path.display())))?;
    Ok(data.permissions().mode() & 0o7777)
}

async fn socket_mode(t: &Trial) -> Outcome {
    let path = socket(t)?;
    let is_socket = std::fs::metadata(&path).is_ok_and(|data| data.file_type().is_socket());
    expect(is_socket, "a socket with a path", &path)?;
    let mode = mode(&path)?;
    expect(mode & 0o007 == 0, "mode 0660 or stricter", format!("{mode:04o}"))
}

async fn folder_mode(t: &Trial) -> Outcome {
    let path = socket(t)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = mode(folder)?;
    expect(mode & 0o027 == 0, "mode 0750 or stricter", format!("{mode:04o}"))
}

/// Calls as a user without permissions, from a separate process, since a process has one user.
async fn another_user(t: &Trial) -> Outcome {
    let path = socket(t)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Stop::NotRun("only root can call as another user".to_owned()));
    }
    let owner = std::fs::metadata(&path).map_or(0, |data| data.uid());
    if owner == NOBODY {
        return Err(Stop::NotRun(format!("the provider itself runs as user {NOBODY}")));
    }
    let here = std::env::current_exe()
        .map_err(|error| Stop::NotRun(format!("this program has no path: {error}")))?;
    let mut knock = tokio::process::Command::new(here);
    knock
        .args(["knock", "--endpoint"])
        .arg(&path)
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let knocked = knock.output().await;
    let knocked = knocked.map_err(|error| Stop::NotRun(format!("cannot run as user {NOBODY}: {error}")))?;
    let said = String::from_utf8_lossy(&knocked.stdout).trim().to_owned();
    expect(!knocked.status.success(), format!("user {NOBODY} is kept out"), said)
}

async fn served(wire: Wire, t: &Trial) -> bool {
    DiscoveryClient::new(wire).get_info(t.ask(GetInfoRequest::default())).await.is_ok()
}

async fn plain_tcp(t: &Trial) -> Outcome {
    tcp(t)?;
    if served(t.wire().plain(), t).await { Err(failed("no answer without TLS", "an answer")) } else { Ok(()) }
}

async fn anonymous_tls(t: &Trial) -> Outcome {
    tcp(t)?;
    if served(t.wire().anonymous(), t).await {
        return Err(failed("no answer without a client's certificate", "an answer"));
    }
    Ok(())
}

async fn renewed_certificates(t: &Trial) -> Outcome {
    tcp(t)?;
    let no_connection = |error: std::io::Error| failed("a connection by TLS", error.to_string());
    let before = t.wire().certificate().await.map_err(no_connection)?;
    let standing = t.wire().another();
    let renewed = Cell::new(false);
    let renew = async {
        let done = renew_and_wait(t, &before).await;
        renewed.set(true);
        done
    };
    let calls = async {
        while !renewed.get() {
            let mut client = DiscoveryClient::new(standing.clone());
            good(
                "a call while certificates are renewed",
                client.get_info(t.ask(GetInfoRequest::default())).await,
            )?;
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Ok(())
    };
    let (done, called) = tokio::join!(renew, calls);
    done.and(called)?;
    let mut client = DiscoveryClient::new(t.wire().another());
    good("a call on a new connection", client.get_info(t.ask(GetInfoRequest::default())).await).map(drop)
}

async fn renew_and_wait(t: &Trial, before: &Option<Vec<u8>>) -> Outcome {
    t.hook("renew-certificates", &Variables::new()).await?;
    t.eventually("another certificate on a new connection", async || {
        Ok(match t.wire().certificate().await {
            Ok(now) if now != *before => Ok(()),
            Ok(_) => Err("the former certificate".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    })
    .await
}
