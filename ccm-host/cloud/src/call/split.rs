//! Sends batches, and splits one that failed as a whole, so that one bad item does not fail the others.
//!
//! In: a batch, and how to make one call from items. Out: the answer to each item, landed as soon as it is known. A
//! batch that was too large is halved. A batch that one item may have spoilt (a method panics or hangs on it) is
//! sent in a few parts, and the failing parts are split again, as long as some parts show that the provider works at
//! all. An item that fails alone becomes an offender and is sent alone from then on. Batches that are too large, or take
//! too long only because of their size, make the next ones smaller.
//!
//! ```text
//! [500] fails ─► 8 × [63] ─► 7 answered, 1 fails ─► 8 × [8] ─► 7 answered ─► 8 × [1] ─► the one is an offender
//! ```

use std::{collections::HashMap, marker::PhantomData, sync::Arc, time::Duration};

use cloudprovider_proto::defaults;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Code;

use super::{
    batch::{Answer, BatchRpc, Item, ItemKey, Planned, call},
    gather::{Batched, Batcher, Landing},
    limit::Permit,
};
use crate::{
    CloudError, ErrorReason,
    connection::{Link, session::Session},
};
use ccm_kube::Backoff;

/// The number of parts that a failed batch is split into.
const PARTS: usize = 8;
/// The maximum depth of splitting.
const DEEPEST: u8 = 5;
/// A call that takes this long is late: the host checks which items are already done, and again at doubling intervals.
const LATE: Duration = Duration::from_secs(10);

/// Gathers questions into calls of one RPC.
#[derive(Debug)]
pub(crate) struct Batch<R> {
    link: Arc<Link>,
    offenders: Mutex<Offenders>,
    rpc: PhantomData<R>,
}

impl<R: BatchRpc> Batcher<Batch<R>> {
    pub(crate) fn over(link: &Arc<Link>) -> Arc<Self> {
        Self::new(Batch { link: Arc::clone(link), offenders: Mutex::default(), rpc: PhantomData })
    }

    /// The answer to one question. Without a session, it fails at once instead of after gathering a batch.
    pub(crate) async fn answer(self: &Arc<Self>, lane: R::Lane, question: R::Question) -> Answer<R> {
        self.batched.link.session(R::METHOD)?;
        self.ask(lane, R::key(&question), question).await
    }
}

impl<R: BatchRpc> Batched for Batch<R> {
    type Lane = R::Lane;
    type Key = ItemKey;
    type Question = R::Question;
    type Answer = Answer<R>;
    type Turn = Result<Permit, CloudError>;

    fn most(&self) -> usize {
        let session = self.link.present();
        session.map_or(defaults::MAX_BATCH as usize, |session| session.most_items(R::METHOD))
    }

    fn serves(&self, other: &R::Lane, asked: &R::Lane, age: Duration) -> bool {
        R::serves(other, asked, age)
    }

    fn same(&self, a: &R::Question, b: &R::Question) -> bool {
        R::same(&self.link, a, b)
    }

    async fn turn(&self) -> Result<Permit, CloudError> {
        self.link.permit(R::METHOD).await
    }

    async fn call(
        &self,
        lane: &R::Lane,
        items: Vec<Item<R>>,
        turn: Result<Permit, CloudError>,
        landing: &Landing<'_, Self>,
    ) {
        match turn.and_then(|permit| Ok((permit, self.link.session(R::METHOD)?))) {
            Ok((permit, session)) => {
                let mut fresh = Vec::with_capacity(items.len());
                for item in items {
                    match R::wants(&item.1).map_or(Ok(()), |wants| session.is_told(wants, R::METHOD)) {
                        Ok(()) => fresh.push(item),
                        Err(error) => landing.land([(item.0, Err(error))]),
                    }
                }
                let Planned { chunks, refused } = R::plan(&session, fresh);
                landing.land(refused.into_iter().map(|(key, error)| (key, Err(error))));
                Errand { batch: self, session: &session, lane, landing }.run(permit, chunks).await;
            }
            Err(error) => landing.land(items.into_iter().map(|(key, _)| (key, Err(error.clone())))),
        }
    }

    fn lost(&self, why: &'static str) -> Answer<R> {
        Err(CloudError::defect(R::METHOD.name, why))
    }
}

