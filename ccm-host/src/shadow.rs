//! Shadow mode: beside another cloud controller manager, everything is decided, nothing is written or mutated, and what
//! was held back is compared with what the other one does.
//!
//! ```text
//! kube::Writer ──── a patch ────┐                    ┌─ the object holds it: agreed
//!                               ├─► held back ─► judge ─ not asked for again, or gone: dropped
//! cloud::RemoteProvider ─ a call┘     (fields)   (pure) └─ still missing after the grace: a difference
//! ```
//!
//! In: what the two gates hold back, and the objects as they are. Out: the report at `/shadow`, and
//! metrics. The gates themselves refuse because [`crate::election::Leading::Shadow`] never leads, and the client of the
//! apiserver sends nothing but GET.

mod compare;
mod fields;
mod metrics;
mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_state::shadow::{Agreed, Row, Standing};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use crate::clock;
use compare::{Judgement, Times, judge};
pub use fields::{Field, condition};
pub use metrics::Metrics;
pub use settings::Settings;

/// What something held back is about. By name: the uid is that of the patch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub kind: String,
    /// Empty if the kind has none.
    pub namespace: String,
    pub name: String,
}

/// An object as it is: those fields that the host writes, and conditions by type.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub uid: String,
    pub value: Value,
}

/// Where objects are looked up.
pub trait Objects {
    /// `None` if there is no such object.
    fn observe(&self, subject: &Subject) -> Option<Observed>;
}

/// A call that was held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCall {
    pub controller: &'static str,
    pub subject: Subject,
    pub method: &'static str,
    /// For people: what it would do, and what is known of it.
    pub what: String,
    /// Whether it only takes over what exists: it never counts as a difference.
    pub takes_over: bool,
}

/// Everything that was held back. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Shadow {
    times: Times,
    metrics: Metrics,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    writes: BTreeMap<(Subject, String), Write>,
    calls: BTreeMap<Subject, Call>,
    agreed: BTreeMap<&'static str, u64>,
    /// Records of the host about itself: kept here, so that the controllers go on as if they were written.
    records: BTreeMap<String, String>,
}

/// One field that was not written, or a deletion.
#[derive(Debug, Clone)]
struct Write {
    controller: &'static str,
    uid: String,
    /// The value that it replaces, if the patch says so.
    old: Option<Value>,
    new: Value,
    since: Timestamp,
    asked: Timestamp,
}

#[derive(Debug)]
struct Call {
    held: HeldCall,
    since: Timestamp,
    asked: Timestamp,
}

impl Shadow {
    #[must_use]
    pub fn new(settings: &Settings, metrics: Metrics) -> Self {
        Self { times: Times::of(settings.shadow_grace), metrics, held: Arc::default() }
    }

    /// When to decide again about what was held back.
    #[must_use]
    pub fn again(&self) -> Duration {
        self.times.again
    }

    /// How long something may be missing before it is a difference.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.times.grace
    }

    /// Holds back a write to the object of this uid, field by field.
    pub fn hold_write(&self, controller: &'static str, subject: &Subject, uid: &str, fields: Vec<Field>) {
        let now = clock::now();
        let mut held = self.held.lock();
        for Field { path, old, new } in fields {
            self.metrics.held_back(controller);
            let key = (subject.clone(), path);
            let known = held.writes.get(&key).filter(|known| known.uid == uid);
            let since = known.map_or(now, |known| known.since);
            held.writes.insert(key, Write { controller, uid: uid.to_owned(), old, new, since, asked: now });
        }
    }

    /// Holds back the deletion of an object.
    pub fn hold_deletion(&self, controller: &'static str, subject: &Subject, uid: &str) {
        let whole = Field { path: String::new(), old: None, new: Value::Null };
        self.hold_write(controller, subject, uid, vec![whole]);
    }

    /// Holds back a call.
    pub fn hold_call(&self, call: HeldCall) {
        let now = clock::now();
        self.metrics.held_back(call.controller);
        let mut held = self.held.lock();
        let is_same =
            |known: &&Call| (known.held.method, known.held.takes_over) == (call.method, call.takes_over);
        let since = held.calls.get(&call.subject).filter(is_same).map_or(now, |known| known.since);
        tracing::debug!(method = call.method, name = call.subject.name, call.what, "held back");
        held.calls.insert(call.subject.clone(), Call { held: call, since, asked: now });
    }

    /// The cloud is as a call would have made it.
    pub fn agreed(&self, controller: &'static str, subject: &Subject) {
        let mut held = self.held.lock();
        if held.calls.remove(subject).is_some() {
            *held.agreed.entry(controller).or_default() += 1;
            self.metrics.agreed(controller);
        }
    }

    /// Keeps a record in memory.
    pub fn keep_record(&self, at: String, text: String) {
        self.held.lock().records.insert(at, text);
    }

    /// The record kept in memory, if there is one.
    #[must_use]
    pub fn record(&self, at: &str) -> Option<String> {
        self.held.lock().records.get(at).cloned()
    }

    /// Settles what the other controller did, forgets what nobody wants any more, and shows the rest.
    pub fn review(&self, objects: &dyn Objects, now: Timestamp) -> (Vec<Row>, Vec<Agreed>) {
        let mut held = self.held.lock();
        let Held { writes, calls, agreed, .. } = &mut *held;
        let mut rows = Vec::new();
        writes.retain(|(subject, path), write| {
            let observed = objects.observe(subject);
            let standing = match judge(path, write, observed.as_ref(), now, &self.times) {
                Judgement::Agreed => {
                    *agreed.entry(write.controller).or_default() += 1;
                    self.metrics.agreed(write.controller);
                    return false;
                }
                Judgement::Dropped => return false,
                Judgement::Stands(standing) => standing,
            };
            rows.push(row(subject, path, write, observed.as_ref(), standing));
            true
        });
        calls.retain(|subject, call| {
            let standing = self.times.of_call(call.held.takes_over, call.since, call.asked, now);
            let Some(standing) = standing else { return false };
            rows.push(Row {
                controller: call.held.controller.to_owned(),
                kind: subject.kind.clone(),
                namespace: subject.namespace.clone(),
                name: subject.name.clone(),
                standing,
                what: call.held.what.clone(),
                field: String::new(),
                now: Value::Null,
                would: Value::Null,
                since: call.since,
            });
            true
        });
        let count = |(controller, count): (&&str, &u64)| Agreed {
            controller: (*controller).to_owned(),
            count: *count,
        };
        let agreed = agreed.iter().map(count).collect();
        drop(held);
        rows.sort_by(|one, other| {
            let key =
                |row: &Row| (row.kind.clone(), row.namespace.clone(), row.name.clone(), row.field.clone());
            key(one).cmp(&key(other))
        });
        self.metrics.shown(&rows);
        (rows, agreed)
    }
}

fn row(subject: &Subject, path: &str, write: &Write, observed: Option<&Observed>, standing: Standing) -> Row {
    let what = match (path.is_empty(), write.new.is_null()) {
        (true, _) => format!("would delete the {}", subject.kind),
        (false, true) => format!("would remove {}", fields::shown(path)),
        (false, false) => format!("would set {}", fields::shown(path)),
    };
    let now = observed.filter(|_| !path.is_empty()).and_then(|observed| observed.value.pointer(path));
    Row {
        controller: write.controller.to_owned(),
        kind: subject.kind.clone(),
        namespace: subject.namespace.clone(),
        name: subject.name.clone(),
        standing,
        what,
        field: path.to_owned(),
        now: now.cloned().unwrap_or_default(),
        would: write.new.clone(),
        since: write.since,
    }
}

#[cfg(test)]
mod tests;
