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

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_state::shadow::{Agreed, Row, Standing};
use clap::ArgAction;
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde_json::Value;

use ccm_base::{
    clock,
    flag::{self, Mistakes},
    metric::{Declare, MetricLabels},
};
pub use compare::{Field, condition};
use compare::{Judgement, judge, of_call, shown};

/// The flags of shadow mode.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Shadow mode")]
#[group(skip)]
pub struct ShadowSettings {
    /// Decide everything, and write and change nothing: beside another cloud controller manager, /shadow and
    /// `ccmctl shadow diff` show what would be different with this one. Needs rights to read only, and takes part in no
    /// leader election, whatever --leader-elect says.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub shadow: bool,

    /// How long the other controller manager may take for a change before it counts as a difference.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = flag::period)]
    pub shadow_grace: Duration,
}

impl ShadowSettings {
    /// Checks the flags against others.
    pub fn check(&self, use_service_account_credentials: bool, mistakes: &mut Mistakes) {
        if self.shadow && use_service_account_credentials {
            mistakes.refuse(
                "shadow",
                true,
                "cannot be combined with --use-service-account-credentials, which creates ServiceAccounts and tokens",
                "give --use-service-account-credentials=false: in shadow mode no controller writes",
            );
        }
    }
}

/// What something held back is about. By name: the uid is that of the patch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShadowSubject {
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
    fn observe(&self, subject: &ShadowSubject) -> Option<Observed>;
}

/// A call that was held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCall {
    pub controller: &'static str,
    pub subject: ShadowSubject,
    pub method: &'static str,
    /// For people: what it would do, and what is known of it.
    pub what: String,
    /// Whether it only takes over what exists: it never counts as a difference.
    pub takes_over: bool,
}

/// Everything that was held back. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Shadow {
    grace: Duration,
    metrics: ShadowMetrics,
    held: Arc<Mutex<HeldBack>>,
}

#[derive(Debug, Default)]
struct HeldBack {
    writes: BTreeMap<(ShadowSubject, String), Write>,
    calls: BTreeMap<ShadowSubject, KeptCall>,
    /// How much of it the other controller manager did as well, by controller.
    agreements: BTreeMap<&'static str, u64>,
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
struct KeptCall {
    held: HeldCall,
    since: Timestamp,
    asked: Timestamp,
}

impl Shadow {
    pub fn new(settings: &ShadowSettings, metrics: ShadowMetrics) -> Self {
        Self { grace: settings.shadow_grace, metrics, held: Arc::default() }
    }

    /// When to decide again about what was held back.
    pub fn again(&self) -> Duration {
        self.grace / 2
    }

