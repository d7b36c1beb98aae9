//! Batched changes of routes. The contents of a change and of its answer are defined in [`super::ensure`] and
//! [`super::delete`].

use std::{collections::HashMap, fmt::Debug, marker::PhantomData, sync::Arc, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use crate::cloud::{
    CloudError,
    batch::{Batched, Landing},
    check::Findings,
    limit::Permit,
    link::Link,
    matching::matched,
    method::Method,
    parts::{Answers, Calls, Errand, Offenders, without_doubles},
    session::Session,
    status,
};

/// A kind of change of one route.
pub(in crate::cloud) trait Change: Debug + Send + Sync + 'static {
    /// The requested change.
    type Wish: Clone + Send + Sync + 'static;
    /// The change as sent.
    type Item: Send;
    /// The answer as received.
    type Result: Send;
    /// The answer after checks.
    type Done: Clone + Send + Sync + 'static;

    fn method() -> &'static Method;

    /// Unique within a request, and echoed.
    fn key(wish: &Self::Wish) -> String;

    /// Distinguishes two changes with the same key.
    fn about(wish: &Self::Wish) -> String;

    /// Whether two changes with the same key request the same.
    fn same(link: &Link, a: &Self::Wish, b: &Self::Wish) -> bool;

    fn item(session: &Session, key: String, wish: &Self::Wish) -> Self::Item;

    fn send(
        link: &Link,
        session: &Session,
        cluster: pb::ClusterRef,
        items: Vec<Self::Item>,
    ) -> impl Future<Output = Result<Vec<(String, Self::Result)>, CloudError>> + Send;

    fn read(
        wish: &Self::Wish,
        result: Self::Result,
        findings: &mut Findings,
    ) -> Result<Self::Done, CloudError>;
}

/// Identifies a change: another target for the same destination is another change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::cloud) struct ChangeKey {
    key: String,
    about: String,
}

/// Changes routes in batches.
#[derive(Debug)]
pub(in crate::cloud) struct RouteChanges<C> {
    link: Arc<Link>,
    offenders: Offenders,
    kind: PhantomData<C>,
}

type Item<C> = (ChangeKey, <C as Change>::Wish);
type Answer<C> = Result<<C as Change>::Done, CloudError>;

impl<C: Change> RouteChanges<C> {
    pub(in crate::cloud) fn new(link: Arc<Link>) -> Self {
        Self { link, offenders: Offenders::unpaced(), kind: PhantomData }
    }

    pub(in crate::cloud) fn key(wish: &C::Wish) -> ChangeKey {
        ChangeKey { key: C::key(wish), about: C::about(wish) }
    }
}

impl<C: Change> Batched for RouteChanges<C> {
    type Lane = ();
    type Key = ChangeKey;
    type Question = C::Wish;
    type Answer = Answer<C>;
    type Turn = Result<Permit, CloudError>;

    fn most(&self) -> usize {
        self.link.present().map_or(defaults::MAX_BATCH as usize, |session| session.most_routes())
    }

    /// An equal change under way is the same call.
    fn serves(&self, (): &(), (): &(), _age: Duration) -> bool {
        true
    }

    fn same(&self, a: &C::Wish, b: &C::Wish) -> bool {
        C::same(&self.link, a, b)
    }

    async fn turn(&self) -> Result<Permit, CloudError> {
        self.link.permit(C::method()).await
    }

    async fn call(
        &self,
        (): &(),
        items: Vec<Item<C>>,
        turn: Result<Permit, CloudError>,
        landing: &Landing<'_, Self>,
    ) {
        match turn.and_then(|permit| Ok((permit, self.link.session(C::method())?))) {
            Ok((permit, session)) => {
                let batches = without_doubles(items, |(key, _)| key.key.clone());
                let land = |answers| landing.land(answers);
                Errand { calls: self, session: &session, offenders: &self.offenders, land }
                    .run(permit, batches)
                    .await;
            }
            Err(error) => landing.land(items.into_iter().map(|(key, _)| (key, Err(error.clone())))),
        }
    }

    fn lost(&self, why: &'static str) -> Answer<C> {
        Err(status::defect(C::method().name, why))
    }
}

impl<C: Change> Calls for RouteChanges<C> {
    type Key = ChangeKey;
    type Question = C::Wish;
    type Done = C::Done;

    fn link(&self) -> &Link {
        &self.link
    }

    fn method(&self) -> &'static Method {
        C::method()
    }

    fn subject(key: &ChangeKey) -> String {
        format!("{} {}", key.key, key.about)
    }

    async fn send(&self, session: &Session, items: &[Item<C>]) -> Result<Answers<Self>, CloudError> {
        change::<C>(&self.link, session, items).await
    }

    fn fewer(session: &Session, refused: usize) {
        session.fewer_routes(refused);
    }
}

async fn change<C: Change>(
    link: &Link,
    session: &Session,
    items: &[Item<C>],
) -> Result<HashMap<ChangeKey, Answer<C>>, CloudError> {
    let wishes = items.iter().map(|(key, wish)| C::item(session, key.key.clone(), wish)).collect();
    let given = C::send(link, session, link.config.cluster.message(), wishes).await?;
    let keys: Vec<String> = items.iter().map(|(key, _)| key.key.clone()).collect();
    let mut matched = matched(&keys, given);
    link.metrics.wrong_keys(matched.wrong);
    if matched.reordered {
        link.metrics.reordered();
    }
    let mut answers = HashMap::with_capacity(items.len());
    for (key, wish) in items {
        if let Some(result) = matched.answers.remove(&key.key) {
            let mut findings = Findings::default();
            answers.insert(key.clone(), C::read(wish, result, &mut findings));
            link.metrics.findings(&findings);
        }
    }
    link.answered(C::method(), answers.values().map(|answer| answer.as_ref().err()));
    Ok(answers)
}
