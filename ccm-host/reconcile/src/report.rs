//! What is wrong with an object, or what it waits for: one value for its Event, its line in the log, its metric, its retry
//! and its line in `/state`.
//!
//! In: the reports of one pass over a key. Out: what changed, reported once, and the outcome for the queue. A controller
//! ends every pass over a key with [`Reports::set`] or [`Reports::clear`]; what to report is decided in its `decide`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use ccm_state::{Explanation, Standing};
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::Retry;
use ccm_base::{
    clock,
    metric::{Declare as _, MetricLabels},
    text::{MESSAGE, cut},
};
use ccm_cloud::CloudError;
use ccm_kube::{
    events::{EventType, Recorder, Regarding},
    queue::{Key, Outcome, WorkQueue},
};

/// About as long as it takes to replace a container.
const REPLACEMENT: Duration = Duration::from_secs(10);

/// One thing that is wrong with an object, or that it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// [`Standing::Blocked`] if it needs an operator, [`Standing::Waiting`] if it may, and
    /// [`Standing::LeftAlone`] if the host wants no more.
    pub standing: Standing,
    /// `CamelCase`, for the metric and `/state`; a controller has a few dozen at most.
    pub reason: &'static str,
    /// A sentence for people, which may quote what strangers wrote and is cut; an error of a provider follows it.
    pub message: String,
    /// When to look again. Not part of what is reported: another retry alone is not reported again.
    pub retry: Retry,
    /// The type and reason of its Event, if it deserves one.
    pub event: Option<(EventType, &'static str)>,
    /// The label and the words of the provider's error that it is about. Other words alone are not reported again: clouds
    /// put the ids of requests into them.
    pub error: Option<Box<(&'static str, String)>>,
    /// It is about a provider that is being replaced: it counts as waiting, and its Event waits, until the key has failed
    /// for `REPLACEMENT`, since the next process answers soon.
    pub may_pass: bool,
}

impl Report {
    /// It waits for something that may pass by itself, and so raises no Event.
    pub fn waiting(reason: &'static str, message: impl Into<String>, retry: Retry) -> Self {
        Self {
            standing: Standing::Waiting,
            reason,
            message: cut(&message.into(), MESSAGE).into_owned(),
            retry,
            event: None,
            error: None,
            may_pass: false,
        }
    }

    /// It is held up by a provider's error, which says when to look again; for an object that no sweep looks at again.
    /// `message` is what could not be done.
    pub fn failed(reason: &'static str, message: impl Into<String>, error: &CloudError) -> Self {
        Self {
            error: Some(Box::new((error.label(), cut(&error.to_string(), MESSAGE).into_owned()))),
            may_pass: error.is_of_replacement(),
            ..Self::blocked(reason, message, Retry::without_sweep(error))
        }
    }

    /// It is held up by something that an operator has to fix.
    pub fn blocked(reason: &'static str, message: impl Into<String>, retry: Retry) -> Self {
        Self { standing: Standing::Blocked, ..Self::waiting(reason, message, retry) }
    }

    /// The host leaves it alone until it changes.
    pub fn left_alone(reason: &'static str, message: impl Into<String>) -> Self {
        Self { standing: Standing::LeftAlone, ..Self::waiting(reason, message, Retry::Wait) }
    }

    /// Raises a Warning with this reason.
    #[must_use]
    pub fn warning(self, event: &'static str) -> Self {
        Self { event: Some((EventType::Warning, event)), ..self }
    }

    /// Whether both say the same.
    fn is_same(&self, other: &Self) -> bool {
        let said = |one: &Self| {
            let label = one.error.as_ref().map(|error| error.0);
            (one.standing, one.reason, one.event, label)
        };
        said(self) == said(other) && self.message == other.message
    }

    /// All that there is to say.
    pub fn words(&self) -> String {
        match self.error.as_deref() {
            Some((label, error)) => format!("{}: {error} ({label})", self.message),
            None => self.message.clone(),
        }
    }
}

/// How many reports there are, of all controllers. Cheap to clone.
pub type ReportCounts = Family<MetricLabels<3>, Gauge>;

pub fn report_counts(registry: &mut Registry) -> ReportCounts {
    registry.metric(
        "ccm_reports",
        "What objects wait for or are blocked by, by controller, standing (Waiting, Blocked, LeftAlone) and reason",
    )
}

/// The reports of a controller, by key. Only keys with reports take memory.
pub struct Reports<K: Key> {
    controller: &'static str,
    recorder: Recorder,
    queue: Arc<WorkQueue<K>>,
    counts: ReportCounts,
    entries: Mutex<Entries<K>>,
}

struct Entries<K> {
    by_key: HashMap<K, Entry>,
    /// The keys with reports about each object, by uid.
    by_object: HashMap<String, HashSet<K>>,
}

#[derive(Debug, Default)]
struct Entry {
    about: Option<Regarding>,
    reports: Vec<Report>,
    /// When the last pass ended.
    at: Timestamp,
}

impl<K: Key> Debug for Reports<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.lock();
        out.debug_struct("Reports").field("by_key", &entries.by_key).finish_non_exhaustive()
    }
}

