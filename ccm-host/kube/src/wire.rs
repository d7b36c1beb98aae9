//! Shared parts of the private wire types: metadata without managed fields, lists that may be null.
//!
//! A wire type lives only while one object is decoded; [`super::node`] and [`super::service`] project it to the slim
//! types that controllers read.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

/// The part of an object's metadata that is read. The parser skips unknown fields, managed fields among them, without
/// allocating them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    #[serde(deserialize_with = "time")]
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "pairs")]
    pub(super) labels: Vec<(String, String)>,
    #[serde(deserialize_with = "pairs")]
    pub(super) annotations: Vec<(String, String)>,
    #[serde(deserialize_with = "or_default")]
    pub(super) finalizers: Vec<String>,
}

impl Meta {
    /// The metadata that the watch itself needs: the identity, and where to resume.
    pub(super) fn for_watcher(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.clone()),
            namespace: (!self.namespace.is_empty()).then(|| self.namespace.clone()),
            resource_version: Some(self.resource_version.clone()),
            ..ObjectMeta::default()
        }
    }
}

/// One condition of a Node or a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// When the status last changed.
    #[serde(deserialize_with = "time")]
    pub last_transition_time: Option<Timestamp>,
}

/// Reads a value where an explicit null means absence.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

/// Reads a time, or `None` if it is out of range here: Go knows later years than jiff, and whoever may write a condition
/// chooses its time.
fn time<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(d)?.and_then(|text| text.parse().ok()))
}

/// Reads a JSON object of strings as a list of pairs, without building a tree.
fn pairs<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<(String, String)>, D::Error> {
    Ok(Option::<PairList>::deserialize(d)?.unwrap_or_default().0)
}

#[derive(Default)]
struct PairList(Vec<(String, String)>);

impl<'de> Deserialize<'de> for PairList {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = PairList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PairList, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(PairList(pairs))
            }
        }
        d.deserialize_map(Pairs)
    }
}

/// The type in which a kind of the core group arrives: `Object` of the same file, as a `::kube::Resource`.
macro_rules! core_resource {
    ($wire:ident, $scope:ty, $kind:literal, $plural:literal) => {
        #[doc = concat!("A ", $kind, " while it is decoded.")]
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(from = "Object")]
        pub struct $wire {
            meta: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            object: Object,
        }

        impl From<Object> for $wire {
            fn from(object: Object) -> Self {
                Self { meta: object.metadata.for_watcher(), object }
            }
        }

        impl ::kube::Resource for $wire {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                "".into()
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                "v1".into()
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.meta
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.meta
            }
        }
    };
}
pub(super) use core_resource;
