//! Labels of volumes.

use cloudprovider_proto::v1alpha1::{
    BatchGetVolumeLabelsRequest, ErrorReason, VolumeQuery, VolumeResult, VolumeState,
};

use crate::{
    case::{Case, Outcome, Profile::Volumes, Stop},
    trial::{Trial, expect, good, single},
};

const VOLUME: &[&str] = &["create-volume", "delete-volume"];

pub(super) const CASES: &[Case] = &[
    Case::new("VOL-01", Volumes, "a volume that is there has topology labels", &["batch-keys"], &present)
        .words(&["| the volume exists | OK, item PRESENT |"])
        .hooks(VOLUME),
    Case::new("VOL-02", Volumes, "a volume that is gone is ABSENT with VOLUME_NOT_FOUND", &[], &absent)
        .words(&["| the volume does not exist | OK, item ABSENT | VOLUME_NOT_FOUND"])
        .hooks(VOLUME),
    Case::new("VOL-03", Volumes, "a kind of volume that nobody knows is NOT_OWNED", &[], &unknown_kind)
        .words(&["| the plugin is not supported | OK, item NOT_OWNED | UNSUPPORTED_FEATURE"]),
    Case::new("VOL-04", Volumes, "one bad volume costs the others nothing", &["batch-keys"], &mixed)
        .words(&["one bad item never fails the others."])
        .hooks(VOLUME),
];

pub(super) fn query(key: &str, plugin: &str, volume_id: &str) -> VolumeQuery {
    VolumeQuery {
        key: key.to_owned(),
        name: format!("pv-{key}"),
        plugin: plugin.to_owned(),
        volume_id: volume_id.to_owned(),
        ..VolumeQuery::default()
    }
}

async fn ask(t: &Trial, queries: Vec<VolumeQuery>) -> Result<Vec<VolumeResult>, Stop> {
    let request = BatchGetVolumeLabelsRequest { cluster: t.cluster(), queries };
    Ok(good("BatchGetVolumeLabels", t.volumes().batch_get_volume_labels(t.ask(request)).await)?.results)
}

async fn ask_one(t: &Trial, plugin: &str, id: &str) -> Result<VolumeResult, Stop> {
    single("one result", ask(t, vec![query("k0", plugin, id)]).await?)
}

async fn present(t: &Trial) -> Outcome {
    let (plugin, id) = t.volume().await?;
    let result = ask_one(t, &plugin, &id).await?;
    let zones_sorted = result.labels.values().all(|value| {
        let zones: Vec<_> = value.split("__").collect();
        zones.is_sorted() && zones.iter().all(|zone| !zone.is_empty())
    });
    let labelled = result.state() == VolumeState::Present && !result.labels.is_empty() && zones_sorted;
    expect(labelled, "PRESENT with topology labels, several zones sorted and joined by \"__\"", result)
}

async fn absent(t: &Trial) -> Outcome {
    let (plugin, id) = t.volume().await?;
    let told = crate::scenario::Variables::new().with("NAME", "").with("VOLUME_ID", &id);
    t.hook("delete-volume", &told).await?;
    t.eventually("ABSENT with VOLUME_NOT_FOUND", async || {
        let result = ask_one(t, &plugin, &id).await?;
        let told = result.error.as_ref().is_some_and(|error| error.reason() == ErrorReason::VolumeNotFound);
        Ok(if told && result.state() == VolumeState::Absent { Ok(()) } else { Err(format!("{result:?}")) })
    })
    .await
}

async fn unknown_kind(t: &Trial) -> Outcome {
    let result = ask_one(t, "example.com/no-such-plugin", "volume-1").await?;
    expect(result.state() == VolumeState::NotOwned, "NOT_OWNED", result)
}

async fn mixed(t: &Trial) -> Outcome {
    let (plugin, id) = t.volume().await?;
    let queries = vec![
        query("bad", "example.com/no-such-plugin", "x"),
        query("good", &plugin, &id),
        query("gone", &plugin, "x"),
    ];
    let results = ask(t, queries).await?;
    let state = |key: &str| results.iter().find(|result| result.key == key).map(VolumeResult::state);
    let fits = results.len() == 3 && state("good") == Some(VolumeState::Present);
    expect(fits, "three results, the known volume PRESENT", results)
}
