//! All objects, their versions, and their recent history.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{Arc, OnceLock},
};

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    kind::Kind,
    object::{Key, Object},
};

/// One change. Its line for watches is serialised once, however many watches there are.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) at: Instant,
    pub(crate) before: Option<Arc<Object>>,
    /// The last state, if [`Event::gone`].
    pub(crate) object: Arc<Object>,
    pub(crate) gone: bool,
    line: OnceLock<Bytes>,
}

impl Event {
    /// The line for a watch that sees all objects whole.
    pub(crate) fn line(&self) -> Bytes {
        let type_ = match (&self.before, self.gone) {
            (_, true) => "DELETED",
            (None, _) => "ADDED",
            _ => "MODIFIED",
        };
        self.line.get_or_init(|| line(type_, self.object.body())).clone()
    }
}

/// One line of a watch.
pub(crate) fn line(type_: &str, object: &[u8]) -> Bytes {
    let head = format!(r#"{{"type":"{type_}","object":"#);
    let mut line = Vec::with_capacity(head.len() + object.len() + 2);
    line.extend_from_slice(head.as_bytes());
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    Bytes::from(line)
}

/// All objects of one kind.
pub(crate) struct Collection {
    pub(crate) kind: Arc<Kind>,
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
    /// The newest last.
    pub(crate) events: VecDeque<Arc<Event>>,
    /// The history before this version is unknown.
    pub(crate) floor: u64,
    /// The version of the newest forgotten event.
    pub(crate) forgotten: u64,
    pub(crate) changed: watch::Sender<()>,
    /// When objects expire, the oldest first; a later write invalidates an entry.
    expiries: VecDeque<(Instant, Key, u64)>,
}

impl Collection {
    pub(crate) fn new(kind: Arc<Kind>, floor: u64) -> Self {
        Self {
            kind,
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            floor,
            forgotten: 0,
            changed: watch::Sender::new(()),
            expiries: VecDeque::new(),
        }
    }

    /// The events after a version.
    pub(crate) fn since(&self, version: u64) -> impl Iterator<Item = &Arc<Event>> {
        let from = self.events.partition_point(|event| event.version <= version);
        self.events.range(from..)
    }

    /// All objects after a key as they were at a version, which is not below the floor.
    pub(crate) fn at(
        &self,
        version: u64,
        after: Option<&Key>,
    ) -> Box<dyn Iterator<Item = &Arc<Object>> + '_> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let now = self.objects.range::<Key, _>(behind);
        if self.events.back().is_none_or(|last| last.version <= version) {
            return Box::new(now.map(|(_, object)| object));
        }
        let mut then: BTreeMap<&Key, &Arc<Object>> = now.collect();
        for event in self.events.iter().rev().take_while(|event| event.version > version) {
            match &event.before {
                _ if after.is_some_and(|after| event.object.key() <= after) => {}
                Some(before) => _ = then.insert(before.key(), before),
                None => _ = then.remove(event.object.key()),
            }
        }
        Box::new(then.into_values())
    }
}

/// Addresses and ports of Services. None is assigned twice before all have been assigned.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    addresses: u32,
    ports: u32,
}

impl Allocator {
    /// Takes an address from 10.96.0.0/12.
    pub(crate) fn cluster_ip(&mut self) -> String {
        self.addresses = self.addresses % 0xF_FFFE + 1;
        std::net::Ipv4Addr::from(0x0A60_0000 + self.addresses).to_string()
    }

    /// Takes a port from 30000; there are more than a real cluster has by default.
    pub(crate) fn node_port(&mut self) -> u32 {
        self.ports = self.ports % 30_000 + 1;
        29_999 + self.ports
    }
}

/// The objects of all kinds.
pub(crate) struct Store {
    pub(crate) collections: Vec<Collection>,
    /// The version of the last write.
    pub(crate) version: u64,
    pub(crate) allocator: Allocator,
    uids: u64,
    /// How many events of each kind are kept.
    kept: usize,
    /// Written, but not yet reported to hooks.
    pub(crate) written: Vec<Arc<Event>>,
}

impl Store {
    pub(crate) fn new(kinds: impl Iterator<Item = Arc<Kind>>, kept: usize) -> Self {
        Self {
            collections: kinds.map(|kind| Collection::new(kind, 1)).collect(),
            version: 1,
            allocator: Allocator::default(),
            uids: 0,
            kept,
            written: Vec::new(),
        }
    }

    /// A unique uid.
    pub(crate) fn uid(&mut self) -> String {
        self.uids += 1;
        // Spread over all digits: some clouds put only the first ones into names.
        let mixed = self.uids.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{:08x}-{:04x}-4000-8000-{:012x}", mixed >> 32, (mixed >> 16) & 0xffff, self.uids)
    }

    /// Writes an object that is complete except for its version.
    pub(crate) fn put(&mut self, of: usize, key: Key, mut value: Value) -> Arc<Object> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let collection = &mut self.collections[of];
        let object = Arc::new(Object::new(&collection.kind, key.clone(), self.version, value));
        let before = collection.objects.insert(key.clone(), Arc::clone(&object));
        if let Some(ttl) = collection.kind.ttl {
            collection.expiries.push_back((Instant::now() + ttl, key, self.version));
        }
        self.tell(of, before, Arc::clone(&object), false);
        object
    }

    /// Removes an object, whose last state may differ from the stored one.
    pub(crate) fn remove(&mut self, of: usize, key: &Key, mut last: Value) -> Option<Arc<Object>> {
        let before = self.collections[of].objects.remove(key)?;
        self.version += 1;
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(Object::new(&self.collections[of].kind, key.clone(), self.version, last));
        self.tell(of, Some(before), Arc::clone(&object), true);
        Some(object)
    }

    fn tell(&mut self, of: usize, before: Option<Arc<Object>>, object: Arc<Object>, gone: bool) {
        let event = Arc::new(Event {
            version: self.version,
            at: Instant::now(),
            before,
            object,
            gone,
            line: OnceLock::new(),
        });
        let collection = &mut self.collections[of];
        collection.events.push_back(Arc::clone(&event));
        while collection.events.len() > self.kept
            && let Some(old) = collection.events.pop_front()
        {
            collection.floor = old.version;
            collection.forgotten = old.version;
        }
        collection.changed.send_replace(());
        self.written.push(event);
    }

    /// Drops the history.
    pub(crate) fn compact(&mut self) {
        for collection in &mut self.collections {
            collection.forgotten = collection.events.back().map_or(collection.forgotten, |last| last.version);
            collection.events.clear();
            collection.floor = self.version;
        }
    }

    /// Removes the objects that have expired.
    pub(crate) fn expire(&mut self) {
        let now = Instant::now();
        for of in 0..self.collections.len() {
            while let Some((due, ..)) = self.collections[of].expiries.front()
                && *due <= now
                && let Some((_, key, version)) = self.collections[of].expiries.pop_front()
            {
                let current = self.collections[of].objects.get(&key);
                if let Some(last) = current.filter(|object| object.version() == version).map(|o| o.value()) {
                    self.remove(of, &key, last);
                }
            }
        }
    }
}
