//! When the certificate of the webhooks is replaced. Pure.
//!
//! Each certificate has an authority of its own, whose key is thrown away: nothing that could sign for the webhooks is
//! ever stored. A certificate that still works is replaced in two steps, so that at no moment the apiserver meets one
//! that it does not trust: first the authority of the next one is announced, later the next one is served.
//!
//! | The one that is served | | Then |
//! |---|---|---|
//! | missing, unreadable, for other hosts, of no known authority, expired | | `Replace`: made anew and served at once |
//! | good | the configuration has other authorities | `Announce` |
//! | good | a third of its life or more is left | `Keep` |
//! | good | less is left, there is no next one | `Prepare` |
//! | good | less is left, the next one was announced a while ago | `Promote` |

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// From the making of a certificate to its end.
pub(super) const LIFE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// A new certificate is due with less than this left.
const EARLY: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Validity begins this long before the making: clocks differ.
pub(super) const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// Every apiserver has heard of a new authority after this.
const SETTLED: Duration = Duration::from_secs(120);

/// When a certificate that is good in every other respect is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// Of the certificate that is served; `None` if there is none, or one of no use.
    pub(super) serving: Option<Validity>,
    /// Of the one that is served next.
    pub(super) next: Option<Validity>,
    /// Whether the configuration has exactly the authorities of the Secret.
    pub(super) is_announced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Keep,
    /// Write the authorities into the configuration.
    Announce,
    /// Make the next certificate.
    Prepare,
    /// Serve the next certificate.
    Promote,
    /// Make a certificate and serve it.
    Replace,
}

pub(super) fn step(facts: Facts, now: Timestamp) -> Step {
    let good = |validity: Validity| validity.from <= now && now < validity.until;
    let next = facts.next.filter(|next| good(*next));
    let Some(serving) = facts.serving.filter(|serving| good(*serving)) else {
        return if next.is_some() { Step::Promote } else { Step::Replace };
    };
    if !facts.is_announced {
        return Step::Announce;
    }
    if serving.until.duration_since(now) >= signed(EARLY) {
        return Step::Keep;
    }
    match next {
        None => Step::Prepare,
        Some(next) if now.duration_since(next.from) >= signed(BACKDATED + SETTLED) => Step::Promote,
        Some(_) => Step::Keep,
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that was made so many days ago.
    fn made(days: i64) -> Validity {
        let at = NOW - SignedDuration::from_hours(24 * days);
        Validity { from: at - signed(BACKDATED), until: at + signed(LIFE) }
    }

    fn minutes_ago(minutes: i64) -> Validity {
        let at = NOW - SignedDuration::from_mins(minutes);
        Validity { from: at - signed(BACKDATED), until: at + signed(LIFE) }
    }

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    #[test]
    fn each_state_has_its_step() {
        let (young, old, dead) = (Some(made(1)), Some(made(61)), Some(made(91)));
        let future = Some(Validity { from: NOW + SignedDuration::from_hours(1), ..made(0) });
        let (fresh, settled) = (Some(minutes_ago(1)), Some(minutes_ago(3)));
        let rows = [
            ("nothing yet", None, None, false, Step::Replace),
            ("unusable, though announced", None, None, true, Step::Replace),
            ("expired", dead, None, true, Step::Replace),
            ("not valid yet: a clock went back", future, None, true, Step::Replace),
            ("expired, with a next one", dead, fresh, true, Step::Promote),
            ("lost, with a next one", None, settled, false, Step::Promote),
            ("both expired", dead, dead, true, Step::Replace),
            ("made, not announced", young, None, false, Step::Announce),
            ("somebody wrote the configuration", old, settled, false, Step::Announce),
            ("young", young, None, true, Step::Keep),
            ("exactly a third is left", Some(made(60)), None, true, Step::Keep),
            ("less is left", old, None, true, Step::Prepare),
            ("the next one is new", old, fresh, true, Step::Keep),
            ("the next one is known everywhere", old, settled, true, Step::Promote),
            ("the next one expired", old, dead, true, Step::Prepare),
        ];
        for (row, serving, next, is_announced, want) in rows {
            assert_eq!(step(Facts { serving, next, is_announced }, NOW), want, "{row}");
        }
    }

    /// A whole rotation, in which the apiserver trusts what is served at every moment.
    #[test]
    fn a_rotation_comes_to_rest() {
        let mut facts = Facts { serving: Some(made(61)), next: None, is_announced: true };
        assert_eq!(step(facts, NOW), Step::Prepare);
        facts = Facts { next: Some(minutes_ago(0)), is_announced: false, ..facts };
        assert_eq!(step(facts, NOW), Step::Announce);
        facts.is_announced = true;
        assert_eq!(step(facts, NOW), Step::Keep);
        let later = NOW + signed(SETTLED);
        assert_eq!(step(facts, later), Step::Promote);
        facts = Facts { serving: facts.next, next: None, is_announced: true };
        assert_eq!(step(facts, later), Step::Keep);
    }
}
