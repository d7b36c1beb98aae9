//! SIGTERM, in a process of its own so that it stops nothing else.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use cloudprovider_sdk::{Endpoint, Provider, ServeOptions, Server};
use rustix::process::{Signal, getpid, kill_process};

#[tokio::test]
async fn sigterm_stops_gracefully() {
    let directory = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
    let socket = directory.path().join("a.sock");
    let options = ServeOptions::new(Endpoint::unix(&socket).unwrap());
    let bound = Server::new(Provider::builder("a").build().unwrap(), options).bind().await.unwrap();
    let task = tokio::spawn(bound.run());
    let channel = tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    // An answer shows that it runs, and so that it listens to signals.
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel.connect().await.unwrap());
    health.check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap();
    kill_process(getpid(), Signal::TERM).unwrap();
    tokio::time::timeout(Duration::from_secs(20), task).await.expect("stops").unwrap().unwrap();
    assert!(!socket.exists());
}
