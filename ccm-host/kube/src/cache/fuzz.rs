//! One object that cannot be read is one object.

use serde_json::{Map, Value, json};

use super::{
    Slim,
    read::{self, Event, Read, Unreadable},
};
use crate::{
    certificate_request::CertificateRequest,
    keep::{Interner, Keep, KeySet},
    node::Node,
    persistent_volume::PersistentVolume,
    service::Service,
};

/// An object of any content, in a list and in a watch: what is beside it is read, and it keeps its name. The first byte
/// chooses the kind, the rest is the object, whose identity the apiserver sees to.
pub fn objects(data: &[u8]) {
    let Some((kind, json)) = data.split_first() else { return };
    let Ok(object) = serde_json::from_slice(json) else { return };
    match kind % 4 {
        0 => among_others::<Node>(object),
        1 => among_others::<Service>(object),
        2 => among_others::<PersistentVolume>(object),
        _ => among_others::<CertificateRequest>(object),
    }
}

fn among_others<T: Slim>(mut strange: Map<String, Value>) {
    let metadata = strange.entry("metadata").or_insert(Value::Null);
    if !metadata.is_object() {
        *metadata = json!({});
    }
    for (field, value) in
        [("name", "strange"), ("namespace", "shop"), ("uid", "u-1"), ("resourceVersion", "2")]
    {
        metadata[field] = value.into();
    }
    let plain = |name| json!({"metadata": {"name": name, "namespace": "shop", "resourceVersion": "1"}});
    let list =
        json!({"metadata": {"resourceVersion": "3"}, "items": [plain("first"), strange, plain("last")]});
    match read::page::<T::Wire>(&list.to_string()) {
        Ok(page) => {
            let keys: Vec<_> = page.items.into_iter().map(|read| named::<T>(read).0).collect();
            let named = ["first", "strange", "last"].map(|name| T::key_of("shop", name));
            assert_eq!(keys, named, "a list lost an object");
        }
        Err(error) => panic!("one object hides the page: {error}"),
    }
    for kind in ["MODIFIED", "DELETED"] {
        let line = json!({"type": kind, "object": strange}).to_string();
        match read::event::<T::Wire>(&line) {
            Ok(Event::Put(read) | Event::Deleted(read)) => {
                let (key, version) = named::<T>(read);
                assert_eq!(version, "2", "a watch loses its place");
                assert_eq!(key, T::key_of("shop", "strange"));
            }
            Ok(Event::Bookmark { .. } | Event::Refused(_)) => panic!("{kind} was taken for something else"),
            Err(error) => panic!("one object ends the watch: {error}"),
        }
    }
}

/// The key of an object, and its version.
fn named<T: Slim>(read: Read<T::Wire>) -> (T::Key, String) {
    let everything = Keep { labels: KeySet::all(), annotations: KeySet::all() };
    match read {
        Ok(wire) => {
            let object = T::project(wire, &everything, &Interner::default());
            (object.key(), object.resource_version().to_owned())
        }
        Err(Unreadable { metadata, .. }) => {
            (T::key_of(&metadata.namespace, &metadata.name), metadata.resource_version)
        }
    }
}
