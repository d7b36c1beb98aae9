//! The whole controller against an in-memory apiserver and provider, on a paused clock.

use serde_json::json;
use tokio::time::sleep;

use super::*;
use ccm_cloud::{
    ErrorReason,
    fake::{Call, FakeProvider, error, method},
};
use ccm_reconcile::{
    node_server::NodeServer,
    stage::{self, Stage},
};

const FIRST: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFsqWU4wHkw8EpgHE22FO+8zVScAca1APXoeDxK/VjGe";
const SECOND: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBCTXfUW91eBuJDQ0y+ZAvrHK+g5PfBPPuEcHo+kUkWMH/t3OiHGI0BWgFZ0WBhAkoiSU3jP++UzCZfIcV5359n8=";

#[derive(derive_more::Deref)]
struct Scene(Stage);

impl Scene {
    async fn start(value: &str, prepare: impl FnOnce(&FakeProvider)) -> Self {
        let fake = FakeProvider::new("fake");
        fake.change_info(|info| info.ssh_keys = true);
        prepare(&fake);
        Self::start_with(value, &[fake]).await
    }

    async fn start_with(value: &str, providers: &[Arc<FakeProvider>]) -> Self {
        let server = NodeServer::new([]);
        put(&server, value);
        let mut settings = stage::settings();
        settings.ssh_keys.ssh_keys_secret = Some(ObjectKey::new("kube-system", "ssh-keys"));
        let scene = Self(Stage::set(&REGISTRATION, server, providers, settings).await.run());
        scene.rest().await;
        scene
    }

    fn spread(&self) -> Vec<String> {
        let line = |call| match call {
            Call::AddSshKey { user, public_key } => format!("{user} {public_key}"),
            other => panic!("{other:?}"),
        };
        self.fake.take_calls().into_iter().map(line).collect()
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
    let reports = scene.parts.views.all(|one| one.reports());
    assert!(reports.is_empty(), "nothing is wrong with it: {reports:?}");
    scene.fake.change_info(|info| info.ssh_keys = true);
    sleep(observe::POLL).await;
    assert_eq!(scene.spread(), [format!("core {FIRST}")], "it does from now on");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_gone_spreads_nothing_any_more() {
    let scene = Scene::start(FIRST, |_| {}).await;
    scene.spread();
    scene.reasons();
    scene
        .server
        .api()
        .world()
        .remove::<k8s_openapi::api::core::v1::Secret>("kube-system", "ssh-keys")
        .unwrap();
    sleep(Duration::from_secs(400)).await;
    assert_eq!(scene.spread(), [""; 0]);
    assert_eq!(scene.reasons(), ["SshKeyNotRevoked"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_leaves_while_it_is_spread_is_not_revoked() {
    let scene =
        Scene::start(FIRST, |fake| fake.set_latency(method::ADD_SSH_KEY, Duration::from_secs(40))).await;
    put(&scene.server, SECOND);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(scene.reasons(), ["SshKeyNotRevoked", "SshKeySpread"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_success_ends_a_failure() {
    let scene = Scene::start(FIRST, |fake| {
        fake.fail_next(
            method::ADD_SSH_KEY,
            error(method::ADD_SSH_KEY, Some(ErrorReason::CloudApiUnavailable)),
        );
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.reasons(), ["SshKeyNotSpread", "SshKeySpread"]);
    scene.fake.fail_next(method::ADD_SSH_KEY, error(method::ADD_SSH_KEY, Some(ErrorReason::ShuttingDown)));
    sleep(Duration::from_secs(400)).await;
    assert_eq!(scene.reasons(), [""; 0], "the provider is only replaced");
    scene.stop().await;
}

/// However many keys wait for a provider that hangs, another one's are still spread.
#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_leaves_the_others_their_places() {
    let providers = ["stuck", "other"].map(FakeProvider::new);
    providers.iter().for_each(|fake| fake.change_info(|info| info.ssh_keys = true));
    providers[0].set_latency(method::ADD_SSH_KEY, Duration::from_secs(3600));
    let key = |index| FIRST.replace("AIFsq", &format!("AIFs{}", char::from(b'a' + index)));
    let keys: Vec<String> = (0..16).map(key).collect();
    let scene = Scene::start_with(&keys.join("\n"), &providers).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(providers[1].take_calls().len(), keys.len());
    scene.stop().await;
}
