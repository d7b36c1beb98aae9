//! Which host leads which cluster, according to `Lead`.
//!
//! In: the hosts' calls of `Lead`. Out: the [`Term`] under which a mutation runs, or its refusal. `rpc::core`
//! ends mutations and background work with their term.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::proto::Fencing;
use crate::{ProviderError, Result};

/// Keyed by cluster uid.
#[derive(Debug, Default)]
pub(crate) struct Leadership(Mutex<HashMap<String, Office>>);

/// The leaders of one cluster.
#[derive(Debug)]
struct Office {
    /// The last leader.
    holder: Fencing,
    term: Term,
    /// Replaced Leases: their leaders never return.
    former: HashSet<String>,
}

/// How long a leader leads.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    end: Arc<watch::Sender<End>>,
    /// Tells what runs in the leader's name to stop. `rpc::core` cancels it with the term.
    pub(crate) give_up: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    At(Instant),
    Over,
}

impl End {
    fn is_past(self) -> bool {
        match self {
            Self::Open => false,
            Self::At(end) => end <= Instant::now(),
            Self::Over => true,
        }
    }
}

impl Leadership {
    /// Records a call of `Lead`. Returns a term if a new one begins; a renewal continues the current one.
    pub(crate) fn hear(
        &self,
        cluster: &str,
        leader: &Fencing,
        valid_for: Option<Duration>,
    ) -> Result<Option<Term>> {
        let end = match valid_for {
            None => End::Open,
            Some(Duration::ZERO) => End::Over,
            // An end beyond the clock's range means no end.
            Some(time) => Instant::now().checked_add(time).map_or(End::Open, End::At),
        };
        let mut offices = self.0.lock();
        let Some(office) = offices.get_mut(cluster) else {
            let term = Term::until(end);
            let office = Office { holder: leader.clone(), term: term.clone(), former: HashSet::new() };
            offices.insert(cluster.to_owned(), office);
            return Ok((end != End::Over).then_some(term));
        };
        office.refuse_former(leader)?;
        if office.holder == *leader && office.term.renew(end) {
            return Ok(None);
        }
        office.term.end.send_replace(End::Over);
        if office.holder.scope != leader.scope && !office.holder.scope.is_empty() {
            office.former.insert(std::mem::take(&mut office.holder.scope));
        }
        office.holder = leader.clone();
        office.term = Term::until(end);
        Ok((end != End::Over).then(|| office.term.clone()))
    }

    /// The term under which a mutation runs; `None` while leader election is off and nobody has ever led.
    pub(crate) fn term(&self, cluster: &str, fencing: &Fencing) -> Result<Option<Term>> {
        match self.0.lock().get(cluster) {
            None if fencing.epoch == 0 => Ok(None),
            Some(office) if office.holder == *fencing && !office.term.is_over() => {
                Ok(Some(office.term.clone()))
            }
            Some(office) => Err(stale(fencing).with_metadata("leader", office.holder.epoch.to_string())),
            None => Err(stale(fencing)),
        }
    }
}

impl Office {
    fn refuse_former(&self, leader: &Fencing) -> Result<()> {
        let lower = self.holder.scope == leader.scope && leader.epoch < self.holder.epoch;
        // A host was started without leader election by mistake.
        let unelected = leader.scope.is_empty() && !self.holder.scope.is_empty() && !self.term.is_over();
        if lower || unelected || self.former.contains(&leader.scope) {
            return Err(stale(leader).with_metadata("leader", self.holder.epoch.to_string()));
        }
        Ok(())
    }
}

pub(crate) fn stale(fencing: &Fencing) -> ProviderError {
    ProviderError::stale_leader(&fencing.scope).with_metadata("epoch", fencing.epoch.to_string())
}

impl Term {
    fn until(end: End) -> Self {
        Self { end: Arc::new(watch::Sender::new(end)), give_up: CancellationToken::new() }
    }

    fn is_over(&self) -> bool {
        self.end.borrow().is_past()
    }

    /// Moves the end, unless it has come: whoever waits for it may know already.
    fn renew(&self, end: End) -> bool {
        self.end.send_if_modified(|last| {
            let goes_on = !last.is_past();
            if goes_on {
                *last = end;
            }
            goes_on
        })
    }