impl<K: Key> Reports<K> {
    /// `recorder` records the Events, `queue` knows when a key is looked at next.
    pub fn new(
        controller: &'static str,
        recorder: Recorder,
        queue: Arc<WorkQueue<K>>,
        counts: ReportCounts,
    ) -> Self {
        let entries = Mutex::new(Entries { by_key: HashMap::new(), by_object: HashMap::new() });
        Self { controller, recorder, queue, counts, entries }
    }

    /// All that is to be said about the key now. What was not said before is logged, and recorded as an Event on the object
    /// `about`; `None` records none. Everything is new about another object of the same name. Returns the outcome of the
    /// pass: the soonest retry.
    pub fn set(&self, key: &K, about: Option<Regarding>, mut reports: Vec<Report>) -> Outcome {
        let outcome = outcome(&reports);
        if self.queue.failing_for(key) < REPLACEMENT {
            let passing = reports.iter_mut().filter(|report| report.may_pass);
            passing.for_each(|report| (report.standing, report.event) = (Standing::Waiting, None));
        }
        let news = self.replace(key, about.clone(), reports);
        for report in news {
            let (controller, message) = (self.controller, report.words());
            let Report { standing, reason, event, .. } = report;
            match standing {
                Standing::Blocked => tracing::warn!(controller, %key, reason, message, "blocked"),
                Standing::Waiting => tracing::info!(controller, %key, reason, message, "waiting"),
                Standing::LeftAlone | Standing::Settled => {
                    tracing::debug!(controller, %key, reason, message, "left alone");
                }
            }
            if let (Some(about), Some((type_, event))) = (&about, event) {
                self.recorder.record(about, type_, event, message);
            }
        }
        outcome
    }

    /// Nothing is to be said about the key any more, or its object is gone.
    pub fn clear(&self, key: &K) -> Outcome {
        self.set(key, None, Vec::new())
    }

    /// What is said about the key.
    pub fn of(&self, key: &K) -> Vec<Report> {
        self.entries.lock().by_key.get(key).map(|entry| entry.reports.clone()).unwrap_or_default()
    }

    /// What is said about the object with this uid, for `/state`.
    pub fn about(&self, uid: &str) -> Vec<Explanation> {
        let entries = self.entries.lock();
        let keys = entries.by_object.get(uid).into_iter().flatten();
        let all = keys.filter_map(|key| Some((key, entries.by_key.get(key)?)));
        all.flat_map(|(key, entry)| {
            entry.reports.iter().map(|report| self.explanation(key, entry.at, report))
        })
        .collect()
    }

    /// All reports, for `/state`, by key.
    pub fn all(&self) -> Vec<ccm_state::Report> {
        let entries = self.entries.lock();
        let sorted: BTreeMap<_, _> = entries.by_key.iter().collect();
        let of_entry = |(key, entry): (&K, &Entry)| {
            let about = entry.about.as_ref();
            let object = about.map(|about| match &about.namespace {
                Some(namespace) => format!("{} {namespace}/{}", about.kind, about.name),
                None => format!("{} {}", about.kind, about.name),
            });
            let report = |report| ccm_state::Report {
                key: key.to_string(),
                object: object.clone(),
                explanation: self.explanation(key, entry.at, report),
            };
            entry.reports.iter().map(report).collect::<Vec<_>>()
        };
        sorted.into_iter().flat_map(of_entry).collect()
    }

    fn explanation(&self, key: &K, at: Timestamp, report: &Report) -> Explanation {
        let next = match report.retry {
            Retry::Wait => "the host looks again when it or what it waits for changes, or at its next sweep",
            Retry::Backoff | Retry::After(_) => "the host looks again by itself, and when it changes",
        };
        Explanation {
            from: self.controller.to_owned(),
            standing: report.standing,
            reason: report.reason.to_owned(),
            why: report.words(),
            next: next.to_owned(),
            retries: self.queue.retries(key),
            last_attempt: Some(at),
            next_attempt: self.queue.due(key).map(clock::at),
        }
    }

