//! The whole controller against an in-memory apiserver and provider, on a paused clock.

mod webhook;

use k8s_openapi::api::core::v1::PersistentVolume as Wire;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    decide::{REGION, ZONE},
    *,
};
use ccm_cloud::{
    ErrorReason, ProviderStatus, VolumeState,
    fake::{FakeProvider, error, method, volume},
};
use ccm_reconcile::{
    node_server::NodeServer,
    stage::{self, Stage},
};

#[derive(derive_more::Deref)]
struct Scene {
    #[deref]
    stage: Stage,
    fakes: Vec<Arc<FakeProvider>>,
}

impl Scene {
    /// One provider, which has `disk` in zone a of region r.
    async fn start() -> Self {
        Self::with(&["fake"]).await
    }

    async fn with(names: &[&str]) -> Self {
        let fakes: Vec<_> = names.iter().map(|name| FakeProvider::new(name)).collect();
        for fake in &fakes {
            fake.change_info(|info| info.volumes = true);
        }
        fakes[0].set_volume("disk", volume(VolumeState::Present, &[(ZONE, "a"), (REGION, "r")]));
        let stage = Stage::set(&REGISTRATION, NodeServer::new([]), &fakes, stage::settings()).await.run();
        stage.rest().await;
        Self { stage, fakes }
    }

    /// Somebody makes a volume, and then a moment for the controller.
    async fn made(&self, name: &str, labels: Value, source: Value) {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
        spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        self.server.put_object(json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": labels}, "spec": spec,
        }));
        self.rest().await;
    }

    fn part(&self, name: &str, pointer: &str) -> Value {
        let volume = self.server.api().world().object::<Wire>("", name).unwrap().value();
        volume.pointer(pointer).cloned().unwrap_or_default()
    }
}

fn disk(id: &str) -> Value {
    json!({"awsElasticBlockStore": {"volumeID": id}})
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_labelled_and_bound_to_its_zone_once() {
    let scene = Scene::start().await;
    scene.made("pv", json!({"tier": "fast"}), disk("disk")).await;
    assert_eq!(scene.part("pv", "/metadata/labels"), json!({"tier": "fast", ZONE: "a", REGION: "r"}));
    let expressions = json!([
        {"key": REGION, "operator": "In", "values": ["r"]},
        {"key": ZONE, "operator": "In", "values": ["a"]},
    ]);
    assert_eq!(
        scene.part("pv", "/spec/nodeAffinity/required/nodeSelectorTerms"),
        json!([{"matchExpressions": expressions}])
    );
    assert_eq!(scene.reasons(), ["VolumeLabelled"]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(scene.fake.calls().len(), 1, "what is labelled is left alone");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_of_csi_drivers_are_nobodys_business() {
    let scene = Scene::start().await;
    scene.made("pv", json!({}), json!({"csi": {"driver": "d", "volumeHandle": "disk"}})).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!((scene.fake.calls().len(), scene.reasons().len()), (0, 0));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_comes_later_is_waited_for() {
    let scene = Scene::start().await;
    scene.made("pv", json!({}), disk("late")).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(scene.reasons(), ["VolumeNotLabelled"], "once");
    scene.fake.set_volume("late", volume(VolumeState::Present, &[(ZONE, "b__a")]));
    sleep(Controller::BACKOFF.max).await;
    assert_eq!(scene.part("pv", "/metadata/labels"), json!({ ZONE: "a__b" }));
    assert_eq!(scene.reasons(), ["VolumeLabelled"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_user_says_stays() {
    let scene = Scene::start().await;
    scene.made("pv", json!({ZONE: "mine"}), disk("disk")).await;
    assert_eq!(scene.part("pv", "/metadata/labels"), json!({ZONE: "mine", REGION: "r"}));
    assert_eq!(scene.reasons(), ["VolumeLabelled", "VolumeLabelsDiffer"]);

    let term = json!([{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["7"]}]}]);
    let mut bound = disk("disk");
    bound["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": term}});
    scene.made("bound", json!({}), bound).await;
    assert_eq!(scene.part("bound", "/metadata/labels"), json!({ZONE: "a", REGION: "r"}));
    assert_eq!(scene.part("bound", "/spec/nodeAffinity/required/nodeSelectorTerms"), term);
    assert_eq!(scene.reasons(), ["VolumeLabelled"]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(scene.reasons(), [""; 0]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_cloud_is_told_and_waited_for() {
    let scene = Scene::start().await;
    let unavailable = error(method::VOLUME_LABELS, Some(ErrorReason::CloudApiUnavailable));
    scene.fake.fail_always(method::VOLUME_LABELS, Some(unavailable));
    scene.made("pv", json!({}), disk("disk")).await;
    assert_eq!(scene.reasons(), ["VolumeNotLabelled"]);
    scene.fake.fail_always(method::VOLUME_LABELS, None);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.reasons(), ["VolumeLabelled"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_provider_is_asked_and_one_that_connects_is_asked_about_all() {
    let scene = Scene::with(&["first", "second"]).await;
    scene.fakes[1].change_info(|info| info.volumes = false);
    scene.fake.set_volume("other", volume(VolumeState::NotOwned, &[]));
    scene.made("pv", json!({}), disk("other")).await;
    assert_eq!(scene.reasons(), [""; 0], "another cloud's");
    assert_eq!(scene.fakes[1].calls().len(), 0, "it knows no volumes");

    scene.fakes[1].set_volume("other", volume(VolumeState::Present, &[(ZONE, "z")]));
    scene.fakes[1].change_info(|info| info.volumes = true);
    scene.fakes[1].request_sweep();
    scene.rest().await;
    assert_eq!(scene.part("pv", "/metadata/labels"), json!({ ZONE: "z" }));
    assert_eq!(scene.reasons(), ["VolumeLabelled"]);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_somebody_changes_meanwhile_is_looked_at_again() {
    let scene = Scene::start().await;
    scene.fake.set_latency(method::VOLUME_LABELS, Duration::from_secs(2));
    scene.made("pv", json!({}), disk("disk")).await;
    scene.made("pv", json!({ZONE: "mine"}), disk("disk")).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.part("pv", "/metadata/labels"), json!({ZONE: "mine", REGION: "r"}));
    scene.stop().await;
}

/// N4.
#[tokio::test(start_paused = true)]
async fn sweeps_that_are_wished_all_the_time_become_rare() {
    let scene = Scene::start().await;
    scene.fake.set_volume("plain", volume(VolumeState::NotOwned, &[]));
    scene.made("pv", json!({}), disk("plain")).await;
    scene.fake.take_calls();
    for _ in 0..360 {
        scene.fake.request_sweep();
        sleep(Duration::from_secs(5)).await;
    }
    let asked = scene.fake.take_calls().len();
    assert!(asked <= 15, "asked {asked} times in half an hour");
    scene.stop().await;
}

/// Another provider may know the disk, too: nobody is asked in vain until it has introduced itself.
#[tokio::test(start_paused = true)]
async fn nobody_is_asked_before_all_providers_are_known() {
    let scene = Scene::with(&["fake", "late"]).await;
    let late = &scene.fakes[1];
    late.set_status(ProviderStatus::Disconnected("no socket".to_owned()));
    late.forget_info();
    scene.made("pv", json!({}), disk("disk")).await;
    sleep(Duration::from_secs(60)).await;
    assert!(scene.fakes[0].take_calls().is_empty());
    late.change_info(|info| info.volumes = false);
    late.set_status(ProviderStatus::Serving);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(scene.part("pv", "/metadata/labels"), json!({ZONE: "a", REGION: "r"}));
}
