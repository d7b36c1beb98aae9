//! The whole controller against an in-memory apiserver and provider, on a paused clock.

use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{
    cloud::{
        ErrorReason, Provider,
        fake::{Call, FakeProvider, error, method},
    },
    controllers::node_server::NodeServer,
    kube::{
        fixtures::{Recorded, recorder},
        metrics::QueueMetrics,
    },
};

const FIRST: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFsqWU4wHkw8EpgHE22FO+8zVScAca1APXoeDxK/VjGe";
const SECOND: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBCTXfUW91eBuJDQ0y+ZAvrHK+g5PfBPPuEcHo+kUkWMH/t3OiHGI0BWgFZ0WBhAkoiSU3jP++UzCZfIcV5359n8=";
const MOMENT: Duration = Duration::from_millis(100);

struct Scene {
    server: NodeServer,
    fake: Arc<FakeProvider>,
    events: Recorded,
    cancel: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Scene {
    async fn start(value: &str, prepare: impl FnOnce(&FakeProvider)) -> Self {
        let (server, fake) = (NodeServer::new([]), FakeProvider::new("fake"));
        fake.change_info(|info| info.ssh_keys = true);
        prepare(&fake);
        put(&server, value);
        let (recorder, events) = recorder();
        let controller = Controller::new(Context {
            secret: ObjectKey::new("kube-system", "ssh-keys"),
            writer: server.writer(),
            providers: Providers::new(vec![Arc::clone(&fake) as Arc<dyn Provider>]),
            recorder,
            metrics: SshKeyMetrics::default(),
            queue: WorkQueue::new("ssh_keys", BACKOFF, &QueueMetrics::default()),
        });
        let cancel = CancellationToken::new();
        let running = tokio::spawn(controller.run(cancel.clone()));
        sleep(MOMENT).await;
        Self { server, fake, events, cancel, running }
    }

    fn spread(&self) -> Vec<String> {
        let line = |call| match call {
            Call::AddSshKey { user, public_key } => format!("{user} {public_key}"),
            other => panic!("{other:?}"),
        };
        self.fake.take_calls().into_iter().map(line).collect()
    }

    fn reasons(&self) -> Vec<String> {
        self.events.take().into_iter().map(|(_, reason, _)| reason.to_owned()).collect()
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.running.await.unwrap().unwrap();
    }
}

fn put(server: &NodeServer, value: &str) {
    server.put_object(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "ssh-keys", "namespace": "kube-system"},
        "data": {"core": base64(value)},
    }));
}

/// As the apiserver stores it.
fn base64(text: &str) -> serde_json::Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn keys_are_spread_again_and_again_and_told_once() {
    let scene = Scene::start(FIRST, |_| {}).await;
    assert_eq!(scene.spread(), [format!("core {FIRST}")]);
    assert_eq!(scene.reasons(), ["SshKeySpread"]);
    sleep(Duration::from_secs(299)).await;
    assert_eq!(scene.spread(), [""; 0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.spread(), [format!("core {FIRST}")], "for instances made since");
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rotated_key_is_spread_and_the_old_one_named() {
    let scene = Scene::start(FIRST, |_| {}).await;
    scene.spread();
    scene.reasons();
    put(&scene.server, &format!("{SECOND}\nssh-rsa broken"));
    sleep(observe::POLL).await;
    assert_eq!(scene.spread(), [format!("core {SECOND}")]);
    assert_eq!(scene.reasons(), ["SshKeyRefused", "SshKeyNotRevoked", "SshKeySpread"]);
    sleep(Duration::from_secs(400)).await;
    assert_eq!(scene.spread(), [format!("core {SECOND}")], "the old one is not called for any more");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_and_retried() {
    let scene = Scene::start(FIRST, |fake| {
        fake.fail_always(
            method::ADD_SSH_KEY,
            Some(error(method::ADD_SSH_KEY, Some(ErrorReason::CloudApiUnavailable))),
        );
    })
    .await;
    assert_eq!(scene.reasons(), ["SshKeyNotSpread"]);
    scene.fake.fail_always(method::ADD_SSH_KEY, None);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.reasons(), ["SshKeySpread"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_spreads_no_keys_is_not_asked() {
    let scene = Scene::start(FIRST, |fake| fake.change_info(|info| info.ssh_keys = false)).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.spread(), [""; 0]);
    scene.stop().await;
}
