//! Connecting, losing and reconnecting, and everything that may be wrong with an endpoint.

use std::os::unix::fs::PermissionsExt as _;

use cloudprovider_proto::v1alpha1::{ConditionStatus, ConditionType};

use super::*;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn no_provider_at_all_is_said_and_found_once_it_is_there() {
    let (_dir, path) = folder();
    let host = Host::at(&path);
    host.disconnected("no socket at").await;
    assert_eq!(host.metric("cloudprovider_connected{provider=\"p\"}"), 0.0);
    let error = host.ask("n").await.unwrap_err();
    assert_eq!((error.code, error.reason), (Code::Unavailable, None));
    assert!(error.message.contains("no socket at"), "{error}");

    let script = Script::new("e1");
    let _running = Running::at(&path, &script);
    host.serving().await;
    assert_eq!(host.metric("cloudprovider_connected{provider=\"p\"}"), 1.0);
    let series =
        "cloudprovider_negotiated_version{provider=\"p\",service=\"Instances\",version=\"v1alpha1\"}";
    assert_eq!(host.metric(series), 1.0);
    let info = host.provider.info().unwrap();
    assert_eq!((info.name.as_str(), info.epoch.as_str(), info.instances), ("test", "e1", true));
}

#[tokio::test]
async fn an_endpoint_that_is_no_socket_is_not_dialed() {
    let (_dir, path) = folder();
    std::fs::write(&path, "").unwrap();
    Host::at(&path).disconnected("is not a socket").await;
}

#[tokio::test]
async fn a_link_to_a_socket_is_not_dialed() {
    let (dir, path) = folder();
    let _running = Running::at(&path, &Script::new("e1"));
    let link = dir.path().join("link.sock");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    Host::at(&link).disconnected("is not a socket").await;
}

#[tokio::test]
async fn a_socket_nobody_listens_at_is_said() {
    let (_dir, path) = folder();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    set_mode(&path, 0o660);
    Host::at(&path).disconnected("nothing listens at unix://").await;
}

/// D33.
#[tokio::test]
async fn a_socket_that_others_could_replace_is_not_dialed() {
    let (dir, path) = folder();
    let script = Script::new("e1");
    let _running = Running::at(&path, &script);
    for (target, mode, words) in [
        (path.as_path(), 0o666, "has mode 0666"),
        (dir.path(), 0o777, "has mode 0777"),
        (dir.path(), 0o770, "has mode 0770"),
    ] {
        let before = std::fs::metadata(target).unwrap().permissions();
        set_mode(target, mode);
        Host::at(&path).disconnected(words).await;
        std::fs::set_permissions(target, before).unwrap();
    }
    assert_eq!(script.log.lock().len(), 0, "nothing was asked");
    for mode in [0o750, 0o755] {
        set_mode(dir.path(), mode);
        Host::at(&path).serving().await;
    }
}

#[tokio::test]
async fn a_server_that_is_no_provider_is_told_from_nobody() {
    let (_dir, path) = folder();
    let (_, health) = tonic_health::server::health_reporter();
    let _running = Running::serve(&path, move |mut builder| builder.add_service(health));
    Host::at(&path).disconnected("not a provider").await;
}

#[tokio::test]
async fn something_that_does_not_speak_grpc_is_no_provider_either() {
    let (_dir, path) = folder();
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    set_mode(&path, 0o660);
    std::thread::spawn(move || {
        use std::io::Write as _;
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"220 hello\r\n");
        }
    });
    Host::at(&path).disconnected("handshake failed in GetInfo").await;
}

/// D5.
#[tokio::test]
async fn nothing_in_common_names_both_sides() {
    let (_dir, path) = folder();
    let script = Script::new("e1");
    script.info.lock().services = vec!["ccm.cloudprovider.v7.CloudProvider".into()];
    let _running = Running::at(&path, &script);
    let host = Host::at(&path);
    host.disconnected(
        "only newer versions of CloudProvider (v7; this host speaks v1alpha1): upgrade the host",
    )
    .await;
    assert_eq!(script.count("GetCapabilities"), 0);
    script.info.lock().services.clear();
    host.disconnected("serves no service of ccm.cloudprovider").await;
}

/// D27: the socket is lost, the host is not; the next process does the handshake before anything else.
#[tokio::test]
async fn a_restart_is_noticed_by_its_epoch_and_introduced_anew() {
    let (_dir, path) = folder();
    let first = Script::new("e1");
    let running = Running::at(&path, &first);
    let host = Host::at(&path);
    host.serving().await;
    host.ask("n").await.unwrap();
    let sweeps = *host.provider.sweeps().borrow();

    drop(running);
    host.until(ProviderStatus::is_away).await;
    let error = host.ask("n").await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    let status = host.provider.status(Family::Instances).borrow().clone();
    assert!(status.is_away(), "a call makes nobody come back: {status:?}");
    let second = Script::new("e2");
    second.limits(|limits| limits.max_batch_instances = 7);
    let _running = Running::at(&path, &second);
    host.serving().await;
    host.ask("n").await.unwrap();
    assert_eq!(second.log.lock()[..2], ["GetInfo", "GetCapabilities"]);
    assert_eq!(host.provider.info().unwrap().epoch, "e2");
    assert_eq!(host.metric("cloudprovider_epoch_changes_total{provider=\"p\"}"), 1.0);
    assert!(*host.provider.sweeps().borrow() > sweeps);
}

