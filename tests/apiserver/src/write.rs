//! Creates, changes and deletes objects as the apiserver's generic registry does.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    kind::Kind,
    object::{Key, Object},
    refusal::{Cause, Refusal},
    rules::{self, Special},
    store::Store,
};

/// The target of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The collection.
    pub(crate) of: usize,
    pub(crate) key: &'a Key,
    /// Through the status subresource.
    pub(crate) of_status: bool,
    /// A dry run: nothing is stored.
    pub(crate) dry: bool,
    pub(crate) now: Timestamp,
}

/// The options of a deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deletion {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) foreground: bool,
}

/// The outcome of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    Gone(Arc<Object>),
    /// Finalizers hold it back.
    Held(Arc<Object>),
}

impl Store {
    pub(crate) fn kind(&self, of: usize) -> Arc<Kind> {
        Arc::clone(&self.collections[of].kind)
    }

    pub(crate) fn find(&self, of: usize, key: &Key) -> Result<Arc<Object>, Refusal> {
        let collection = &self.collections[of];
        collection.objects.get(key).cloned().ok_or_else(|| Refusal::not_found(&collection.kind, key.name()))
    }

    /// Stores a new object. If the name in `to` is empty, the object has it, or gets a generated one.
    pub(crate) fn create(
        &mut self,
        to: Target<'_>,
        object: Value,
        suffix: impl FnOnce() -> String,
    ) -> Result<Arc<Object>, Refusal> {
        let kind = self.kind(to.of);
        let mut object = object;
        check_place(&kind, to.key, &mut object)?;
        let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default();
        if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() && !prefix.is_empty() {
            object["metadata"]["name"] = json!(format!("{prefix}{}", suffix()));
        }
        if !matches!(object["metadata"]["resourceVersion"].as_str(), None | Some("" | "0")) {
            return Err(Refusal::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let mut object = rules::decoded(&kind, object).map_err(|error| undecodable(&kind, &error))?;
        rules::default(&kind, &mut object);
        let key = Key::new(to.key.namespace(), object["metadata"]["name"].as_str().unwrap_or_default());
        self.check_namespace(&kind, &key)?;
        rules::prepare_new(&kind, &mut object, &mut self.allocator);
        let causes = rules::wrong(&kind, false, &object, None);
        if !causes.is_empty() {
            return Err(Refusal::invalid(&kind, key.name(), causes));
        }
        if self.collections[to.of].objects.contains_key(&key) {
            return Err(Refusal::already_exists(&kind, key.name()));
        }
        let uid = self.uid();
        rules::new_meta(&mut object, uid, to.now);
        Ok(if to.dry { Arc::new(Object::new(&kind, key, 0, object)) } else { self.put(to.of, key, object) })
    }

    fn check_namespace(&self, kind: &Kind, key: &Key) -> Result<(), Refusal> {
        if !kind.namespaced {
            return Ok(());
        }
        let namespaces = self.collections.iter().find(|one| one.kind.special == Special::Namespace);
        let found = namespaces.and_then(|all| all.objects.get(&Key::new("", key.namespace())));
        let found = found.map(|object| object.value());
        rules::refuse_in_namespace(kind, key.name(), key.namespace(), found.as_ref()).map_or(Ok(()), Err)
    }

    /// Replaces an object. The flag says whether it is new.
    pub(crate) fn update(&mut self, to: Target<'_>, object: Value) -> Result<(Arc<Object>, bool), Refusal> {
        let kind = self.kind(to.of);
        let mut object = object;
        let named = object["metadata"]["name"].as_str().unwrap_or_default();
        if named != to.key.name() {
            return Err(wrong_name(named, to.key));
        }
        check_place(&kind, to.key, &mut object)?;
        let meta = &object["metadata"];
        let Some(old) = self.collections[to.of].objects.get(to.key).cloned() else {
            if !kind.created_by_update || to.of_status {
                return Err(Refusal::not_found(&kind, to.key.name()));
            }
            if let Some(uid) = meta["uid"].as_str() {
                let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
                return Err(Refusal::conflict(&kind, to.key.name(), &why));
            }
            let created = self.create(to, object, String::new)?;
            return Ok((created, true));
        };
        if let Some(uid) = meta["uid"].as_str().filter(|uid| !uid.is_empty() && *uid != old.uid()) {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", old.uid());
            return Err(Refusal::conflict(&kind, to.key.name(), &why));
        }
        let unversioned = matches!(meta["resourceVersion"].as_str(), None | Some("" | "0"));
        if kind.updates_need_version && unversioned {
            let cause =
                Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(Refusal::invalid_as(kind.group, kind.plural, to.key.name(), vec![cause]));
        }
        let object = rules::decoded(&kind, object).map_err(|error| undecodable(&kind, &error))?;
        Ok((self.change(to, &old, object)?, false))
    }

    /// Changes an object by a patch, which receives the current object.
    pub(crate) fn patch(
        &mut self,
        to: Target<'_>,
        patch: impl FnOnce(&Kind, &Value) -> Result<Value, Refusal>,
    ) -> Result<Arc<Object>, Refusal> {
        let kind = self.kind(to.of);
        let old = self.find(to.of, to.key)?;
        let mut patched = patch(&kind, &old.value())?;
        let refused = |error: String| {
            let message = format!("Invalid value: {error}");
            Refusal::invalid_as("", "", "", vec![Cause::new("FieldValueInvalid", "patch", message)])
        };
        if patched["kind"] != kind.name || patched["apiVersion"] != kind.api_version() {
            return Err(refused("it is of another kind".to_owned()));
        }
        match patched["metadata"]["name"].as_str() {
            Some(name) if name == to.key.name() => {}
            other => return Err(wrong_name(other.unwrap_or_default(), to.key)),
        }
        check_place(&kind, to.key, &mut patched)?;
        let patched = rules::decoded(&kind, patched).map_err(|error| refused(error.to_string()))?;
        self.change(to, &old, patched)
    }

    /// The common end of updates and patches.
    fn change(&mut self, to: Target<'_>, old: &Object, mut object: Value) -> Result<Arc<Object>, Refusal> {
        let kind = self.kind(to.of);
        let before = old.value();
        let version = old.version().to_string();
        let meta = &mut object["metadata"];
        match meta["resourceVersion"].as_str() {
            None | Some("" | "0") => meta["resourceVersion"] = json!(version),
            Some(wanted) if wanted != version => return Err(Refusal::modified(&kind, to.key.name())),
            Some(_) => {}
        }
        keep_stamps(meta, &before["metadata"]);
        rules::default(&kind, &mut object);
        rules::prepare_changed(&kind, to.of_status, &mut object, &before, &mut self.allocator);
        let causes = rules::wrong(&kind, to.of_status, &object, Some(&before));
        if !causes.is_empty() {
            return Err(Refusal::invalid(&kind, to.key.name(), causes));
        }
        let meta = &object["metadata"];
        let released = !meta["deletionTimestamp"].is_null()
            && meta["finalizers"].is_null()
            && kind.special != Special::Namespace;
        if object == before && !released {
            return self.find(to.of, to.key);
        }
        if to.dry || released {
            let answer = Arc::new(Object::new(&kind, to.key.clone(), old.version(), object.clone()));
            if !to.dry {
                self.remove(to.of, to.key, object);
            }
            return Ok(answer);
        }
        Ok(self.put(to.of, to.key.clone(), object))
    }

    pub(crate) fn delete(&mut self, to: Target<'_>, deletion: &Deletion) -> Result<Deleted, Refusal> {
        let kind = self.kind(to.of);
        let old = self.find(to.of, to.key)?;
        let name = to.key.name();
        if let Some(uid) = deletion.uid.as_deref().filter(|uid| *uid != old.uid()) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                old.uid()
            );
            return Err(Refusal::precondition(&kind, name, &why));
        }
        let version = old.version().to_string();
        if let Some(wanted) = deletion.version.as_deref().filter(|wanted| *wanted != version) {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            );
            return Err(Refusal::precondition(&kind, name, &why));
        }
        let mut object = old.value();
        if deletion.foreground && object["metadata"]["deletionTimestamp"].is_null() {
            match object["metadata"]["finalizers"].as_array_mut() {
                Some(finalizers) => finalizers.push(json!("foregroundDeletion")),
                None => object["metadata"]["finalizers"] = json!(["foregroundDeletion"]),
            }
        }
        let held = !object["metadata"]["finalizers"].is_null() || kind.special == Special::Namespace;
        if !held {
            return Ok(Deleted::Gone(if to.dry {
                old
            } else {
                self.remove(to.of, to.key, object).unwrap_or(old)
            }));
        }
        if !object["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Deleted::Held(old));
        }
        object["metadata"]["deletionTimestamp"] = json!(rules::seconds(to.now));
        if kind.special == Special::Namespace {
            object["status"]["phase"] = json!("Terminating");
        } else {
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        }
        Ok(Deleted::Held(if to.dry {
            Arc::new(Object::new(&kind, to.key.clone(), old.version(), object))
        } else {
            self.put(to.of, to.key.clone(), object)
        }))
    }
}

