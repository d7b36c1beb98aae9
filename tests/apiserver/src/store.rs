//! All objects, their versions, and what happened to them of late.

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

/// One change. What watches say of it is put into bytes once, however many they are.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) at: Instant,
    pub(crate) before: Option<Arc<Object>>,
    /// As it was last, if [`Event::gone`].
    pub(crate) object: Arc<Object>,
    pub(crate) gone: bool,
    line: OnceLock<Bytes>,
}

impl Event {
    /// The line of a watch that sees all objects whole.
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
    /// Nothing is known of what was before this version.
    pub(crate) floor: u64,
    /// The version of the newest event that was forgotten.
    pub(crate) forgotten: u64,
    pub(crate) changed: watch::Sender<()>,
    /// When objects expire, the oldest first; a later write makes an entry void.
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

    /// All objects behind a key as they were at a version, which is not below the floor.
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

/// Addresses and ports of Services. None is given twice before all were given.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    addresses: u32,
    ports: u32,
}

impl Allocator {
    /// Out of 10.96.0.0/12.
    pub(crate) fn cluster_ip(&mut self) -> String {
        self.addresses = self.addresses % 0xF_FFFE + 1;
        std::net::Ipv4Addr::from(0x0A60_0000 + self.addresses).to_string()
    }

    /// From 30000; there are more than a real cluster has by default.
    pub(crate) fn node_port(&mut self) -> u32 {
        self.ports = self.ports % 30_000 + 1;
        29_999 + self.ports
    }
}

/// See the module.
pub(crate) struct Store {
    pub(crate) collections: Vec<Collection>,
    /// The version of the last write.
    pub(crate) version: u64,
    pub(crate) allocator: Allocator,
    uids: u64,
    /// How many events are kept for each kind.
    kept: usize,
    /// What was written and not told yet.
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

    /// A uid that nothing else has.
    pub(crate) fn uid(&mut self) -> String {
        self.uids += 1;
        // Spread over all digits: there are clouds whose names hold only the first ones.
        let mixed = self.uids.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{:08x}-{:04x}-4000-8000-{:012x}", mixed >> 32, (mixed >> 16) & 0xffff, self.uids)
    }

    /// Writes an object, which has everything but its version.
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

    /// Forgets what led to the present state.
    pub(crate) fn compact(&mut self) {
        for collection in &mut self.collections {
            collection.forgotten = collection.events.back().map_or(collection.forgotten, |last| last.version);
            collection.events.clear();
            collection.floor = self.version;
        }
    }

    /// Removes what has outlived its kind's time.
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
