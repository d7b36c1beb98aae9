//! Objects, decoded once per version.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use apiserver::{Key, World};
use serde::{Serialize, de::DeserializeOwned};

/// All objects of one kind.
#[derive(Debug)]
pub struct Seen<T>(RefCell<Known<T>>);

#[derive(Debug)]
struct Known<T> {
    as_of: u64,
    by_key: BTreeMap<Key, (u64, Rc<T>)>,
    list: Rc<[Rc<T>]>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(RefCell::new(Known { as_of: 0, by_key: BTreeMap::new(), list: Rc::new([]) }))
    }
}

impl<T: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned> Seen<T> {
    /// The current objects, by namespace and name. `writes` grows with each write to them, and starts at one.
    pub fn list(&self, objects: &World, writes: u64) -> Rc<[Rc<T>]> {
        let mut known = self.0.borrow_mut();
        if known.as_of == writes {
            return Rc::clone(&known.list);
        }
        let mut before = std::mem::take(&mut known.by_key);
        for object in objects.objects::<T>() {
            let same = before.remove(object.key()).filter(|(version, _)| *version == object.version());
            let read = || object.read().ok().map(|read| (object.version(), Rc::new(read)));
            if let Some(entry) = same.or_else(read) {
                known.by_key.insert(object.key().clone(), entry);
            }
        }
        known.list = known.by_key.values().map(|(_, one)| Rc::clone(one)).collect();
        known.as_of = writes;
        Rc::clone(&known.list)
    }
}