struct FailedPart<R: BatchRpc> {
    items: Vec<Item<R>>,
    error: CloudError,
}

/// One batch to answer, in one call or several.
struct Errand<'a, R: BatchRpc> {
    batch: &'a Batch<R>,
    session: &'a Session,
    lane: &'a R::Lane,
    landing: &'a Landing<'a, Batch<R>>,
}

impl<R: BatchRpc> Errand<'_, R> {
    /// Answers every item. The permit is for the first call.
    async fn run(&self, permit: Permit, batches: Vec<Vec<Item<R>>>) {
        let mut level = self.without_offenders(batches);
        let (mut permit, mut depth, mut worked) = (Some(permit), 0, false);
        let mut too_slow = None;
        while !level.is_empty() {
            let sent = level.into_iter().map(|items| self.send(items, permit.take()));
            let (mut failed, mut some_worked) = (Vec::new(), false);
            for outcome in join_all(sent).await {
                match outcome {
                    Ok(one) => some_worked |= one,
                    Err(one) => failed.push(one),
                }
            }
            worked |= some_worked;
            level = Vec::new();
            // A batch that took too long, and whose parts all went well, was too much for the time it had.
            if let Some(items) = too_slow.take().filter(|_| failed.is_empty()) {
                self.session.too_slow(R::METHOD, items);
            }
            let mut late = failed.iter().filter(|one| one.error.code == Code::DeadlineExceeded);
            too_slow = late.next().filter(|_| depth == 0).map(|one| one.items.len());
            for failed in failed {
                level.append(&mut self.again(failed, depth, worked).await);
            }
            depth += 1;
        }
        if depth > 1 && !worked {
            self.batch.offenders.lock().nothing_works(Instant::now());
        }
    }

    /// Sends known offenders alone, or answers them at once while it is too early to ask again.
    fn without_offenders(&self, batches: Vec<Vec<Item<R>>>) -> Vec<Vec<Item<R>>> {
        let now = Instant::now();
        let mut level = Vec::new();
        for batch in batches {
            let mut others = Vec::with_capacity(batch.len());
            for item in batch {
                let treatment = self.batch.offenders.lock().treatment(&item.0.subject, R::PACED, now);
                match treatment {
                    Treatment::Together => others.push(item),
                    Treatment::Alone => level.push(vec![item]),
                    Treatment::TooEarly(error) => self.landing.land([(item.0, Err(error))]),
                }
            }
            if !others.is_empty() {
                level.insert(0, others);
            }
        }
        level
    }

    /// False if nobody waited for it any more, and nothing was sent.
    async fn send(&self, mut items: Vec<Item<R>>, permit: Option<Permit>) -> Result<bool, FailedPart<R>> {
        let permit = match permit {
            Some(permit) => permit,
            None => match self.batch.link.permit(R::METHOD).await {
                Ok(permit) => permit,
                Err(error) => return Err(FailedPart { items, error }),
            },
        };
        // The wait may have been long, and the part of a batch that failed is sent late.
        items.retain(|(key, _)| self.landing.is_awaited(key));
        if items.is_empty() {
            return Ok(false);
        }
        let answer = tokio::select! {
            answer = call::<R>(&self.batch.link, self.session, self.lane, &items) => answer,
            () = self.land_while_late(&items) => unreachable!("it never ends"),
        };
        drop(permit);
        match answer {
            Ok(answers) => {
                if let [(key, _)] = items.as_slice() {
                    self.batch.offenders.lock().known.remove(&key.subject);
                }
                self.landing.land(answers);
                Ok(true)
            }
            Err(error) => Err(FailedPart { items, error }),
        }
    }

    /// Lands items that are already done, so that a slow one does not hold them up.
    async fn land_while_late(&self, items: &[Item<R>]) {
        let (mut wait, sent) = (LATE, Instant::now());
        while items.len() > 1 {
            tokio::time::sleep(wait).await;
            // Older ones are not of this call, or say little that is new.
            let since = sent.max(Instant::now() - LATE);
            self.landing.land(R::done_already(&self.batch.link, items, since).await);
            wait *= 2;
        }
        std::future::pending::<()>().await;
    }

    /// Returns the parts of a failed batch to resend; all other items get their answer.
    async fn again(&self, failed: FailedPart<R>, depth: u8, worked: bool) -> Vec<Vec<Item<R>>> {
        let FailedPart { mut items, error } = failed;
        let cause = Cause::of(&error);
        if error.is(ErrorReason::BatchTooLarge) {
            self.session.too_large(R::METHOD, items.len());
        }
        let (had_company, mut worked) = (depth > 0 || items.len() > 1, worked);
        if cause == Cause::OneItem && items.len() > 1 {
            let done = R::done_already(&self.batch.link, &items, Instant::now()).await;
            items.retain(|(key, _)| !done.contains_key(key));
            worked |= !done.is_empty();
            self.landing.land(done);
        }
        let parts = match cause {
            Cause::TooLarge => 2,
            Cause::OneItem if self.is_worth_it(&error, depth, worked) => PARTS,
            Cause::OneItem | Cause::Provider => 1,
        };
        if items.len() > 1 && parts > 1 && depth < DEEPEST {
            return cut(items, parts);
        }
        if let [(key, _)] = items.as_slice()
            && cause == Cause::OneItem
        {
            let proven = worked && had_company;
            self.batch.offenders.lock().failed(&key.subject, &error, proven, Instant::now());
        }
        self.landing.land(items.into_iter().map(|(key, _)| (key, Err(error.clone()))));
        Vec::new()
    }

    /// Splitting is useless if nothing works.
    fn is_worth_it(&self, error: &CloudError, depth: u8, worked: bool) -> bool {
        let is_quick = error.code != Code::DeadlineExceeded;
        worked
            || (depth == 0 || depth == 1 && is_quick)
                && !self.batch.offenders.lock().does_nothing_work(Instant::now())
    }
}