    /// Replaces the reports, and returns those that are new.
    fn replace(&self, key: &K, about: Option<Regarding>, reports: Vec<Report>) -> Vec<Report> {
        let mut entries = self.entries.lock();
        let before = entries.take(key);
        before.reports.iter().for_each(|report| self.count(report, -1));
        reports.iter().for_each(|report| self.count(report, 1));
        let is_same_object = before.about == about;
        let is_old = |report: &Report| is_same_object && before.reports.iter().any(|old| old.is_same(report));
        let news = reports.iter().filter(|report| !is_old(report)).cloned().collect();
        entries.put(key, Entry { about, reports, at: clock::now() });
        news
    }

    fn count(&self, report: &Report, more: i64) {
        let standing = match report.standing {
            Standing::Settled => "Settled",
            Standing::LeftAlone => "LeftAlone",
            Standing::Waiting => "Waiting",
            Standing::Blocked => "Blocked",
        };
        let labels = [("controller", self.controller), ("standing", standing), ("reason", report.reason)];
        self.counts.get_or_create(&labels).inc_by(more);
    }
}

impl<K: Key> Entries<K> {
    fn take(&mut self, key: &K) -> Entry {
        let entry = self.by_key.remove(key).unwrap_or_default();
        if let Some(about) = &entry.about
            && let Some(keys) = self.by_object.get_mut(&about.uid)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_object.remove(&about.uid);
            }
        }
        entry
    }

    fn put(&mut self, key: &K, entry: Entry) {
        if entry.reports.is_empty() {
            return;
        }
        if let Some(about) = &entry.about {
            self.by_object.entry(about.uid.clone()).or_default().insert(key.clone());
        }
        self.by_key.insert(key.clone(), entry);
    }
}

