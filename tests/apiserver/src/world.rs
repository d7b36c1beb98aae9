//! The objects themselves, for callers that act as a test's users, kubelets and controllers.

use std::sync::Arc;

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    asked::Verb,
    kind::Kind,
    object::{Key, Object},
    refusal::Refusal,
    rules,
    server::{ApiServer, By},
    write::{Deleted, Deletion, Target},
};

/// The objects, past HTTP and past all faults. Watches and hooks see its writes as all others, by the client `world`.
#[derive(Debug, Clone)]
pub struct World {
    server: ApiServer,
    name: Arc<str>,
}

/// The types of objects in the world: those of k8s-openapi, or other [`kube::Resource`]s.
pub trait Held: Resource<DynamicType = ()> + Serialize + DeserializeOwned {}

impl<T: Resource<DynamicType = ()> + Serialize + DeserializeOwned> Held for T {}

impl World {
    pub(crate) fn new(server: ApiServer) -> Self {
        Self { server, name: "world".into() }
    }

    /// The same world, whose writes have another name in the journal.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Creates a namespace, unless it exists.
    pub fn namespace(&self, name: &str) {
        let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
        let _there = self.create_value(object).is_err();
    }

    /// Creates an object as a user does: it is stamped, defaulted and validated.
    ///
    /// # Errors
    /// The apiserver would refuse it.
    pub fn create<T: Held>(&self, object: &T) -> Result<T, Refusal> {
        let created = self.create_value(with_kind(object)?)?;
        created.read().map_err(unreadable)
    }

    /// Like [`World::create`], for any kind.
    ///
    /// # Errors
    /// The apiserver would refuse it.
    pub fn create_value(&self, object: Value) -> Result<Arc<Object>, Refusal> {
        let (of, key) = self.place(&object)?;
        let suffix = || crate::serve::suffix(&self.server);
        let now = self.server.now();
        let to = |key| Target { of, key, of_status: false, dry: false, now };
        self.work(Verb::Create, |store| store.create(to(&key), object, suffix))
    }

    /// Stores an object as it is, status and all, new or not. It adds a missing uid, creation time and namespace, but
    /// validates and defaults nothing. An object that is being deleted and has no finalizer is removed.
    ///
    /// # Errors
    /// Its kind is not served.
    pub fn put<T: Held>(&self, object: &T) -> Result<T, Refusal> {
        self.store(object)?.read().map_err(unreadable)
    }

    /// Like [`World::put`], for callers that need no result.
    ///
    /// # Errors
    /// Its kind is not served.
    pub fn store<T: Held>(&self, object: &T) -> Result<Arc<Object>, Refusal> {
        self.put_as(with_kind(object)?, |kind, object| Ok(rules::encoded(kind, object)))
    }

    /// Like [`World::put`], for any kind.
    ///
    /// # Errors
    /// Its kind is not served.
    pub fn put_value(&self, object: Value) -> Result<Arc<Object>, Refusal> {
        self.put_as(object, |kind, object| rules::decoded(kind, object).map_err(unreadable))
    }

    fn put_as(
        &self,
        object: Value,
        encode: impl FnOnce(&Kind, Value) -> Result<Value, Refusal>,
    ) -> Result<Arc<Object>, Refusal> {
        let (of, key) = self.place(&object)?;
        let now = self.server.now();
        self.work(Verb::Update, |store| {
            let kind = store.kind(of);
            let mut object = encode(&kind, object)?;
            let old = store.collections[of].objects.get(&key).cloned();
            let meta = &mut object["metadata"];
            if kind.namespaced {
                meta["namespace"] = json!(key.namespace());
            }
            if meta["uid"].is_null() {
                meta["uid"] = json!(old.as_ref().map_or_else(|| store.uid(), |old| old.uid().to_owned()));
            }
            if meta["creationTimestamp"].is_null() {
                let known = old.as_ref().map(|old| old.value()["metadata"]["creationTimestamp"].take());
                meta["creationTimestamp"] = known.unwrap_or_else(|| json!(rules::seconds(now)));
            }
            let released = !meta["deletionTimestamp"].is_null() && meta["finalizers"].is_null();
            if released && old.is_some() {
                return store.remove(of, &key, object).ok_or_else(|| Refusal::not_found(&kind, key.name()));
            }
            Ok(store.put(of, key, object))
        })
    }

