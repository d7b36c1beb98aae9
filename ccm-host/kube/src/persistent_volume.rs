//! The slim PersistentVolume: those whose disk a cloud provider can find, and of all others no more than the name.
//!
//! In: the apiserver's JSON. Out: the disk that is behind it, its labels, and which keys its node affinity uses. Volumes
//! of CSI drivers keep nothing: a cluster holds many of them, and their drivers say where they are.

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PersistentVolume as Wire, PersistentVolumeSpec};

use super::{
    cache::Slim,
    keep::{Interner, Keep, KeySet, Pairs},
};

/// Says which provisioner made the volume; upstream trusts the labels of such a volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// A PersistentVolume as its controller sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersistentVolume {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// Whether its deletion was requested.
    pub is_deleting: bool,
    /// The disk behind it; `None` if no provider of ours can know it. Without one the fields below are empty.
    pub disk: Option<Disk>,
    /// `metadata.labels`, all of them.
    pub labels: Pairs,
    /// Whether a provisioner made it.
    pub is_provisioned: bool,
    /// The keys that `spec.nodeAffinity` uses, sorted; `None` without one.
    pub affinity_keys: Option<Vec<String>>,
}

/// A disk of a cloud, as the source of a volume names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The volume plugin as Kubernetes names it.
    pub plugin: &'static str,
    pub id: String,
}

impl Disk {
    /// Kubernetes keeps five sources of clouds; for all others there is no name that a provider could look for.
    fn of(spec: &PersistentVolumeSpec) -> Option<Self> {
        let PersistentVolumeSpec {
            aws_elastic_block_store: aws,
            azure_disk: azure,
            cinder,
            gce_persistent_disk: gce,
            vsphere_volume: vsphere,
            ..
        } = spec;
        let found = [
            ("kubernetes.io/aws-ebs", aws.as_ref().map(|source| &source.volume_id)),
            ("kubernetes.io/azure-disk", azure.as_ref().map(|source| &source.disk_uri)),
            ("kubernetes.io/cinder", cinder.as_ref().map(|source| &source.volume_id)),
            ("kubernetes.io/gce-pd", gce.as_ref().map(|source| &source.pd_name)),
            ("kubernetes.io/vsphere-volume", vsphere.as_ref().map(|source| &source.volume_path)),
        ];
        found.into_iter().find_map(|(plugin, id)| Some(Self { plugin, id: id?.clone() }))
    }
}

impl Slim for PersistentVolume {
    type Key = String;
    type Kind = Wire;
    type Wire = Wire;
    const KIND: &'static str = "PersistentVolume";

    crate::cache::cluster_scoped!();

    fn project(wire: Wire, _: &Keep, interner: &Interner) -> Self {
        let Wire { metadata, spec, .. } = wire;
        let mut slim = Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            ..Self::default()
        };
        let spec = spec.unwrap_or_default();
        slim.disk = Disk::of(&spec);
        if slim.disk.is_some() {
            slim.labels = KeySet::all().pick(metadata.labels.unwrap_or_default(), interner);
            slim.is_provisioned = metadata.annotations.is_some_and(|all| all.contains_key(PROVISIONED_BY));
            slim.affinity_keys = spec.node_affinity.map(|affinity| {
                keys(affinity.required.map(|required| required.node_selector_terms).unwrap_or_default())
            });
        }
        slim
    }
}

/// The keys of node labels in any term. Fields of nodes are not labels.
fn keys(terms: Vec<NodeSelectorTerm>) -> Vec<String> {
    let expressions = terms.into_iter().flat_map(|term| term.match_expressions.unwrap_or_default());
    let mut keys: Vec<_> = expressions.map(|expression| expression.key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn projected(spec: Value) -> PersistentVolume {
        let labels = json!({"a": "1"});
        let annotations = json!({PROVISIONED_BY: "kubernetes.io/aws-ebs"});
        let metadata = json!({"name": "pv", "uid": "u", "labels": labels, "annotations": annotations});
        let wire = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        PersistentVolume::project(wire, &Keep::default(), &Interner::default())
    }

    #[test]
    fn each_source_of_a_cloud_names_its_disk() {
        let rows = [
            (json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}), "kubernetes.io/aws-ebs", "vol-1"),
            (json!({"azureDisk": {"diskName": "d", "diskURI": "/d"}}), "kubernetes.io/azure-disk", "/d"),
            (json!({"cinder": {"volumeID": "c"}}), "kubernetes.io/cinder", "c"),
            (json!({"gcePersistentDisk": {"pdName": "g"}}), "kubernetes.io/gce-pd", "g"),
            (json!({"vsphereVolume": {"volumePath": "[s] v"}}), "kubernetes.io/vsphere-volume", "[s] v"),
        ];
        for (spec, plugin, id) in rows {
            let volume = projected(spec);
            assert_eq!(volume.disk, Some(Disk { plugin, id: id.to_owned() }));
            assert_eq!((volume.labels.get("a"), volume.is_provisioned), (Some("1"), true), "{plugin}");
        }
    }

    /// PV-1.
    #[test]
    fn volumes_of_other_sources_keep_nothing() {
        for source in [
            json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}),
            json!({"hostPath": {"path": "/a"}}),
            json!({"nfs": {"server": "s", "path": "/a"}}),
            json!({"local": {"path": "/a"}}),
            json!({}),
        ] {
            let want = PersistentVolume { name: "pv".into(), uid: "u".into(), ..PersistentVolume::default() };
            assert_eq!(projected(source.clone()), want, "{source}");
        }
    }

    #[test]
    fn the_keys_of_all_terms_are_known() {
        let expression = |key: &str| json!({"key": key, "operator": "Exists"});
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
        let terms = json!([
            {"matchExpressions": [expression("b"), expression("a")]},
            {"matchExpressions": [expression("b")], "matchFields": [field]},
            {},
        ]);
        let volume = projected(json!({
            "cinder": {"volumeID": "c"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }));
        assert_eq!(volume.affinity_keys, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(projected(json!({"cinder": {"volumeID": "c"}})).affinity_keys, None);
    }
}
