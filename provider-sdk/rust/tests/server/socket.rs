//! The socket: who may come near it, and who owns its path.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use cloudprovider_sdk::contract::discovery::v1::GetInfoRequest;
use cloudprovider_sdk::proto::ErrorReason;
use cloudprovider_sdk::{ServeError, Server};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::time;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::cloud::Cloud;
use crate::fixture::{options, private, reason, serve, serve_with, within};
use crate::requests::batch;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

async fn bind(socket: &Path) -> Result<cloudprovider_sdk::BoundServer, ServeError> {
    Server::new(Cloud::new().provider(), options(socket)).without_signals().bind().await
}

#[tokio::test]
async fn directory_and_socket_keep_others_out() {
    let served = serve(Cloud::new().provider()).await;
    assert_eq!(mode(&served.socket), 0o660);
    assert_eq!(mode(served.socket.parent().unwrap()), 0o700);
    let (socket, directory) = (served.socket.clone(), served.directory.path().to_owned());
    assert!(directory.exists());
    served.handle.stop();
    within(served.task).await.unwrap().unwrap();
    assert!(!socket.exists(), "the socket's file stays");
}

#[tokio::test]
async fn a_directory_is_shared_with_the_group_that_is_handed_on() {
    let volume = private();
    fs::set_permissions(volume.path(), Permissions::from_mode(0o2777)).unwrap();
    let socket = volume.path().join("new/a.sock");
    let _bound = bind(&socket).await.unwrap();
    assert_eq!(mode(socket.parent().unwrap()), 0o2750);
}

#[tokio::test]
async fn open_directories_are_refused() {
    let directory = private();
    for open in [0o755, 0o770, 0o777, 0o701, 0o704, 0o720, 0o1777] {
        fs::set_permissions(directory.path(), Permissions::from_mode(open)).unwrap();
        let error = bind(&directory.path().join("a.sock")).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ServeError::DirectoryMode { mode, .. } if mode == open), "{open:o}: {error}");
        assert!(text.contains(&format!("{open:04o}")) && text.contains("use 0700, or 0750"), "{text}");
    }
    for closed in [0o700, 0o750, 0o2750] {
        fs::set_permissions(directory.path(), Permissions::from_mode(closed)).unwrap();
        drop(bind(&directory.path().join("a.sock")).await.unwrap());
    }
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let directory = private();
    let socket = directory.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let bound = bind(&socket).await.unwrap();
    tokio::net::UnixStream::connect(&socket).await.unwrap();
    drop(bound);
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_second_start_is_refused_and_harms_nobody() {
    let served = serve(Cloud::new().provider()).await;
    let error = bind(&served.socket).await.unwrap_err();
    assert!(matches!(error, ServeError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("already in use"), "{error}");
    served.discovery().await.get_info(GetInfoRequest::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_starts_at_once_one_wins() {
    for _ in 0..20 {
        let directory = private();
        let socket = directory.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let start = |_| {
            tokio::spawn({
                let socket = socket.clone();
                async move { bind(&socket).await }
            })
        };
        let starts = futures::future::join_all((0..8).map(start)).await;
        assert_eq!(starts.iter().filter(|start| start.as_ref().unwrap().is_ok()).count(), 1);
        tokio::net::UnixStream::connect(&socket).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_socket_stays() {
    let directory = private();
    let file = directory.path().join("a.sock");
    fs::write(&file, "precious").unwrap();
    let error = bind(&file).await.unwrap_err();
    assert!(matches!(error, ServeError::NotASocket { .. }), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[tokio::test]
async fn the_socket_of_a_successor_stays() {
    let directory = private();
    let socket = directory.path().join("a.sock");
    let bound = bind(&socket).await.unwrap();
    fs::remove_file(&socket).unwrap();
    let _successor = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    drop(bound);
    assert!(socket.exists());
}

#[tokio::test]
async fn a_peer_that_is_not_allowed_learns_nothing() {
    let own = rustix::process::geteuid().as_raw();
    let served =
        serve_with(Cloud::new().provider(), |options| options.allowed_peer_uids = vec![own + 1]).await;
    let refused = [
        served.instances().await.batch_get_instances(batch(&["a"])).await.unwrap_err(),
        served.discovery().await.get_info(GetInfoRequest::default()).await.unwrap_err(),
        HealthClient::new(served.channel().await).check(HealthCheckRequest::default()).await.unwrap_err(),
    ];
    for status in refused {
        assert_eq!(status.code(), Code::Unauthenticated);
        assert_eq!(reason(&status), ErrorReason::PeerNotTrusted);
        assert!(status.message().contains("--allowed-peer-uids"), "{}", status.message());
    }
    let allowed = serve_with(Cloud::new().provider(), |options| options.allowed_peer_uids = vec![own]).await;
    allowed.discovery().await.get_info(GetInfoRequest::default()).await.unwrap();
}

#[tokio::test]
async fn tls_flags_do_not_fit_a_unix_socket() {
    let directory = private();
    let mut options = options(&directory.path().join("a.sock"));
    options.tls_cert_file = Some("/c".into());
    let error = Server::new(Cloud::new().provider(), options).bind().await.unwrap_err();
    assert!(matches!(error, ServeError::TlsOverUnix { .. }), "{error}");
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let served = serve(Cloud::new().provider()).await;
    let mut silent = UnixStream::connect(&served.socket).await.unwrap();
    // What a server says first shows that it waits for the client now.
    within(silent.read_u8()).await.unwrap();
    time::pause();
    let mut rest = Vec::new();
    let _closed_or_reset = within(silent.read_to_end(&mut rest)).await;
    time::resume();
    served.stopped().await;
}