#[tokio::test]
async fn capabilities_that_change_within_an_epoch_are_counted() {
    let (_dir, path) = folder();
    let script = Script::new("e1");
    let running = Running::at(&path, &script);
    let host = Host::at(&path);
    host.serving().await;
    drop(running);
    script.limits(|limits| limits.max_batch_instances = 7);
    host.until(ProviderStatus::is_away).await;
    let _running = Running::at(&path, &script);
    host.serving().await;
    let rule = "cloudprovider_contract_violations_total{provider=\"p\",rule=\"capabilities-constant\"}";
    assert_eq!(host.metric(rule), 1.0);
    assert_eq!(
        host.metric("cloudprovider_epoch_changes_total{provider=\"p\"}"),
        0.0,
        "from zero, for `increase`"
    );
}

#[tokio::test]
async fn bad_credentials_freeze_from_the_start_and_thaw() {
    let (_dir, path) = folder();
    let script = Script::new("e1");
    script.condition(ConditionType::CredentialsValid, ConditionStatus::False);
    let _running = Running::at(&path, &script);
    let host = Host::at(&path);
    let mut status = host.provider.status(Family::Instances);
    status.wait_for(|status| !status.is_away()).await.unwrap();
    assert_eq!(
        *status.borrow(),
        ProviderStatus::Frozen("CREDENTIALS_VALID is FALSE".into()),
        "never serving"
    );
    host.ask("n").await.expect("reads go on");
    assert_eq!(host.metric("cloudprovider_serving{provider=\"p\"}"), 0.0);
    assert_eq!(host.metric("cloudprovider_connected{provider=\"p\"}"), 1.0);

    script.condition(ConditionType::CredentialsValid, ConditionStatus::True);
    host.serving().await;
    script.condition(ConditionType::CloudReachable, ConditionStatus::False);
    host.frozen("CLOUD_REACHABLE is FALSE").await;
}

#[tokio::test]
async fn a_provider_that_stops_serving_says_so_by_its_health() {
    let (_dir, path) = folder();
    let script = Script::new("e1");
    let (reporter, health) = tonic_health::server::health_reporter();
    let _running = Running::serve(&path, {
        let script = Arc::clone(&script);
        move |builder| services_of(builder, &script).add_service(health)
    });
    let host = Host::at(&path);
    host.serving().await;
    reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
    host.frozen("health is NOT_SERVING").await;
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    host.serving().await;
}

/// Like a process that was stopped: the connection stays, but nothing is answered.
#[tokio::test]
async fn a_silent_provider_freezes_is_left_and_is_taken_up_again() {
    use std::sync::atomic::Ordering;
    let script = Script::new("e1");
    script.deadline("GetStatus", Duration::from_millis(50));
    let (host, _running, _dir) = served(&script).await;
    script.silent.store(true, Ordering::SeqCst);
    host.frozen("GetStatus: no response within 50ms").await;
    host.disconnected("it answered none of 3 GetStatus in a row").await;
    script.silent.store(false, Ordering::SeqCst);
    host.serving().await;
    assert!(script.count("GetInfo") >= 2, "introduced anew");
}

/// They would hold the places of those over the next connection until their deadlines.
#[tokio::test]
async fn calls_under_way_end_with_a_connection_that_says_nothing() {
    use std::sync::atomic::Ordering;
    let script = Script::new("e1");
    script.deadline("GetStatus", Duration::from_millis(50));
    let (host, _running, _dir) = served(&script).await;
    script.on_instances(|_| std::future::pending());
    let silent = async {
        while script.count("BatchGetInstances") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        script.silent.store(true, Ordering::SeqCst);
    };
    let asked = tokio::time::timeout(PATIENCE, host.ask("n"));
    let (answer, ()) = tokio::join!(asked, silent);
    let error = answer.expect("it does not wait for its deadline of 30 s").unwrap_err();
    assert!(error.is_unanswered, "{error}");
}

#[tokio::test]
async fn a_cloud_that_fails_a_call_freezes_until_one_succeeds() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    script.on_instances(|_| async { Err(refusal(Code::Unavailable, "CLOUD_API_UNAVAILABLE")) });
    for name in ["a", "b", "c"] {
        host.ask(name).await.unwrap_err();
    }
    host.frozen("BatchGetInstances: said so").await;
    script.on_instances(|request| async { Ok(all_running(request)) });
    host.ask("n").await.unwrap();
    host.serving().await;
}

/// A server that ends old connections says GOAWAY and waits for the streams: the watch of its health would never end.
#[tokio::test]
async fn a_connection_that_takes_no_more_calls_is_replaced() {
    let (_dir, path) = folder();
    let script = Script::new("e1");
    let (_reporter, health) = tonic_health::server::health_reporter();
    let _running = Running::serve(&path, {
        let script = Arc::clone(&script);
        move |builder| {
            services_of(builder.max_connection_age(Duration::from_millis(200)), &script).add_service(health)
        }
    });
    let host = Host::at(&path);
    host.serving().await;
    let until = async |succeeds: bool| {
        while host.ask("n").await.is_ok() != succeeds {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, until(false)).await.expect("the connection grows too old");
    tokio::time::timeout(PATIENCE, until(true)).await.expect("another one is made");
}
