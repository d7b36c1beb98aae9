//! Changes of routes, as batches. What a change says and what its answer means is in [`super::ensure`] and
//! [`super::delete`].

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use crate::cloud::{
    CloudError, ErrorReason, batch::Batched, check::Findings, halves::Halves, limit::Permit, link::Link,
    matching::matched, method::Method, session::Session, status,
};

/// A kind of change of one route.
pub(in crate::cloud) trait Change: Debug + Send + Sync + 'static {
    /// What is asked for.
    type Wish: Clone + Send + Sync + 'static;
    /// The wish in a request.
    type Item: Send;
    /// The answer to it.
    type Result: Send;
    /// What became of it.
    type Done: Clone + Send + Sync + 'static;

    fn method() -> &'static Method;

    /// Unique in a request, and echoed.
    fn key(wish: &Self::Wish) -> String;

    /// Tells apart two wishes with one key.
    fn about(wish: &Self::Wish) -> String;

    /// Whether two wishes with one key say the same.
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

/// Which change: another target for the same destination is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::cloud) struct ChangeKey {
    key: String,
    about: String,
}

/// How the host changes routes.
#[derive(Debug)]
pub(in crate::cloud) struct RouteChanges<C> {
    link: Arc<Link>,
    kind: PhantomData<C>,
}

type Item<C> = (ChangeKey, <C as Change>::Wish);
type Answer<C> = Result<<C as Change>::Done, CloudError>;

impl<C: Change> RouteChanges<C> {
    pub(in crate::cloud) fn new(link: Arc<Link>) -> Self {
        Self { link, kind: PhantomData }
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
    ) -> HashMap<ChangeKey, Answer<C>> {
        match turn.and_then(|permit| Ok((permit, self.link.session(C::method())?))) {
            Ok((_permit, session)) => change_all::<C>(&self.link, &session, items).await,
            Err(error) => items.into_iter().map(|(key, _)| (key, Err(error.clone()))).collect(),
        }
    }

    fn lost(&self) -> Answer<C> {
        Err(status::defect(C::method().name, "the provider's answer does not hold this route once"))
    }
}

async fn change_all<C: Change>(
    link: &Link,
    session: &Session,
    items: Vec<Item<C>>,
) -> HashMap<ChangeKey, Answer<C>> {
    let mut answers = HashMap::with_capacity(items.len());
    let mut halves = Halves::of(without_doubles::<C>(items));
    while let Some((depth, batch)) = halves.next() {
        match change::<C>(link, session, &batch).await {
            Ok(some) => answers.extend(some),
            Err(error) => {
                if error.is(ErrorReason::BatchTooLarge) {
                    session.fewer_routes(batch.len());
                }
                if let Some(failed) = halves.split(depth, batch, &error) {
                    answers.extend(failed.into_iter().map(|(key, _)| (key, Err(error.clone()))));
                }
            }
        }
    }
    answers
}

/// Two wishes with one key, such as two nodes for one destination, travel apart.
fn without_doubles<C: Change>(items: Vec<Item<C>>) -> Vec<Vec<Item<C>>> {
    let mut batches: Vec<(HashSet<String>, Vec<Item<C>>)> = Vec::new();
    for item in items {
        match batches.iter_mut().find(|(taken, _)| !taken.contains(&item.0.key)) {
            Some((taken, batch)) => {
                taken.insert(item.0.key.clone());
                batch.push(item);
            }
            None => batches.push((HashSet::from([item.0.key.clone()]), vec![item])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
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
    Ok(answers)
}
