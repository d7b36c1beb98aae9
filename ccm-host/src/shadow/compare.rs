//! Whether something held back is a difference. Pure.

use std::time::Duration;

use ccm_state::shadow::Standing;
use jiff::Timestamp;
use serde_json::Value;

use super::{Observed, Write, fields::comparable};

/// How long it takes at least until what nobody asks for again is dropped: a pass may be slow.
const SLACK: Duration = Duration::from_secs(20);

/// Annotations in which the host remembers something: nobody else reads them.
const NOTES: &str = "/metadata/annotations/cloudprovider.ccm~1";

/// The times of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) grace: Duration,
    /// When a controller decides again about what was held back.
    pub(super) again: Duration,
    /// After which it does not want any more what it did not ask for again.
    lapse: Duration,
}

/// What becomes of a write that was held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The other controller did the same.
    Agreed,
    /// Nobody wants it any more, or its object is gone.
    Dropped,
    Stands(Standing),
}

impl Times {
    pub(super) fn of(grace: Duration) -> Self {
        Self { grace, again: grace / 2, lapse: grace + SLACK }
    }

    fn is_over(limit: Duration, since: Timestamp, now: Timestamp) -> bool {
        Duration::try_from(now.duration_since(since)).is_ok_and(|age| age >= limit)
    }

    fn standing(&self, since: Timestamp, now: Timestamp) -> Standing {
        if Self::is_over(self.grace, since, now) { Standing::Differs } else { Standing::Pending }
    }

    /// Of a call; `None` if nobody wants it any more. One that takes over stays: it is made once.
    pub(super) fn of_call(
        &self,
        takes_over: bool,
        since: Timestamp,
        asked: Timestamp,
        now: Timestamp,
    ) -> Option<Standing> {
        match takes_over {
            true => Some(Standing::Once),
            false if Self::is_over(self.lapse, asked, now) => None,
            false => Some(self.standing(since, now)),
        }
    }
}

/// Compares a write with the object as it is.
pub(super) fn judge(
    path: &str,
    write: &Write,
    observed: Option<&Observed>,
    now: Timestamp,
    times: &Times,
) -> Judgement {
    let is_deletion = path.is_empty();
    let observed = match observed.filter(|observed| observed.uid == write.uid) {
        Some(observed) => observed,
        None if is_deletion => return Judgement::Agreed,
        None => return Judgement::Dropped,
    };
    let value = comparable(path, observed.value.pointer(path).unwrap_or(&Value::Null));
    if !is_deletion && value == comparable(path, &write.new) {
        return Judgement::Agreed;
    }
    if Times::is_over(times.lapse, write.asked, now) {
        return Judgement::Dropped;
    }
    if path.starts_with(NOTES) {
        return Judgement::Stands(Standing::Once);
    }
    // The basis has changed: the controller is about to decide again.
    let is_overtaken = write.old.as_ref().is_some_and(|old| comparable(path, old) != value);
    Judgement::Stands(if is_overtaken { Standing::Pending } else { times.standing(write.since, now) })
}