    /// Resolves when the term has ended.
    pub(crate) async fn ended(&self) {
        let mut changes = self.end.subscribe();
        loop {
            let end = *changes.borrow_and_update();
            let over = async {
                match end {
                    End::Open => std::future::pending().await,
                    End::At(end) => sleep_until(end).await,
                    End::Over => {}
                }
            };
            tokio::select! {
                // It may have been renewed at the same moment.
                () = over => {
                    if self.is_over() {
                        return;
                    }
                }
                // The sender lives in `self`.
                _ = changes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ErrorReason;

    const LONG: Option<Duration> = Some(Duration::from_secs(10));

    fn leader(scope: &str, epoch: u64) -> Fencing {
        Fencing { scope: scope.to_owned(), epoch }
    }

    fn is_stale<T: std::fmt::Debug>(result: Result<T>) -> bool {
        result.is_err_and(|error| error.reason() == ErrorReason::StaleLeader)
    }

    #[tokio::test(start_paused = true)]
    async fn who_leads_is_told_as_in_every_sdk() {
        let rows: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../../../../proto/vectors/leadership.json")).unwrap();
        assert!(!rows.is_empty());
        let (leadership, start) = (Leadership::default(), Instant::now());
        for row in &rows {
            let at = Duration::from_secs(row["at"].as_u64().unwrap());
            tokio::time::advance(at - start.elapsed()).await;
            let cluster = row["cluster"].as_str().unwrap_or("c-1");
            let caller = |told: &serde_json::Value| {
                let epoch = &told["epoch"];
                let number = epoch.as_u64().unwrap_or_else(|| epoch.as_str().unwrap().parse().unwrap());
                leader(told["scope"].as_str().unwrap(), number)
            };
            let seconds = |left: i64| Duration::from_secs(left.try_into().unwrap_or_default());
            let refused = match &row["lead"] {
                serde_json::Value::Null => is_stale(leadership.term(cluster, &caller(&row["mutate"]))),
                told => {
                    is_stale(leadership.hear(cluster, &caller(told), row["valid_for"].as_i64().map(seconds)))
                }
            };
            assert_eq!(refused, row["refused"].as_bool().unwrap(), "{row}");
        }
    }

    /// [R:lead-needed]
    #[tokio::test(start_paused = true)]
    async fn only_the_present_leader_may_change_anything() {
        let leadership = Leadership::default();
        assert!(leadership.term("c", &leader("", 0)).unwrap().is_none(), "leader election is off");
        assert!(is_stale(leadership.term("c", &leader("lease", 1))), "nobody led yet");
        assert!(leadership.hear("c", &leader("lease", 1), LONG).unwrap().is_some());
        assert!(leadership.term("c", &leader("lease", 1)).unwrap().is_some());
        for other in [leader("", 0), leader("lease", 0), leader("lease", 2), leader("other", 1)] {
            assert!(is_stale(leadership.term("c", &other)), "{other:?}");
        }
        assert!(leadership.term("d", &leader("", 0)).unwrap().is_none(), "another cluster");
        tokio::time::advance(Duration::from_secs(11)).await;
        for anybody in [leader("lease", 1), leader("", 0)] {
            assert!(is_stale(leadership.term("c", &anybody)), "nobody leads any more");
        }
    }

    /// [R:lead-takes-over]
    #[tokio::test(start_paused = true)]
    async fn a_former_leader_never_comes_back() {
        let leadership = Leadership::default();
        let first = leadership.hear("c", &leader("lease", 1), LONG).unwrap().unwrap();
        let second = leadership.hear("c", &leader("lease", 2), LONG).unwrap().unwrap();
        first.ended().await;
        assert!(is_stale(leadership.hear("c", &leader("", 0), None)), "it was not elected");
        assert!(is_stale(leadership.hear("c", &leader("lease", 1), LONG)));
        assert!(
            leadership.hear("c", &leader("lease", 2), LONG).unwrap().is_none(),
            "renewed, not begun anew"
        );
        leadership.hear("c", &leader("new lease", 1), LONG).unwrap().unwrap();
        second.ended().await;
        assert!(is_stale(leadership.hear("c", &leader("lease", 3), LONG)));
    }

    /// Whoever waits for the end may hear of a renewal only when the former end has passed.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_just_before_the_end_ends_nothing() {
        let leadership = Leadership::default();
        let term = leadership.hear("c", &leader("lease", 1), LONG).unwrap().unwrap();
        let mut ended = std::pin::pin!(term.ended());
        for _ in 0..20 {
            assert!(futures::poll!(ended.as_mut()).is_pending());
            tokio::time::advance(Duration::from_millis(9_980)).await;
            leadership.hear("c", &leader("lease", 1), LONG).unwrap();
            tokio::time::advance(Duration::from_millis(15)).await;
        }
    }

    /// [R:lead-ends]
    #[tokio::test(start_paused = true)]
    async fn a_term_ends_in_time_or_at_a_word_and_is_renewed() {
        let leadership = Leadership::default();
        let start = Instant::now();
        let term = leadership.hear("c", &leader("lease", 1), LONG).unwrap().unwrap();
        tokio::time::advance(Duration::from_secs(6)).await;
        leadership.hear("c", &leader("lease", 1), LONG).unwrap();
        term.ended().await;
        assert_eq!(start.elapsed(), Duration::from_secs(16));
        let again = leadership.hear("c", &leader("lease", 1), LONG).unwrap().unwrap();
        leadership.hear("c", &leader("lease", 1), Some(Duration::ZERO)).unwrap();
        again.ended().await;
        assert!(leadership.hear("d", &leader("lease", 1), Some(Duration::ZERO)).unwrap().is_none());
        assert!(leadership.hear("d", &leader("", 0), None).unwrap().is_some(), "election was turned off");
        assert_eq!(start.elapsed(), Duration::from_secs(16), "at once");
        assert!(is_stale(leadership.term("c", &leader("lease", 1))));
    }
}
