//! Certificates against an in-memory apiserver; the clock is an argument.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration};
use serde_json::{Value, json};

use super::{
    WebhookSettings,
    certificate::{self, Data, LIFE, SecretStep},
    once,
};
use ccm_kube::{patch::Writer, service::ObjectKey};
use ccm_reconcile::node_server::NodeServer;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const NAME: &str = "webhooks";

fn after(days: i64) -> Timestamp {
    NOW + SignedDuration::from_hours(24 * days)
}

struct Scene {
    server: NodeServer,
    settings: WebhookSettings,
    writer: Writer,
}

impl Scene {
    /// An empty Secret, and a configuration that calls these hosts.
    fn new(hosts: &[&str]) -> Self {
        let server = NodeServer::new([]);
        let settings = WebhookSettings {
            webhooks: Vec::new(),
            webhook_secure_port: 0,
            webhook_bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
            webhook_certificate_secret: ObjectKey::new("kube-system", NAME),
            webhook_configuration: NAME.to_owned(),
        };
        let writer = server.writer();
        let scene = Self { server, settings, writer };
        scene.put_secret(&json!({}));
        scene.call(hosts);
        scene
    }

    fn put_secret(&self, data: &Value) {
        let metadata = json!({"name": NAME, "namespace": "kube-system"});
        self.server
            .put_object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}));
    }

    fn call(&self, hosts: &[&str]) {
        let webhook = |host: &&str| {
            json!({
                "name": format!("w.{host}.example"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": format!("https://{host}:1/p")},
            })
        };
        self.server.put_object(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": NAME}, "webhooks": hosts.iter().map(webhook).collect::<Vec<_>>(),
        }));
    }

    async fn once(&self, now: Timestamp) -> SecretStep {
        once(&self.settings, &self.writer, now).await.unwrap()
    }

    /// Carries out everything that is due at this moment.
    async fn settle(&self, now: Timestamp) -> Vec<SecretStep> {
        let mut steps = Vec::new();
        loop {
            match self.once(now).await {
                SecretStep::Keep => return steps,
                step => steps.push(step),
            }
            assert!(steps.len() < 9, "{steps:?}");
        }
    }

    async fn data(&self) -> Data {
        let key = &self.settings.webhook_certificate_secret;
        self.writer.get_secret(key).await.unwrap().unwrap().data
    }

    fn announced(&self) -> Vec<Vec<u8>> {
        let found =
            self.server.api().world().object::<MutatingWebhookConfiguration>("", NAME).unwrap().value();
        let bundle = |webhook: &Value| {
            let bundle: ByteString =
                serde_json::from_value(webhook["clientConfig"]["caBundle"].clone()).unwrap();
            bundle.0
        };
        found["webhooks"].as_array().unwrap().iter().map(bundle).collect()
    }
}

fn authorities(data: &Data) -> usize {
    String::from_utf8_lossy(certificate::authorities(data)).matches("BEGIN CERTIFICATE").count()
}

