//! The kinds of objects that are served, and what the apiserver does differently for each.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, certificates::v1 as certificates,
    coordination::v1 as coordination, core::v1 as core,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::rules::Special;

/// One kind of object. The usual ones are built in; add others with [`crate::Options::kinds`].
#[derive(Debug, Clone)]
pub struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) name: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) status: bool,
    /// Has an approval subresource, which writes the status.
    pub(crate) approval: bool,
    pub(crate) created_by_update: bool,
    pub(crate) updates_need_version: bool,
    pub(crate) answers_deletion_with_object: bool,
    pub(crate) ttl: Option<Duration>,
    pub(crate) special: Special,
    pub(crate) decode: fn(&Value) -> Result<Value, serde_json::Error>,
    /// Lists that a strategic merge patch merges: the path, and the key of their items (none for plain values).
    pub(crate) merged_lists: &'static [(&'static str, Option<&'static str>)],
    /// The fields that a field selector may name besides the metadata.
    pub(crate) selectable: &'static [&'static str],
}

impl Kind {
    /// A kind without rules of its own, whose fields are unknown.
    pub fn plain(
        group: &'static str,
        version: &'static str,
        name: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group,
            version,
            name,
            plural,
            namespaced,
            status: false,
            approval: false,
            created_by_update: false,
            updates_need_version: false,
            answers_deletion_with_object: false,
            ttl: None,
            special: Special::None,
            decode: |value| Ok(value.clone()),
            merged_lists: &[],
            selectable: &[],
        }
    }

    /// Adds a status subresource.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    /// The kind's name, for example `Node`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The name in paths, for example `nodes`.
    pub fn plural(&self) -> &'static str {
        self.plural
    }

    /// `v1`, or with a group `coordination.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    fn typed<T: DeserializeOwned + Serialize>(mut self) -> Self {
        self.decode = |value| serde_json::to_value(T::deserialize(value)?);
        self
    }
}

/// The kinds that are always served.
pub(crate) fn builtin() -> Vec<Arc<Kind>> {
    let plain = |name, plural, namespaced| Kind::plain("", "v1", name, plural, namespaced);
    let kinds = [
        Kind {
            special: Special::Node,
            merged_lists: &[
                ("status.conditions", Some("type")),
                ("status.addresses", Some("type")),
                ("spec.podCIDRs", None),
            ],
            selectable: &["spec.unschedulable"],
            ..plain("Node", "nodes", false).with_status().typed::<core::Node>()
        },
        Kind {
            special: Special::Service,
            created_by_update: true,
            answers_deletion_with_object: true,
            merged_lists: &[("status.conditions", Some("type")), ("spec.ports", Some("port"))],
            selectable: &["spec.clusterIP", "spec.type"],
            ..plain("Service", "services", true).with_status().typed::<core::Service>()
        },
        Kind {
            special: Special::Namespace,
            merged_lists: &[("status.conditions", Some("type"))],
            selectable: &["status.phase"],
            ..plain("Namespace", "namespaces", false).with_status().typed::<core::Namespace>()
        },
        Kind {
            special: Special::Event,
            created_by_update: true,
            ttl: Some(Duration::from_secs(3600)),
            selectable: &[
                "involvedObject.kind",
                "involvedObject.name",
                "involvedObject.namespace",
                "involvedObject.uid",
                "reason",
                "type",
            ],
            ..plain("Event", "events", true).typed::<core::Event>()
        },
        plain("ConfigMap", "configmaps", true).typed::<core::ConfigMap>(),
        plain("PersistentVolume", "persistentvolumes", false).with_status().typed::<core::PersistentVolume>(),
        Kind {
            special: Special::Secret,
            selectable: &["type"],
            ..plain("Secret", "secrets", true).typed::<core::Secret>()
        },
        Kind::plain(
            "admissionregistration.k8s.io",
            "v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            false,
        )
        .typed::<admissionregistration::MutatingWebhookConfiguration>(),
        Kind {
            special: Special::Lease,
            created_by_update: true,
            updates_need_version: true,
            ..Kind::plain("coordination.k8s.io", "v1", "Lease", "leases", true).typed::<coordination::Lease>()
        },
        Kind {
            special: Special::CertificateRequest,
            approval: true,
            selectable: &["spec.signerName"],
            ..Kind::plain(
                "certificates.k8s.io",
                "v1",
                "CertificateSigningRequest",
                "certificatesigningrequests",
                false,
            )
            .with_status()
            .typed::<certificates::CertificateSigningRequest>()
        },
    ];
    kinds.into_iter().map(Arc::new).collect()
}
