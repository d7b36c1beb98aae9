//! Start, failure and end, on a paused clock and without signals.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::manager::{
    flags::{self, Request},
    health::Probe,
};
use ccm_nodes::{cloud_node, node_route};

fn process() -> (Process, Failures) {
    match flags::parse(["--provider=mock=/run/mock.sock", "--secure-port=0"]) {
        Ok(Request::Run(settings)) => Process::new(*settings),
        other => panic!("{other:?}"),
    }
}

/// Signals by hand; once the sender is gone, none arrives.
async fn next(signals: &mut mpsc::Receiver<&'static str>) -> &'static str {
    match signals.recv().await {
        Some(name) => name,
        None => std::future::pending().await,
    }
}

fn no_signals() -> mpsc::Receiver<&'static str> {
    mpsc::channel(1).1
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_the_start() {
    let (process, failures) = process();
    let ready = || process.checks.ask(Probe::Ready, "startup").unwrap();
    let (send, mut signals) = mpsc::channel(1);
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    let start = async |process: &Process| {
        process.waiting_for("kube client");
        wait.await.unwrap();
        Ok(())
    };
    let observer = async {
        tokio::task::yield_now().await;
        assert_eq!(ready(), Err("waiting for kube client".to_owned()));
        go.send(()).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(ready(), Ok(()));
        assert_eq!(process.checks.ask(Probe::Live, "ping"), Some(Ok(())));
        send.send("SIGTERM").await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = supervise(&process, failures, start, async || next(&mut signals).await) => result.unwrap(),
        () = observer => {}
    }
    assert_eq!(ready(), Err("shutting down".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn support_outlives_work() {
    let (process, failures) = process();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (send, mut signals) = mpsc::channel(1);
    send.send("SIGTERM").await.unwrap();
    let note = |what: &'static str, drain: Duration| {
        let steps = Arc::clone(&steps);
        move |stop: tokio_util::sync::CancellationToken| async move {
            stop.cancelled().await;
            tokio::time::sleep(drain).await;
            steps.lock().push(what);
            Ok(())
        }
    };
    process.spawn_support("events", note("events", Duration::ZERO));
    process.spawn_controller(
        &cloud_node::REGISTRATION,
        std::future::ready(()),
        note("controller", Duration::from_secs(20)),
    );
    process.spawn_controller(
        &node_route::REGISTRATION,
        std::future::ready(()),
        note("feeder", Duration::from_secs(1)),
    );
    let start = async |_: &Process| std::future::pending().await;
    let began = Instant::now();
    supervise(&process, failures, start, async || next(&mut signals).await).await.unwrap();
    assert_eq!(*steps.lock(), ["feeder", "controller", "events"]);
    assert_eq!(began.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn drain_is_bounded() {
    let (process, failures) = process();
    let (send, mut signals) = mpsc::channel(1);
    send.send("SIGTERM").await.unwrap();
    process.spawn_controller(&cloud_node::REGISTRATION, std::future::ready(()), |_| std::future::pending());
    process.spawn_support("events", |_| std::future::pending());
    let began = Instant::now();
    let start = async |_: &Process| std::future::pending().await;
    supervise(&process, failures, start, async || next(&mut signals).await).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(28));
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_at_once() {
    let (process, failures) = process();
    let (send, mut signals) = mpsc::channel(2);
    send.send("SIGTERM").await.unwrap();
    send.send("SIGINT").await.unwrap();
    process.spawn_controller(&cloud_node::REGISTRATION, std::future::ready(()), |_| std::future::pending());
    let began = Instant::now();
    let start = async |_: &Process| std::future::pending().await;
    let error = supervise(&process, failures, start, async || next(&mut signals).await).await.unwrap_err();
    assert_eq!(error.to_string(), "SIGINT while draining: ending at once");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_the_result() {
    let (process, failures) = process();
    let mut signals = no_signals();
    let start = async |_: &Process| Err(anyhow!("no such kubeconfig"));
    let error = supervise(&process, failures, start, async || next(&mut signals).await).await.unwrap_err();
    assert_eq!(error.to_string(), "no such kubeconfig");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_ends_the_process() {
    type Body = fn() -> futures::future::BoxFuture<'static, anyhow::Result<()>>;
    let rows: [(Body, &str); 3] = [
        (|| Box::pin(async { Ok(()) }), "cloud-node-controller ended unexpectedly"),
        (|| Box::pin(async { Err(anyhow!("lost")) }), "cloud-node-controller failed: lost"),
        (|| Box::pin(async { panic!("on purpose") }), "cloud-node-controller panicked"),
    ];
    for (body, message) in rows {
        let (process, failures) = process();
        let mut signals = no_signals();
        let start = async |process: &Process| {
            process.spawn_controller(&cloud_node::REGISTRATION, std::future::ready(()), |_| body());
            Ok(())
        };
        let error =
            supervise(&process, failures, start, async || next(&mut signals).await).await.unwrap_err();
        assert_eq!(format!("{error:#}"), message);
    }
}

/// manager.md 5.1 and 2.4: only started controllers have a sample and a check.
#[tokio::test(start_paused = true)]
async fn controllers_show_while_they_run() {
    let (process, failures) = process();
    let sample = |value: u8| {
        let line = format!(
            "running_managed_controllers{{name=\"cloud-node\",manager=\"cloud-controller-manager\"}} {value}\n"
        );
        process.metrics.encode().unwrap().contains(&line)
    };
    let (send, mut signals) = mpsc::channel(1);
    process.checks.add(Probe::Live, "service-lb-controller", || Err("stuck".to_owned()));
    let idle = |stop: tokio_util::sync::CancellationToken| async move {
        stop.cancelled().await;
        Ok(())
    };
    process.spawn_controller(&cloud_node::REGISTRATION, std::future::ready(()), idle);
    process.spawn_controller(&ccm_services::REGISTRATION, std::future::ready(()), idle);
    let (serve, served) = tokio::sync::oneshot::channel::<()>();
    let due = async move { served.await.unwrap() };
    process.spawn_controller(&node_route::REGISTRATION, due, idle);
    tokio::task::yield_now().await;
    assert!(sample(1));
    let routes = || process.checks.ask(Probe::Live, "node-route-controller");
    assert_eq!(routes(), None, "not due yet");
    serve.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(routes(), Some(Ok(())));
    assert_eq!(process.checks.ask(Probe::Live, "cloud-node-controller"), Some(Ok(())));
    assert_eq!(process.checks.ask(Probe::Live, "service-lb-controller"), Some(Err("stuck".to_owned())));
    assert_eq!(process.checks.ask(Probe::Live, "cloud-node-lifecycle-controller"), None);
    send.send("SIGTERM").await.unwrap();
    supervise(&process, failures, async |_| Ok(()), async || next(&mut signals).await).await.unwrap();
    assert!(sample(0));
}