/// The likely cause of a failed batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    TooLarge,
    /// Perhaps only one of its items.
    OneItem,
    /// The provider, the cloud or the connection: each part would fail as well.
    Provider,
}

impl Cause {
    fn of(error: &CloudError) -> Self {
        if error.is_too_large() {
            return Self::TooLarge;
        }
        match (error.reason, error.code) {
            (Some(ErrorReason::BatchTooLarge), _) => Self::TooLarge,
            (Some(ErrorReason::InternalError | ErrorReason::InvalidArgumentShape), _) => Self::OneItem,
            (Some(_), _)
            | (
                None,
                Code::Unavailable | Code::ResourceExhausted | Code::Unauthenticated | Code::PermissionDenied,
            ) => Self::Provider,
            (None, _) => Self::OneItem,
        }
    }
}

/// Cuts into at most `parts` pieces of about the same size.
fn cut<I>(items: Vec<I>, parts: usize) -> Vec<Vec<I>> {
    let size = items.len().div_ceil(parts).max(1);
    let mut left = items.into_iter();
    std::iter::from_fn(|| Some(left.by_ref().take(size).collect::<Vec<_>>()).filter(|part| !part.is_empty()))
        .collect()
}

/// An offender is forgotten after this long without a failure.
const FORGET: Duration = Duration::from_secs(3600);
/// The maximum number of offenders; more would not be exceptions.
const MOST: usize = 1000;
/// Of an offender, where the host paces it.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(300) };
/// How long batches are not split after nothing worked.
const SICK: Duration = Duration::from_secs(60);

/// Items that made a method panic or hang, and are therefore sent alone.
#[derive(Debug, Default)]
struct Offenders {
    known: HashMap<String, Offence>,
    sick_until: Option<Instant>,
}

/// How to send an item.
#[derive(Debug, PartialEq, Eq)]
enum Treatment {
    /// With others: it is not an offender.
    Together,
    Alone,
    /// Not yet; until then, this is its answer.
    TooEarly(CloudError),
}

#[derive(Debug)]
struct Offence {
    error: CloudError,
    times: u32,
    at: Instant,
}

impl Offenders {
    /// `paced`: callers ask again and again, so the backoff of offenders is kept here.
    fn treatment(&self, subject: &str, paced: bool, now: Instant) -> Treatment {
        let Some(offence) = self.known.get(subject) else { return Treatment::Together };
        let left = (offence.at + BACKOFF.delay(offence.times)).saturating_duration_since(now);
        if paced && !left.is_zero() {
            return Treatment::TooEarly(CloudError { retry_after: Some(left), ..offence.error.clone() });
        }
        Treatment::Alone
    }

