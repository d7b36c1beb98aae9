//! Decides when a call that is not full is due.
//!
//! A lone question waits for [`QUIET`] and no longer. While more questions keep coming the call waits for them, up to
//! [`PATIENCE`]. Under a steady stream, the distance between calls grows, up to [`WIDEST`], for as long as growing
//! gathers more questions: questions that arrive late in the gap between two calls show that the stream goes on by
//! itself. Callers that ask again only after an answer arrive early in the gap and are not held up.

use std::time::Duration;

use tokio::time::Instant;

/// The silence after which a call is due.
pub(super) const QUIET: Duration = Duration::from_millis(5);
/// The longest that a first call waits while questions keep coming.
const PATIENCE: Duration = Duration::from_millis(25);
/// Questions that come later than this after a call are not part of a stream. Bounds the rate of such calls.
const IDLE: Duration = Duration::from_millis(50);
/// The largest distance between two calls that are not full.
pub(super) const WIDEST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Pace {
    distance: Duration,
    departed: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { distance: QUIET, departed: None }
    }
}

impl Pace {
    /// When questions are due that arrived between `first` and `last`.
    pub(super) fn due(&self, first: Instant, last: Instant) -> Instant {
        let quiet = (last + QUIET).min(first + PATIENCE);
        self.departed.map_or(quiet, |departed| quiet.max(departed + self.distance))
    }

    /// Records a call whose questions arrived between `first` and `last`.
    pub(super) fn departed(&mut self, now: Instant, first: Instant, last: Instant, full: bool) {
        if let Some(before) = self.departed.replace(now) {
            let idle = first > before + IDLE.max(self.distance * 2);
            let late = last.saturating_duration_since(before) >= now.saturating_duration_since(before) / 2;
            self.distance = if idle {
                QUIET
            } else if full {
                // A burst says nothing about a stream.
                self.distance
            } else if late {
                (self.distance * 2).min(WIDEST)
            } else {
                (self.distance / 2).max(QUIET)
            };
        }
    }
}