/// Whether a client with these authorities accepts what is served, for this host, at this time.
fn is_accepted(data: &Data, bundle: &[u8], host: &str, now: Timestamp) -> bool {
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
    let (pair, _) = certificate::serving(data).unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
    let name = ServerName::try_from(host.to_owned()).unwrap();
    rustls::client::danger::ServerCertVerifier::verify_server_cert(
        &*verifier,
        &pair.cert[0],
        &[],
        &name,
        &[],
        at,
    )
    .is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_made_announced_and_kept() {
    let scene = Scene::new(&["webhooks.example", "127.0.0.1", "[::1]"]);
    assert_eq!(scene.settle(NOW).await, [SecretStep::Replace, SecretStep::Announce]);
    let data = scene.data().await;
    let bundles = scene.announced();
    assert_eq!((bundles.len(), authorities(&data)), (3, 1));
    for host in ["webhooks.example", "127.0.0.1", "::1"] {
        assert!(bundles.iter().all(|bundle| is_accepted(&data, bundle, host, NOW)), "{host}");
    }
    assert!(!is_accepted(&data, &bundles[0], "other.example", NOW));
    assert_eq!(scene.settle(after(59)).await, []);
    assert_eq!(scene.data().await, data);
    let keys: Vec<_> = data.keys().map(String::as_str).collect();
    assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"], "no key of an authority");
}

#[tokio::test(start_paused = true)]
async fn the_apiserver_trusts_what_is_served_at_every_moment_of_a_rotation() {
    let scene = Scene::new(&["a.example"]);
    scene.settle(NOW).await;
    let first = scene.data().await;
    for turn in 1..4 {
        let start = after(61 * turn);
        let mut at = start;
        let mut steps = Vec::new();
        for _ in 0..10 {
            let before = scene.data().await;
            let step = scene.once(at).await;
            let (data, bundle) = (scene.data().await, scene.announced().remove(0));
            // A replica may serve what was there until a moment ago.
            for served in [&before, &data] {
                assert!(is_accepted(served, &bundle, "a.example", at), "turn {turn} {step:?}");
            }
            assert!(authorities(&data) <= 3, "they do not pile up");
            steps.push(step);
            at += SignedDuration::from_secs(30);
        }
        steps.retain(|step| *step != SecretStep::Keep);
        let want = [SecretStep::Prepare, SecretStep::Announce, SecretStep::Promote];
        assert_eq!(steps[..3], want, "turn {turn}");
        assert!(
            steps[3..].iter().all(|step| *step == SecretStep::Announce),
            "an authority that expired: {steps:?}"
        );
    }
    assert_ne!(scene.data().await["tls.crt"], first["tls.crt"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_of_no_use_is_replaced_at_once() {
    let scene = Scene::new(&["a.example"]);
    scene.settle(NOW).await;
    let good = scene.data().await;
    let again = [SecretStep::Replace, SecretStep::Announce];
    let late = NOW + SignedDuration::try_from(LIFE).unwrap();
    assert_eq!(scene.settle(late).await, again, "expired");
    assert_eq!(authorities(&scene.data().await), 1);

    scene.call(&["b.example"]);
    assert_eq!(scene.settle(late).await, again, "another host");
    assert!(is_accepted(&scene.data().await, &scene.announced()[0], "b.example", late));

    let now = scene.data().await;
    let mixed = |key: &str| {
        let mut data = now.clone();
        data.insert(key.to_owned(), good[key].clone());
        data
    };
    let garbage = |key: &str| {
        let mut data = now.clone();
        data.insert(key.to_owned(), b"-----BEGIN CERTIFICATE-----\nx".to_vec());
        data
    };
    let damaged = [
        mixed("tls.key"),
        mixed("ca.crt"),
        garbage("tls.crt"),
        garbage("tls.key"),
        garbage("ca.crt"),
        BTreeMap::new(),
    ];
    for data in damaged {
        let data: BTreeMap<_, _> = data.into_iter().map(|(key, value)| (key, ByteString(value))).collect();
        scene.put_secret(&json!(data));
        assert_eq!(scene.settle(late).await, again, "{:?}", data.keys());
    }
    scene.call(&["b.example"]);
    assert_eq!(scene.settle(late).await, [SecretStep::Announce], "somebody applied the configuration again");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named() {
    let scene = Scene::new(&["a.example"]);
    scene.server.api().world().remove::<k8s_openapi::api::core::v1::Secret>("kube-system", NAME).unwrap();
    let failure = || async { format!("{:#}", once(&scene.settings, &scene.writer, NOW).await.unwrap_err()) };
    assert_eq!(
        failure().await,
        "Secret kube-system/webhooks does not exist: create it empty, or omit --webhooks"
    );
    scene.put_secret(&json!({}));
    scene.call(&[]);
    assert_eq!(
        failure().await,
        "MutatingWebhookConfiguration webhooks names no host: give each of its webhooks a service or a url"
    );
    assert_eq!(scene.data().await, Data::new(), "nothing is made for nobody");
    scene.server.api().world().remove::<MutatingWebhookConfiguration>("", NAME).unwrap();
    assert_eq!(
        failure().await,
        "MutatingWebhookConfiguration webhooks does not exist: create it, or omit --webhooks"
    );
}