    /// Changes an object in place, bypassing all rules.
    ///
    /// # Errors
    /// It does not exist.
    pub fn change<T: Held>(
        &self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut T),
    ) -> Result<T, Refusal> {
        let (of, key) = self.named_place::<T>(namespace, name)?;
        let mut object: T = self.server.0.store.lock().find(of, &key)?.read().map_err(unreadable)?;
        change(&mut object);
        self.put(&object)
    }

    /// The object with this name.
    pub fn get<T: Held>(&self, namespace: &str, name: &str) -> Option<T> {
        self.object::<T>(namespace, name)?.read().ok()
    }

    /// Like [`World::get`], but as stored.
    pub fn object<T: Held>(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let (of, key) = self.named_place::<T>(namespace, name).ok()?;
        self.work(Verb::Get, |store| store.find(of, &key).ok())
    }

    /// All objects of a kind, sorted by namespace and name.
    pub fn list<T: Held>(&self) -> Vec<T> {
        self.objects::<T>().iter().filter_map(|object| object.read().ok()).collect()
    }

    /// Like [`World::list`], but as stored.
    pub fn objects<T: Held>(&self) -> Vec<Arc<Object>> {
        let Ok((of, _)) = self.named_place::<T>("", "") else { return Vec::new() };
        self.work(Verb::List, |store| store.collections[of].objects.values().cloned().collect())
    }

    /// Deletes an object as a user does: finalizers hold it back. Returns whether it is gone.
    ///
    /// # Errors
    /// It does not exist.
    pub fn delete<T: Held>(&self, namespace: &str, name: &str) -> Result<bool, Refusal> {
        let (of, key) = self.named_place::<T>(namespace, name)?;
        let to = Target { of, key: &key, of_status: false, dry: false, now: self.server.now() };
        let deleted = self.work(Verb::Delete, |store| store.delete(to, &Deletion::default()))?;
        Ok(matches!(deleted, Deleted::Gone(_)))
    }

    /// Removes an object whatever its finalizers say.
    ///
    /// # Errors
    /// It does not exist.
    pub fn remove<T: Held>(&self, namespace: &str, name: &str) -> Result<(), Refusal> {
        let (of, key) = self.named_place::<T>(namespace, name)?;
        self.work(Verb::Delete, |store| {
            let last = store.find(of, &key)?.value();
            store.remove(of, &key, last);
            Ok(())
        })
    }

    fn work<R>(&self, verb: Verb, work: impl FnOnce(&mut crate::store::Store) -> R) -> R {
        self.server.work(&By { client: &self.name, verb, subresource: "" }, work)
    }

    fn place(&self, object: &Value) -> Result<(usize, Key), Refusal> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let meta = &object["metadata"];
        let place = self.of(&text(&object["apiVersion"]), &text(&object["kind"]))?;
        Ok(self.keyed(place, &text(&meta["namespace"]), &text(&meta["name"])))
    }

    fn named_place<T: Held>(&self, namespace: &str, name: &str) -> Result<(usize, Key), Refusal> {
        let place = self.of(&T::api_version(&()), &T::kind(&()))?;
        Ok(self.keyed(place, namespace, name))
    }

    fn keyed(&self, of: usize, namespace: &str, name: &str) -> (usize, Key) {
        let namespaced = self.server.0.store.lock().collections[of].kind.namespaced;
        let namespace = match namespace {
            _ if !namespaced => "",
            "" => "default",
            other => other,
        };
        (of, Key::new(namespace, name))
    }

    fn of(&self, api_version: &str, kind: &str) -> Result<usize, Refusal> {
        let store = self.server.0.store.lock();
        let mut kinds = store.collections.iter().map(|one| &one.kind);
        kinds
            .position(|one| one.name == kind && one.api_version() == api_version)
            .ok_or_else(|| Refusal::bad_request(format!("{api_version} {kind} is not served")))
    }
}

fn with_kind<T: Held>(object: &T) -> Result<Value, Refusal> {
    let mut value = serde_json::to_value(object).map_err(unreadable)?;
    value["kind"] = json!(T::kind(&()));
    value["apiVersion"] = json!(T::api_version(&()));
    Ok(value)
}

#[allow(clippy::needless_pass_by_value, reason = "goes to map_err")]
fn unreadable(error: serde_json::Error) -> Refusal {
    Refusal::bad_request(error.to_string())
}
