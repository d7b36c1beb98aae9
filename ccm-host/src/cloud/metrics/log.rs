//! The recent calls to one provider, by method, for people: counts, how slow, and the last failure.

use std::{collections::BTreeMap, time::Duration};

use ccm_state::{CallError, Calls};

use crate::{
    clock,
    cloud::{CloudError, error::code_name},
};

/// Calls of one method that count as recent.
const RECENT: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct CallLog {
    methods: BTreeMap<&'static str, Told>,
    last_error: Option<CallError>,
}

#[derive(Debug, Default)]
struct Told {
    count: u64,
    failed: u64,
    seconds: f64,
    /// A ring of the last durations in seconds.
    recent: Vec<f32>,
}

impl CallLog {
    pub(crate) fn ended(&mut self, method: &'static str, ok: bool, took: Duration) {
        let told = self.methods.entry(method).or_default();
        let at = usize::try_from(told.count).unwrap_or_default() % RECENT;
        told.count += 1;
        told.failed += u64::from(!ok);
        told.seconds += took.as_secs_f64();
        match told.recent.get_mut(at) {
            Some(slot) => *slot = took.as_secs_f32(),
            None => told.recent.push(took.as_secs_f32()),
        }
    }

    pub(crate) fn failed(&mut self, error: &CloudError) {
        let code = code_name(error.code);
        let reason = error.reason.map_or_else(String::new, |reason| format!("/{}", reason.wire_name()));
        self.last_error = Some(CallError {
            method: error.method.to_owned(),
            code: format!("{code}{reason}"),
            message: error.message.clone(),
            time: clock::now(),
        });
    }

    pub(crate) fn told(&self) -> (Vec<Calls>, Option<CallError>) {
        let calls = |(method, told): (&&str, &Told)| {
            let mut recent = told.recent.clone();
            recent.sort_by(f32::total_cmp);
            let at = |index: usize| recent.get(index).copied().map(f64::from).unwrap_or_default();
            Calls {
                method: (*method).to_owned(),
                count: told.count,
                failed: told.failed,
                seconds: told.seconds,
                recent_median_seconds: at(recent.len() / 2),
                recent_max_seconds: at(recent.len().saturating_sub(1)),
            }
        };
        (self.methods.iter().map(calls).collect(), self.last_error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_all_calls_and_measures_the_recent_ones() {
        let mut log = CallLog::default();
        log.ended("Get", false, Duration::from_secs(100));
        for _ in 0..RECENT - 1 {
            log.ended("Get", true, Duration::from_secs(2));
        }
        let (calls, _) = log.told();
        assert_eq!((calls[0].count, calls[0].failed, calls[0].recent_max_seconds), (128, 1, 100.0));
        log.ended("Get", true, Duration::from_secs(3));
        let (calls, _) = log.told();
        assert_eq!(
            (calls[0].recent_median_seconds, calls[0].recent_max_seconds),
            (2.0, 3.0),
            "the oldest went"
        );
    }
}
