//! The map behind a cache: pure bookkeeping, no locks, no tasks.

use std::{borrow::Borrow, collections::HashMap, hash::Hash, sync::Arc};

use super::{Change, Slim};

/// Objects by key, with a second index and the number of the last list that contained each.
pub(super) struct Store<T: Slim> {
    objects: HashMap<T::Key, Stored<T>>,
    by_index: HashMap<Box<str>, Vec<T::Key>>,
    /// Objects whose present state cannot be read, and the last list that contained each.
    unreadable: HashMap<T::Key, u32>,
    list: u32,
}

struct Stored<T> {
    object: Arc<T>,
    list: u32,
}

impl<T: Slim> Default for Store<T> {
    fn default() -> Self {
        Self { objects: HashMap::new(), by_index: HashMap::new(), unreadable: HashMap::new(), list: 0 }
    }
}

impl<T: Slim> Store<T> {
    pub(super) fn get<Q>(&self, key: &Q) -> Option<Arc<T>>
    where
        T::Key: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.objects.get(key).map(|entry| Arc::clone(&entry.object))
    }

    pub(super) fn list(&self) -> Vec<Arc<T>> {
        self.objects.values().map(|entry| Arc::clone(&entry.object)).collect()
    }

    pub(super) fn by_index(&self, value: &str) -> Vec<Arc<T>> {
        self.by_index.get(value).into_iter().flatten().filter_map(|key| self.get(key)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The number of objects whose present state cannot be read.
    pub(super) fn unreadable(&self) -> usize {
        self.unreadable.len()
    }

    /// From now on, objects not put again before [`Store::end_list`] are gone.
    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Objects that the list has not contained so far.
    pub(super) fn missing(&self) -> Vec<Arc<T>> {
        let missing = self.objects.values().filter(|entry| entry.list != self.list);
        missing.map(|entry| Arc::clone(&entry.object)).collect()
    }

    /// Drops the objects that the list did not contain.
    pub(super) fn end_list(&mut self) -> Vec<Change<T>> {
        let list = self.list;
        self.unreadable.retain(|_, seen| *seen == list);
        let gone: Vec<_> = self.objects.extract_if(|_, entry| entry.list != list).collect();
        self.objects.shrink_to_fit();
        gone.into_iter()
            .map(|(key, entry)| {
                self.unindex(&key, &entry.object);
                Change::Deleted(entry.object)
            })
            .collect()
    }

    /// Stores an object and returns what changed: nothing, one thing, or a deletion and an addition when another
    /// object has taken the name.
    pub(super) fn put(&mut self, mut object: T) -> [Option<Change<T>>; 2] {
        let key = object.key();
        let list = self.list;
        self.unreadable.remove(&key);
        let Some(entry) = self.objects.get_mut(&key) else {
            let new = Arc::new(object);
            self.index(&key, &new);
            self.objects.insert(key, Stored { object: Arc::clone(&new), list });
            return [Some(Change::Added(new)), None];
        };
        entry.list = list;
        let is_same = same_but_version(entry.object.as_ref(), &mut object);
        let new = Arc::new(object);
        if is_same {
            if entry.object.resource_version() != new.resource_version() {
                entry.object = new;
            }
            return [None, None];
        }
        let old = std::mem::replace(&mut entry.object, Arc::clone(&new));
        if old.index() != new.index() {
            self.unindex(&key, &old);
            self.index(&key, &new);
        }
        if old.uid() == new.uid() {
            [Some(Change::Updated { old, new }), None]
        } else {
            [Some(Change::Deleted(old)), Some(Change::Added(new))]
        }
    }

    /// Notes that an object is there and cannot be read. It keeps its last known state, unless that is another object's.
    /// Returns whether this is new, and the change.
    pub(super) fn put_unreadable(&mut self, key: &T::Key, uid: &str) -> (bool, Option<Change<T>>) {
        let is_new = self.unreadable.insert(key.clone(), self.list).is_none();
        match self.objects.get_mut(key) {
            Some(entry) if entry.object.uid() == uid => {
                entry.list = self.list;
                (is_new, None)
            }
            Some(_) => (is_new, self.take(key).map(Change::Deleted)),
            None => (is_new, None),
        }
    }

    /// Removes an object. The change carries the state that came with the deletion, if it could be read and is that
    /// object's.
    pub(super) fn remove(&mut self, key: &T::Key, last: Option<T>) -> Option<Change<T>> {
        self.unreadable.remove(key);
        let known = self.take(key)?;
        let last = last.filter(|last| last.uid() == known.uid());
        Some(Change::Deleted(last.map_or(known, Arc::new)))
    }

    fn take(&mut self, key: &T::Key) -> Option<Arc<T>> {
        let entry = self.objects.remove(key)?;
        self.unindex(key, &entry.object);
        Some(entry.object)
    }

    fn index(&mut self, key: &T::Key, object: &T) {
        if let Some(value) = object.index() {
            self.by_index.entry(value.into()).or_default().push(key.clone());
        }
    }

    fn unindex(&mut self, key: &T::Key, object: &T) {
        let Some(value) = object.index() else { return };
        let Some(keys) = self.by_index.get_mut(value) else { return };
        keys.retain(|kept| kept != key);
        if keys.is_empty() {
            self.by_index.remove(value);
        }
    }
}

/// Whether nothing but the resource version differs. `new` is changed for the comparison only.
fn same_but_version<T: Slim>(old: &T, new: &mut T) -> bool {
    let version = std::mem::replace(new.resource_version_mut(), old.resource_version().to_owned());
    let is_same = *old == *new;
    *new.resource_version_mut() = version;
    is_same
}
