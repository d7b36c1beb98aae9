//! Batched reads of instances.

use std::{collections::HashMap, fmt::Debug, sync::Arc, time::Duration};

use cloudprovider_proto::{defaults, v1alpha1 as pb};

use super::{
    CloudError, Freshness, InstanceAnswer, InstanceView,
    batch::{Batched, Landing},
    check::{self, Asked, Findings},
    limit::Permit,
    link::Link,
    matching::matched,
    method::{self, Method},
    parts::{Answers, Calls, Errand, Offenders},
    session::Session,
    status, wanted,
};
use crate::kube::Node;

/// Reads with the same view and freshness share a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ReadLane {
    pub(super) view: InstanceView,
    pub(super) freshness: Freshness,
}

/// Identifies the node of a read; a recreated node is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NodeKey {
    name: String,
    uid: String,
}

impl NodeKey {
    pub(super) fn of(node: &Node) -> Self {
        Self { name: node.name.clone(), uid: node.uid.clone() }
    }
}

/// Reads instances in batches.
#[derive(Debug)]
pub(super) struct InstanceReads {
    link: Arc<Link>,
    offenders: Offenders,
}

impl InstanceReads {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, offenders: Offenders::paced() }
    }
}

type Item = (NodeKey, Arc<Node>);
type Answer = Result<InstanceAnswer, CloudError>;

impl Batched for InstanceReads {
    type Lane = ReadLane;
    type Key = NodeKey;
    type Question = Arc<Node>;
    type Answer = Answer;
    type Turn = Result<Permit, CloudError>;

    fn most(&self) -> usize {
        self.link.present().map_or(defaults::MAX_BATCH as usize, |session| session.most_instances())
    }

    fn serves(&self, other: &ReadLane, asked: &ReadLane, age: Duration) -> bool {
        // A METADATA answer may leave open whether the instance runs; an EXISTENCE question needs that.
        let tells = other.view == asked.view || other.view == InstanceView::All;
        tells && is_fresh(other.freshness, asked.freshness, age)
    }

    fn same(&self, a: &Arc<Node>, b: &Arc<Node>) -> bool {
        let fields = self.link.wants().identity.clone().unwrap_or_default();
        Arc::ptr_eq(a, b) || wanted::node_ref(a, &fields) == wanted::node_ref(b, &fields)
    }

    async fn turn(&self) -> Result<Permit, CloudError> {
        self.link.permit(&method::BATCH_GET_INSTANCES).await
    }

    async fn call(
        &self,
        lane: &ReadLane,
        items: Vec<Item>,
        turn: Result<Permit, CloudError>,
        landing: &Landing<'_, Self>,
    ) {
        let ready = turn.and_then(|permit| Ok((permit, self.link.session(&method::BATCH_GET_INSTANCES)?)));
        match ready {
            Ok((permit, session)) => {
                let calls = Reads { link: &self.link, lane: *lane };
                let land = |answers| landing.land(answers);
                let errand = Errand { calls: &calls, session: &session, offenders: &self.offenders, land };
                errand.run(permit, vec![items]).await;
            }
            Err(error) => landing.land(items.into_iter().map(|(key, _)| (key, Err(error.clone())))),
        }
    }

    fn lost(&self, why: &'static str) -> Answer {
        Err(status::defect(method::BATCH_GET_INSTANCES.name, why))
    }
}

/// The calls of one lane.
struct Reads<'a> {
    link: &'a Link,
    lane: ReadLane,
}

impl Calls for Reads<'_> {
    type Key = NodeKey;
    type Question = Arc<Node>;
    type Done = InstanceAnswer;

    fn link(&self) -> &Link {
        self.link
    }

    fn method(&self) -> &'static Method {
        &method::BATCH_GET_INSTANCES
    }

    fn subject(key: &NodeKey) -> String {
        format!("{} {}", key.name, key.uid)
    }

    async fn send(&self, session: &Session, items: &[Item]) -> Result<Answers<Self>, CloudError> {
        read(self.link, session, &self.lane, items).await
    }

    fn fewer(session: &Session, refused: usize) {
        session.fewer_instances(refused);
    }
}

/// Whether an answer of freshness `other`, asked for `age` ago, is fresh enough for `asked`.
fn is_fresh(other: Freshness, asked: Freshness, age: Duration) -> bool {
    match (other, asked) {
        (Freshness::ReadThrough, Freshness::ReadThrough) => age.is_zero(),
        (Freshness::AtMost(_), Freshness::ReadThrough) => false,
        (Freshness::ReadThrough, Freshness::AtMost(most)) => age <= most,
        (Freshness::AtMost(old), Freshness::AtMost(most)) => old.saturating_add(age) <= most,
    }
}

