//! Starts shadow mode, if the flags enable it, and puts its report together.

use std::time::Duration;

use ccm_state::{
    API_VERSION,
    shadow::{Row, ShadowReport, Standing, Verdict},
};
use jiff::Timestamp;
use tokio::time::sleep;

use crate::{
    clock,
    controllers::Parts,
    manager::{health::Probe, process::Process},
    shadow::{Metrics, Shadow},
};

/// How often what is held back is compared, at least.
const OFTEN: Duration = Duration::from_secs(10);

/// What is held back, and what it is compared with.
#[derive(Debug, Clone)]
pub(super) struct Comparison {
    shadow: Shadow,
    parts: Parts,
    started: Timestamp,
}

/// An object of which nothing certain is known: kind, namespace, name, why.
type Blocked = (&'static str, String, String, String);

/// `None` unless this process runs in shadow mode, which `/readyz` then names.
pub(super) fn start(process: &Process) -> Option<Shadow> {
    let metrics = process.metrics().register(Metrics::register);
    let settings = process.settings();
    process.settings().shadow.shadow.then(|| {
        tracing::info!("shadow mode: everything is decided, nothing is written or changed");
        process.checks().add(Probe::Ready, "shadow", || Ok(()));
        settings.enabled.iter().for_each(|controller| metrics.starts(controller.name));
        Shadow::new(&settings.shadow, metrics)
    })
}

/// Compares from now on.
pub(super) fn compare(process: &Process, shadow: Shadow, parts: Parts) -> Comparison {
    let comparison = Comparison { shadow, parts, started: clock::now() };
    let comparing = comparison.clone();
    process.spawn_support("shadow", |stop| async move {
        let pause = (comparing.shadow.grace() / 4).min(OFTEN);
        while stop.run_until_cancelled(sleep(pause)).await.is_some() {
            comparing.shadow.review(&comparing.parts, clock::now());
        }
        Ok(())
    });
    comparison
}

impl Comparison {
    /// `not_ready`: the failing checks of readiness.
    pub(super) fn report(&self, not_ready: Vec<String>, blocked: Vec<Blocked>) -> ShadowReport {
        let now = clock::now();
        let (rows, agreed) = self.shadow.review(&self.parts, now);
        let mut unknown = not_ready;
        let runs = Duration::try_from(now.duration_since(self.started)).unwrap_or_default();
        if runs < self.shadow.grace() {
            let grace = self.shadow.grace();
            unknown
                .push(format!("this host compares for {}s only: ask again after {grace:?}", runs.as_secs()));
        }
        let lacks_row = |(_, namespace, name, _): &&Blocked| {
            !rows.iter().any(|row| row.namespace == *namespace && row.name == *name)
        };
        unknown.extend(blocked.iter().filter(lacks_row).map(|(kind, namespace, name, why)| {
            let at = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
            format!("{kind} {at}: {why}")
        }));
        unknown.extend(undecided(&rows, self.shadow.grace()));
        let verdict = verdict(&rows, &unknown);
        ShadowReport {
            api_version: API_VERSION.to_owned(),
            kind: "ShadowReport".to_owned(),
            time: now,
            grace_seconds: self.shadow.grace().as_secs(),
            verdict,
            unknown,
            rows,
            agreed,
        }
    }
}

/// What the other controller manager may still do, in words.
fn undecided(rows: &[Row], grace: Duration) -> Option<String> {
    let pending = rows.iter().filter(|row| row.standing == Standing::Pending).count();
    (pending > 0).then(|| format!("pending changes: {pending}; ask again after {grace:?}"))
}

fn verdict(rows: &[Row], unknown: &[String]) -> Verdict {
    match rows.iter().any(|row| row.standing == Standing::Differs) {
        true => Verdict::WouldChange,
        false if unknown.is_empty() => Verdict::NothingWouldChange,
        false => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_decides_and_a_pending_one_leaves_it_open() {
        let row = |standing| Row {
            controller: String::new(),
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
            standing,
            what: String::new(),
            field: String::new(),
            now: serde_json::Value::Null,
            would: serde_json::Value::Null,
            since: Timestamp::UNIX_EPOCH,
        };
        for (standings, want) in [
            (vec![], Verdict::NothingWouldChange),
            (vec![Standing::Once], Verdict::NothingWouldChange),
            (vec![Standing::Once, Standing::Pending], Verdict::Unknown),
            (vec![Standing::Pending, Standing::Differs], Verdict::WouldChange),
        ] {
            let rows: Vec<_> = standings.iter().copied().map(row).collect();
            let unknown: Vec<_> = undecided(&rows, Duration::from_secs(120)).into_iter().collect();
            assert_eq!(verdict(&rows, &unknown), want, "{standings:?}");
        }
    }
}