/// The soonest retry. A failure comes first: its backoff must grow.
fn outcome(reports: &[Report]) -> Outcome {
    let failed = reports.iter().find(|report| report.retry == Retry::Backoff);
    let soonest = reports.iter().filter_map(|report| report.retry.delay(Duration::ZERO)).min();
    match (failed, soonest) {
        (Some(report), _) => Outcome::retry(report.words()),
        (None, Some(delay)) => Outcome::RetryAfter(delay),
        (None, None) => Outcome::Done,
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use ccm_cloud::{
        ErrorReason,
        fake::{error, method},
    };
    use ccm_kube::{
        KubeMetrics,
        fixtures::{Recorded, node, recorder},
        queue::Backoff,
    };

    struct Scene {
        reports: Reports<String>,
        recorded: Recorded,
        registry: Registry,
    }

    fn scene() -> Scene {
        let (mut registry, (recorder, recorded)) = (Registry::default(), recorder());
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(60) };
        let queue = WorkQueue::new("test", backoff, &KubeMetrics::default().queue);
        let reports = Reports::new("test", recorder, queue, report_counts(&mut registry));
        Scene { reports, recorded, registry }
    }

    impl Scene {
        fn set(&self, uid: &str, reports: Vec<Report>) -> Outcome {
            self.reports.set(&"a".to_owned(), Some((&node("a").uid(uid)).into()), reports)
        }

        /// The messages of the Events since the last call.
        fn events(&self) -> Vec<String> {
            self.recorded.take().into_iter().map(|(_, _, message)| message).collect()
        }

        fn gauge(&self, reason: &str) -> Option<String> {
            let mut text = String::new();
            encode(&mut text, &self.registry).unwrap();
            let labels = format!("{{controller=\"test\",standing=\"Blocked\",reason=\"{reason}\"}} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&format!("ccm_reports{labels}")).map(str::to_owned))
        }
    }

    fn report(reason: &'static str, message: &str) -> Report {
        Report::blocked(reason, message, Retry::Wait).warning("Bad")
    }

    /// M6: a tenant's annotation, root's words on a worker and a provider's errors are quoted in it.
    #[test]
    fn what_it_quotes_is_cut() {
        let long = "ä".repeat(250 << 10);
        let told = CloudError { message: long.clone(), ..error(method::ENSURE_ROUTE, None) };
        let report = Report::failed("A", long, &told);
        let said = report.error.as_ref().map_or(0, |said| said.1.len());
        assert!(report.message.len() <= MESSAGE && (1..=MESSAGE).contains(&said), "{report:?}");
    }

    #[tokio::test]
    async fn each_report_is_made_once_for_as_long_as_it_stays() {
        let scene = scene();
        scene.set("1", vec![report("A", "a")]);
        scene.set("1", vec![Report { retry: Retry::Backoff, ..report("A", "a") }]);
        assert_eq!(scene.events(), ["a"], "another retry is not reported again");
        scene.set("1", vec![report("A", "a"), report("B", "b")]);
        assert_eq!(scene.events(), ["b"]);
        scene.set("1", vec![report("A", "other")]);
        assert_eq!(scene.events(), ["other"]);
        scene.set("2", vec![report("A", "other")]);
        assert_eq!(scene.events(), ["other"], "another object of its name");
        scene.reports.clear(&"a".to_owned());
        scene.set("2", vec![report("A", "other")]);
        assert_eq!(scene.events(), ["other"], "it came back");
        scene.set("2", vec![Report { event: None, ..report("A", "quiet") }]);
        assert!(scene.events().is_empty());
        scene.set("2", vec![report("A", "quiet")]);
        assert_eq!(scene.events(), ["quiet"], "it deserves an Event by now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_is_replaced_is_waited_for_without_an_event() {
        let scene = scene();
        let ending = error(method::ENSURE_ROUTE, Some(ErrorReason::ShuttingDown));
        let failed = || vec![Report::failed("ProviderFailed", "ending", &ending).warning("Bad")];
        let queue = &scene.reports.queue;
        queue.add_rate_limited("a".to_owned());
        scene.set("1", failed());
        tokio::time::advance(REPLACEMENT / 2).await;
        scene.set("1", failed());
        assert!(scene.events().is_empty());
        tokio::time::advance(REPLACEMENT / 2).await;
        scene.set("1", failed());
        scene.set("1", failed());
        assert_eq!(scene.events().len(), 1, "it stays away");
        assert_eq!(scene.reports.of(&"a".to_owned()).len(), 1);
    }

    #[tokio::test]
    async fn a_providers_error_is_told_again_when_it_is_another_one() {
        let scene = scene();
        let failed = |reason, message: &str| {
            let error = CloudError { message: message.to_owned(), ..error("Do", Some(reason)) };
            vec![Report::failed("ProviderFailed", "not done", &error).warning("Bad")]
        };
        scene.set("1", failed(ErrorReason::CloudPermissionDenied, "request 1"));
        scene.set("1", failed(ErrorReason::CloudPermissionDenied, "request 2"));
        assert_eq!(scene.events(), ["not done: Do: request 1 (CLOUD_PERMISSION_DENIED)"]);
        assert_eq!(scene.reports.about("1")[0].why, "not done: Do: request 2 (CLOUD_PERMISSION_DENIED)");
        scene.set("1", failed(ErrorReason::QuotaExceeded, "request 3"));
        assert_eq!(scene.events(), ["not done: Do: request 3 (QUOTA_EXCEEDED)"]);
    }

    #[tokio::test]
    async fn metric_and_state_follow() {
        let scene = scene();
        scene.set("1", vec![report("A", "a"), report("B", "b")]);
        assert_eq!([scene.gauge("A"), scene.gauge("B")], [Some("1".to_owned()), Some("1".to_owned())]);
        let said = scene.reports.about("1");
        assert_eq!(said.iter().map(|one| one.why.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let all = scene.reports.all();
        assert_eq!((all.len(), all[0].object.as_deref()), (2, Some("Node a")));
        scene.set("2", vec![report("B", "b")]);
        assert_eq!([scene.gauge("A"), scene.gauge("B")], [Some("0".to_owned()), Some("1".to_owned())]);
        assert!(scene.reports.about("1").is_empty());
        assert_eq!(scene.reports.clear(&"a".to_owned()), Outcome::Done);
        assert!(scene.reports.all().is_empty() && scene.reports.about("2").is_empty());
        assert_eq!(scene.gauge("B").as_deref(), Some("0"));
    }

    #[tokio::test]
    async fn the_soonest_retry_counts_and_a_failure_first() {
        let retrying = |retry| Report { retry, ..report("A", "a") };
        let after = |seconds| Retry::After(Duration::from_secs(seconds));
        let rows = [
            (vec![], Outcome::Done),
            (vec![Retry::Wait], Outcome::Done),
            (vec![Retry::Wait, after(60), after(5)], Outcome::RetryAfter(Duration::from_secs(5))),
            (vec![after(5), Retry::Backoff], Outcome::Retry("a".to_owned())),
        ];
        for (retries, want) in rows {
            assert_eq!(
                scene().set("1", retries.iter().copied().map(retrying).collect()),
                want,
                "{retries:?}"
            );
        }
    }
}