    /// How long something may be missing before it is a difference.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Holds back a write to the object of this uid, field by field.
    pub fn hold_write(
        &self,
        controller: &'static str,
        subject: &ShadowSubject,
        uid: &str,
        fields: Vec<Field>,
    ) {
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
    pub fn hold_deletion(&self, controller: &'static str, subject: &ShadowSubject, uid: &str) {
        let whole = Field { path: String::new(), old: None, new: Value::Null };
        self.hold_write(controller, subject, uid, vec![whole]);
    }

    /// Holds back a call.
    pub fn hold_call(&self, call: HeldCall) {
        let now = clock::now();
        self.metrics.held_back(call.controller);
        let mut held = self.held.lock();
        let is_same =
            |known: &&KeptCall| (known.held.method, known.held.takes_over) == (call.method, call.takes_over);
        let since = held.calls.get(&call.subject).filter(is_same).map_or(now, |known| known.since);
        tracing::debug!(method = call.method, name = call.subject.name, call.what, "held back");
        held.calls.insert(call.subject.clone(), KeptCall { held: call, since, asked: now });
    }

    /// The cloud is as a call would have made it.
    pub fn agreed(&self, controller: &'static str, subject: &ShadowSubject) {
        let mut held = self.held.lock();
        if held.calls.remove(subject).is_some() {
            *held.agreements.entry(controller).or_default() += 1;
            self.metrics.agreed(controller);
        }
    }

    /// Keeps a record in memory.
    pub fn keep_record(&self, at: String, text: String) {
        self.held.lock().records.insert(at, text);
    }

    /// The record kept in memory, if there is one.
    pub fn record(&self, at: &str) -> Option<String> {
        self.held.lock().records.get(at).cloned()
    }

    /// Settles what the other controller did, forgets expired wishes, and shows the rest.
    pub fn review(&self, objects: &dyn Objects, now: Timestamp) -> (Vec<Row>, Vec<Agreed>) {
        let mut held = self.held.lock();
        let HeldBack { writes, calls, agreements, .. } = &mut *held;
        let mut rows = Vec::new();
        writes.retain(|(subject, path), write| {
            let observed = objects.observe(subject);
            let standing = match judge(path, write, observed.as_ref(), now, self.grace) {
                Judgement::Agreed => {
                    *agreements.entry(write.controller).or_default() += 1;
                    self.metrics.agreed(write.controller);
                    return false;
                }
                Judgement::Dropped => return false,
                Judgement::Stands(standing) => standing,
            };
            rows.push(of_write(subject, path, write, observed.as_ref(), standing));
            true
        });
        calls.retain(|subject, call| {
            let standing = of_call(call.held.takes_over, call.since, call.asked, now, self.grace);
            let Some(standing) = standing else { return false };
            let HeldCall { controller, what, .. } = &call.held;
            rows.push(row(controller, subject, standing, what.clone(), call.since));
            true
        });
        let count = |(controller, count): (&&str, &u64)| Agreed {
            controller: (*controller).to_owned(),
            count: *count,
        };
        let agreed = agreements.iter().map(count).collect();
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

fn of_write(
    subject: &ShadowSubject,
    path: &str,
    write: &Write,
    observed: Option<&Observed>,
    standing: Standing,
) -> Row {
    let what = match (path.is_empty(), write.new.is_null()) {
        (true, _) => format!("would delete the {}", subject.kind),
        (false, true) => format!("would remove {}", shown(path)),
        (false, false) => format!("would set {}", shown(path)),
    };
    let now = observed.filter(|_| !path.is_empty()).and_then(|observed| observed.value.pointer(path));
    Row {
        field: path.to_owned(),
        now: now.cloned().unwrap_or_default(),
        would: write.new.clone(),
        ..row(write.controller, subject, standing, what, write.since)
    }
}

/// A row about no field.
fn row(controller: &str, subject: &ShadowSubject, standing: Standing, what: String, since: Timestamp) -> Row {
    Row {
        controller: controller.to_owned(),
        kind: subject.kind.clone(),
        namespace: subject.namespace.clone(),
        name: subject.name.clone(),
        standing,
        what,
        field: String::new(),
        now: Value::Null,
        would: Value::Null,
        since,
    }
}

fn of_controller(controller: &str) -> MetricLabels<1, String> {
    [("controller", controller.to_owned())]
}

/// Metrics of shadow mode.
#[derive(Debug, Clone, Default)]
pub struct ShadowMetrics {
    differences: Family<MetricLabels<1, String>, Gauge>,
    held_back: Family<MetricLabels<1, String>, Counter>,
    agreed: Family<MetricLabels<1, String>, Counter>,
    /// The controllers that ever had a difference: theirs go back to zero.
    known: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl ShadowMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            differences: registry.metric(
                "ccm_shadow_differences",
                "In shadow mode: fields and calls that this host would change and the other controller manager does not",
            ),
            held_back: registry.metric(
                "ccm_shadow_held_back",
                "In shadow mode: writes and calls held back, repeats included",
            ),
            agreed: registry.metric(
                "ccm_shadow_agreed",
                "In shadow mode: fields and calls held back that the other controller manager then did as well",
            ),
            known: Arc::default(),
        }
    }

    /// From now on its metrics are there, with zero.
    pub fn starts(&self, controller: &str) {
        let of = of_controller(controller);
        self.known.lock().entry(controller.to_owned()).or_default();
        drop(self.differences.get_or_create(&of));
        drop(self.held_back.get_or_create(&of));
        drop(self.agreed.get_or_create(&of));
    }

    fn held_back(&self, controller: &str) {
        self.held_back.get_or_create(&of_controller(controller)).inc();
    }

    fn agreed(&self, controller: &str) {
        self.agreed.get_or_create(&of_controller(controller)).inc();
    }

    fn shown(&self, rows: &[Row]) {
        let mut known = self.known.lock();
        known.values_mut().for_each(|count| *count = 0);
        for row in rows.iter().filter(|row| row.standing == Standing::Differs) {
            *known.entry(row.controller.clone()).or_default() += 1;
        }
        for (controller, count) in &*known {
            self.differences.get_or_create(&of_controller(controller)).set(*count);
        }
    }
}

#[cfg(test)]
mod tests;