fn undecodable(kind: &Kind, error: &serde_json::Error) -> Refusal {
    let (name, version) = (kind.name, kind.version);
    Refusal::bad_request(format!("{name} in version {version:?} cannot be handled as a {name}: {error}"))
}

fn wrong_name(named: &str, key: &Key) -> Refusal {
    let on_url = key.name();
    Refusal::bad_request(if named.is_empty() {
        format!("the name of the object ({on_url} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({named}) does not match the name on the URL ({on_url})")
    })
}

/// Checks that the namespace is the request's, and the kind the collection's.
fn check_place(kind: &Kind, key: &Key, object: &mut Value) -> Result<(), Refusal> {
    if !object.is_object() {
        return Err(Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {})",
            kind.name
        )));
    }
    object["kind"] = json!(kind.name);
    object["apiVersion"] = json!(kind.api_version());
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let Some(meta) = object["metadata"].as_object_mut() else { return Ok(()) };
    if !kind.namespaced {
        meta.remove("namespace");
        return Ok(());
    }
    let given = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !given.is_empty() && given != key.namespace() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::bad_request(message));
    }
    meta.insert("namespace".to_owned(), json!(key.namespace()));
    Ok(())
}

/// Immutable stamps: an update that omits them keeps them, and other values are ignored.
fn keep_stamps(meta: &mut Value, old: &Value) {
    if meta["uid"].is_null() {
        meta["uid"] = old["uid"].clone();
    }
    let deleting = !old["deletionTimestamp"].is_null();
    let kept: &[&str] = if deleting {
        &["creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"]
    } else {
        &["creationTimestamp", "generation"]
    };
    if let Some(meta) = meta.as_object_mut() {
        for field in kept {
            match old.get(*field) {
                Some(value) => _ = meta.insert((*field).to_owned(), value.clone()),
                None => _ = meta.remove(*field),
            }
        }
        meta.remove("managedFields");
    }
}