    /// Records an item that failed alone. It is an offender from now on if `proven`, or if it was one before.
    fn failed(&mut self, subject: &str, error: &CloudError, proven: bool, now: Instant) {
        let known = &mut self.known;
        known.retain(|_, offence| now.saturating_duration_since(offence.at) < FORGET);
        if let Some(offence) = known.get_mut(subject) {
            *offence = Offence { error: error.clone(), times: offence.times + 1, at: now };
        } else if proven && known.len() < MOST {
            known.insert(subject.to_owned(), Offence { error: error.clone(), times: 0, at: now });
        }
    }

    /// Records that no part of a batch got an answer.
    fn nothing_works(&mut self, now: Instant) {
        self.sick_until = Some(now + SICK);
    }

    fn does_nothing_work(&self, now: Instant) -> bool {
        self.sick_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_everything_once_and_in_order() {
        for (items, parts, want) in [
            (500, 8, vec![63, 63, 63, 63, 63, 63, 63, 59]),
            (20, 8, vec![3, 3, 3, 3, 3, 3, 2]),
            (2, 8, vec![1, 1]),
        ] {
            let cut = cut((0..items).collect(), parts);
            assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), want);
            assert_eq!(cut.concat(), (0..items).collect::<Vec<_>>());
        }
        assert_eq!(cut((0..10).collect(), 2).len(), 2);
    }

    #[test]
    fn what_may_be_one_items_fault() {
        let bare = |code| CloudError::without_reason("M", code, "");
        let rows = [
            (CloudError::too_large("M", ""), Cause::TooLarge),
            (CloudError::local("M", ErrorReason::BatchTooLarge, ""), Cause::TooLarge),
            (CloudError::local("M", ErrorReason::InternalError, ""), Cause::OneItem),
            (CloudError::deadline_exceeded("M", LATE), Cause::OneItem),
            (bare(Code::Unknown), Cause::OneItem),
            (bare(Code::Cancelled), Cause::OneItem),
            (bare(Code::NotFound), Cause::OneItem),
            (CloudError::unavailable("M", ""), Cause::Provider),
            (bare(Code::ResourceExhausted), Cause::Provider),
            (CloudError::local("M", ErrorReason::RateLimited, ""), Cause::Provider),
            (CloudError::local("M", ErrorReason::CloudApiUnavailable, ""), Cause::Provider),
            (CloudError::local("M", ErrorReason::StaleLeader, ""), Cause::Provider),
            (CloudError::local("M", ErrorReason::MethodNotSupported, ""), Cause::Provider),
        ];
        for (error, want) in rows {
            assert_eq!(Cause::of(&error), want, "{error:?}");
        }
    }

    /// N8.
    #[test]
    fn an_offender_is_asked_about_ever_less_often_until_it_is_forgiven() {
        let error = CloudError::unavailable("M", "broken");
        let mut offenders = Offenders::default();
        let mut now = Instant::now();
        offenders.failed("n", &error, false, now);
        assert_eq!(
            offenders.treatment("n", true, now),
            Treatment::Together,
            "that it failed alone proves nothing by itself"
        );
        let mut pauses = Vec::new();
        for _ in 0..9 {
            offenders.failed("n", &error, true, now);
            let Treatment::TooEarly(error) = offenders.treatment("n", true, now) else { panic!("too early") };
            let left = error.retry_after.unwrap();
            pauses.push(left.as_secs());
            now += left;
            assert_eq!(offenders.treatment("n", true, now), Treatment::Alone, "it may be asked about, alone");
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        offenders.known.remove("n");
        assert_eq!(offenders.treatment("n", true, now), Treatment::Together);

        let mut unpaced = Offenders::default();
        unpaced.failed("n", &error, true, now);
        assert_eq!(unpaced.treatment("n", false, now), Treatment::Alone);
        unpaced.failed("m", &error, true, now + FORGET);
        assert_eq!(unpaced.treatment("n", false, now), Treatment::Together, "forgotten");
    }

    #[test]
    fn offenders_are_few() {
        let mut offenders = Offenders::default();
        for i in 0..MOST * 2 {
            offenders.failed(&i.to_string(), &CloudError::unavailable("M", ""), true, Instant::now());
        }
        assert_eq!(offenders.known.len(), MOST);
    }
}
