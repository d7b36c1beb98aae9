//! Labels of a PersistentVolume, and its node affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::VolumeNodeAffinity;
use serde_json::{Value, json};

use super::{
    Patch, Target,
    json::{Operations, escape},
};
use crate::kube::persistent_volume::PersistentVolume;

/// Sets labels, and the node affinity of a volume that has none: the apiserver never lets one change. Fails with a
/// conflict if anybody wrote one of these meanwhile.
#[must_use]
pub fn volume_topology(
    before: &PersistentVolume,
    labels: &BTreeMap<String, String>,
    affinity: Option<&VolumeNodeAffinity>,
) -> Option<Patch> {
    let mut operations = Operations::on(&before.uid);
    let wanted = labels.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    operations.set_pairs("/metadata/labels", &before.labels, wanted);
    if let (Some(affinity), None) = (affinity, &before.affinity_keys) {
        operations.set("/spec/nodeAffinity", Value::Null, json!(affinity));
    }
    operations.finish(Target::Main)
}

/// The same as a patch of a volume that is being made, which nobody else can have changed; here, an affinity is replaced.
#[must_use]
pub fn volume_admission(
    before: &PersistentVolume,
    labels: &BTreeMap<String, String>,
    affinity: Option<&VolumeNodeAffinity>,
) -> Option<Value> {
    let mut operations = Vec::new();
    let mut add =
        |path: String, value: Value| operations.push(json!({"op": "add", "path": path, "value": value}));
    if before.labels.total() > 0 {
        labels.iter().for_each(|(key, value)| add(format!("/metadata/labels/{}", escape(key)), json!(value)));
    } else if !labels.is_empty() {
        add("/metadata/labels".to_owned(), json!(labels));
    }
    if let Some(affinity) = affinity {
        add("/spec/nodeAffinity".to_owned(), json!(affinity));
    }
    (!operations.is_empty()).then_some(Value::Array(operations))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::patch::Body;

    #[test]
    fn an_affinity_is_only_ever_added() {
        let before = PersistentVolume { uid: "u".into(), ..PersistentVolume::default() };
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let affinity = VolumeNodeAffinity::default();
        let body = |before: &PersistentVolume| {
            let patch = volume_topology(before, &labels, Some(&affinity)).unwrap();
            assert_eq!(patch.target, Target::Main);
            let Body::Json(body) = patch.body else { panic!("{patch:?}") };
            body
        };
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let labelling = [
            json!({"op": "test", "path": "/metadata/labels", "value": null}),
            json!({"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}),
        ];
        let [none, add] = labelling;
        let binding = [
            json!({"op": "test", "path": "/spec/nodeAffinity", "value": null}),
            json!({"op": "add", "path": "/spec/nodeAffinity", "value": {}}),
        ];
        let [unset, set] = binding;
        assert_eq!(body(&before), json!([uid, none, add, unset, set]));
        let bound = PersistentVolume { affinity_keys: Some(Vec::new()), ..before };
        assert_eq!(body(&bound), json!([uid, none, add]));
        let labelled = PersistentVolume { labels: [("a", "1")].into_iter().collect(), ..bound };
        assert_eq!(volume_topology(&labelled, &labels, Some(&affinity)), None);
    }
}
