//! Items that made a provider crash or hang, and are therefore sent alone.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cloud::CloudError;

/// An offender is forgotten after this long without a failure.
const FORGET: Duration = Duration::from_secs(3600);
/// The maximum number of offenders; more would not be exceptions.
const MOST: usize = 1000;
/// The first backoff of an offender, where the host paces it; it doubles.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);
/// How long batches are not split after nothing worked.
const SICK: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Offenders {
    /// Callers ask again and again, so the backoff of offenders is kept here.
    paced: bool,
    state: Mutex<State>,
}

/// How to send an item.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// With others: it is no offender.
    Together,
    Alone,
    /// Not yet; until then, this is its answer.
    TooEarly(CloudError),
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<String, Offence>,
    sick_until: Option<Instant>,
}

#[derive(Debug)]
struct Offence {
    error: CloudError,
    times: u32,
    at: Instant,
}

impl Offence {
    fn pause(&self) -> Duration {
        (FIRST * 2_u32.saturating_pow(self.times.min(10))).min(LONGEST)
    }
}

impl Offenders {
    /// For reads that are repeated whatever the answer: offenders back off here.
    pub(crate) fn paced() -> Self {
        Self { paced: true, state: Mutex::default() }
    }

    /// For changes that already back off elsewhere.
    pub(crate) fn unpaced() -> Self {
        Self { paced: false, state: Mutex::default() }
    }

    pub(super) fn treatment(&self, subject: &str, now: Instant) -> Treatment {
        let state = self.state.lock();
        let Some(offence) = state.known.get(subject) else { return Treatment::Together };
        let left = (offence.at + offence.pause()).saturating_duration_since(now);
        if self.paced && !left.is_zero() {
            return Treatment::TooEarly(CloudError { retry_after: Some(left), ..offence.error.clone() });
        }
        Treatment::Alone
    }

    /// Records an item that failed alone. It is an offender from now on if `proven`, or if it was one before.
    pub(super) fn failed(&self, subject: &str, error: &CloudError, proven: bool, now: Instant) {
        let mut state = self.state.lock();
        let State { known, .. } = &mut *state;
        known.retain(|_, offence| now.saturating_duration_since(offence.at) < FORGET);
        if let Some(offence) = known.get_mut(subject) {
            *offence = Offence { error: error.clone(), times: offence.times + 1, at: now };
        } else if proven && known.len() < MOST {
            known.insert(subject.to_owned(), Offence { error: error.clone(), times: 0, at: now });
        }
    }

    pub(super) fn forgive(&self, subject: &str) {
        self.state.lock().known.remove(subject);
    }

    /// Records that no part of a batch got an answer.
    pub(super) fn nothing_works(&self, now: Instant) {
        self.state.lock().sick_until = Some(now + SICK);
    }

    pub(super) fn does_nothing_work(&self, now: Instant) -> bool {
        self.state.lock().sick_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::status;

    /// N8.
    #[test]
    fn an_offender_is_asked_about_ever_less_often_until_it_is_forgiven() {
        let error = status::unavailable("M", "broken");
        let offenders = Offenders::paced();
        let mut now = Instant::now();
        offenders.failed("n", &error, false, now);
        assert_eq!(
            offenders.treatment("n", now),
            Treatment::Together,
            "that it failed alone proves nothing by itself"
        );
        let mut pauses = Vec::new();
        for _ in 0..9 {
            offenders.failed("n", &error, true, now);
            let Treatment::TooEarly(error) = offenders.treatment("n", now) else { panic!("too early") };
            let left = error.retry_after.unwrap();
            pauses.push(left.as_secs());
            now += left;
            assert_eq!(offenders.treatment("n", now), Treatment::Alone, "it may be asked about, alone");
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        offenders.forgive("n");
        assert_eq!(offenders.treatment("n", now), Treatment::Together);

        let unpaced = Offenders::unpaced();
        unpaced.failed("n", &error, true, now);
        assert_eq!(unpaced.treatment("n", now), Treatment::Alone);
        unpaced.failed("m", &error, true, now + FORGET);
        assert_eq!(unpaced.treatment("n", now), Treatment::Together, "forgotten");
    }

    #[test]
    fn offenders_are_few() {
        let offenders = Offenders::paced();
        for i in 0..MOST * 2 {
            offenders.failed(&i.to_string(), &status::unavailable("M", ""), true, Instant::now());
        }
        assert_eq!(offenders.state.lock().known.len(), MOST);
    }
}