async fn read(
    link: &Link,
    session: &Session,
    lane: &ReadLane,
    items: &[Item],
) -> Result<HashMap<NodeKey, Answer>, CloudError> {
    let fields = session.identity();
    let keys = wire_keys(items);
    let queries = keys.iter().zip(items).map(|(key, (_, node))| pb::InstanceQuery {
        key: key.clone(),
        node: Some(wanted::node_ref(node, &fields)),
    });
    let message = pb::BatchGetInstancesRequest {
        cluster: Some(link.config.cluster.message()),
        queries: queries.collect(),
        view: view(lane.view).into(),
        max_staleness: max_staleness(lane.freshness),
    };
    let at = crate::clock::now();
    let mut client = session.instances();
    let response = link
        .call(session, &method::BATCH_GET_INSTANCES, Some(items.len()), message, async |request| {
            client.batch_get_instances(request).await
        })
        .await?;
    let asked = Asked {
        method: method::BATCH_GET_INSTANCES.name,
        prefixes: &session.info.provider_id_prefixes,
        freshness: lane.freshness,
        at,
    };
    let answers = answers(link, &asked, &keys, items, response);
    let errors =
        answers.values().map(|answer| answer.as_ref().map_or_else(Some, |answer| answer.error.as_ref()));
    link.answered(&method::BATCH_GET_INSTANCES, errors);
    Ok(answers)
}

fn answers(
    link: &Link,
    asked: &Asked<'_>,
    keys: &[String],
    items: &[Item],
    response: pb::BatchGetInstancesResponse,
) -> HashMap<NodeKey, Answer> {
    let given =
        response.results.into_iter().map(|mut result| (std::mem::take(&mut result.key), result)).collect();
    let mut matched = matched(keys, given);
    link.metrics.wrong_keys(matched.wrong);
    if matched.reordered {
        link.metrics.reordered();
    }
    keys.iter()
        .zip(items)
        .filter_map(|(key, (node, _))| {
            let result = matched.answers.remove(key)?;
            let mut findings = Findings::default();
            let answer = check::answer(result, asked, &mut findings);
            link.metrics.findings(&findings);
            Some((node.clone(), Ok(answer)))
        })
        .collect()
}

/// The node's name, which people recognise; made unique if two nodes in the batch share it.
fn wire_keys(items: &[Item]) -> Vec<String> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    items
        .iter()
        .map(|(key, _)| {
            let times = seen.entry(key.name.as_str()).or_default();
            *times += 1;
            if *times == 1 { key.name.clone() } else { format!("{}#{}", key.name, key.uid) }
        })
        .collect()
}

fn view(view: InstanceView) -> pb::InstanceView {
    match view {
        InstanceView::Existence => pb::InstanceView::Existence,
        InstanceView::Metadata => pb::InstanceView::Metadata,
        InstanceView::All => pb::InstanceView::All,
    }
}

fn max_staleness(freshness: Freshness) -> Option<prost_types::Duration> {
    let most = match freshness {
        Freshness::ReadThrough => Duration::ZERO,
        Freshness::AtMost(most) => most,
    };
    prost_types::Duration::try_from(most).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_serves_who_asks_for_no_more() {
        use Freshness::{AtMost, ReadThrough};
        let s = Duration::from_secs;
        let rows = [
            (ReadThrough, ReadThrough, s(0), true),
            (ReadThrough, ReadThrough, s(1), false),
            (AtMost(s(1)), ReadThrough, s(0), false),
            (ReadThrough, AtMost(s(5)), s(5), true),
            (ReadThrough, AtMost(s(5)), s(6), false),
            (AtMost(s(3)), AtMost(s(5)), s(2), true),
            (AtMost(s(3)), AtMost(s(5)), s(3), false),
            (AtMost(Duration::MAX), AtMost(s(5)), s(1), false),
        ];
        for (other, asked, age, want) in rows {
            assert_eq!(is_fresh(other, asked, age), want, "{other:?} {asked:?} {age:?}");
        }
    }

    #[test]
    fn keys_on_the_wire_are_unique() {
        let item = |name: &str, uid: &str| {
            let node = crate::kube::fixtures::node(name).uid(uid);
            (NodeKey::of(&node), Arc::new(node))
        };
        assert_eq!(wire_keys(&[item("a", "1"), item("b", "2"), item("a", "3")]), ["a", "b", "a#3"]);
    }
}
