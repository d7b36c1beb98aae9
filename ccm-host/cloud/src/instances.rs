//! Batched reads of instances.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cloudprovider_proto::v1alpha1 as pb;

use super::{
    CloudError, Freshness, InProgress, InstanceAnswer, InstanceView,
    call::batch::{Answer, BatchRpc, Call, Item, ItemKey},
    check::{self, Asked},
    connection::Link,
    wanted,
};
use crate::findings::Findings;
use ccm_kube::Node;

/// Reads with the same view and freshness share a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ReadLane {
    pub(super) view: InstanceView,
    pub(super) freshness: Freshness,
}

#[derive(Debug)]
pub(super) struct InstanceReads;

impl BatchRpc for InstanceReads {
    type Lane = ReadLane;
    /// A node, and what the provider wanted to know when it was asked about.
    type Question = (Arc<Node>, Arc<pb::Wants>);
    type Request = pb::BatchGetInstancesRequest;
    type Result = pb::InstanceResult;
    type Done = InstanceAnswer;

    const PACED: bool = true;

    /// A recreated node is another one.
    fn key((node, _): &Self::Question) -> ItemKey {
        ItemKey::new(format!("{} {}", node.name, node.uid))
    }

    fn wants((_, wants): &Self::Question) -> Option<&pb::Wants> {
        Some(wants)
    }

    fn serves(other: &ReadLane, asked: &ReadLane, age: Duration) -> bool {
        // A METADATA answer may leave open whether the instance runs; an EXISTENCE question needs that.
        let tells = other.view == asked.view || other.view == InstanceView::All;
        tells && is_fresh(other.freshness, asked.freshness, age)
    }

    fn same(_: &Link, (a, then): &Self::Question, (b, wants): &Self::Question) -> bool {
        let fields = identity(wants);
        then == wants && (Arc::ptr_eq(a, b) || wanted::node_ref(a, &fields) == wanted::node_ref(b, &fields))
    }

    /// The node's name, which people recognise; made unique if two nodes in the batch share it.
    fn wire_keys(items: &[Item<Self>]) -> Vec<String> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        items
            .iter()
            .map(|(_, (node, _))| {
                let times = seen.entry(node.name.as_str()).or_default();
                *times += 1;
                if *times == 1 { node.name.clone() } else { format!("{}#{}", node.name, node.uid) }
            })
            .collect()
    }

    fn request(call: &Call<'_, Self>, keys: &[String], items: &[Item<Self>]) -> Self::Request {
        let fields = identity(&call.session.wants);
        let queries = keys.iter().zip(items).map(|(key, (_, (node, _)))| pb::InstanceQuery {
            key: key.clone(),
            node: Some(wanted::node_ref(node, &fields)),
        });
        pb::BatchGetInstancesRequest {
            cluster: Some(call.link.cluster()),
            queries: queries.collect(),
            view: call.lane.view.into(),
            max_staleness: max_staleness(call.lane.freshness),
        }
    }

    fn results(answer: pb::BatchGetInstancesResponse) -> Vec<(String, pb::InstanceResult)> {
        answer.results.into_iter().map(|mut one| (std::mem::take(&mut one.key), one)).collect()
    }

    fn read(
        call: &Call<'_, Self>,
        _: &Self::Question,
        result: pb::InstanceResult,
        findings: &mut Findings,
    ) -> Answer<Self> {
        let asked = Asked {
            prefixes: &call.session.info.provider_id_prefixes,
            annotation_prefixes: &call.session.wants.node_annotation_writes,
            freshness: call.lane.freshness,
            at: call.began,
        };
        Ok(check::answer(result, &asked, findings))
    }

    fn failure(answer: &Answer<Self>) -> Option<&CloudError> {
        answer.as_ref().map_or_else(Some, |answer| answer.error.as_ref())
    }
}

/// The node fields that the provider wants in order to find an instance.
fn identity(wants: &pb::Wants) -> pb::NodeFields {
    wants.identity.clone().unwrap_or_default()
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

fn max_staleness(freshness: Freshness) -> Option<prost_types::Duration> {
    let most = match freshness {
        Freshness::ReadThrough => Duration::ZERO,
        Freshness::AtMost(most) => most,
    };
    prost_types::Duration::try_from(most).ok()
}

/// Makes an SSH key valid on all instances.
pub(super) async fn add_ssh_key(
    link: &Link,
    user: &str,
    public_key: &str,
) -> Result<Option<InProgress>, CloudError> {
    let message = pb::AddSshKeyToAllInstancesRequest {
        cluster: Some(link.cluster()),
        fencing: Some(link.fencing()),
        user: user.to_owned(),
        public_key: public_key.to_owned(),
    };
    let answer = link.ask(message).await?;
    Ok(link.metrics.checked(|findings| answer.in_progress.map(|given| check::in_progress(given, findings))))
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
            let node = ccm_kube::fixtures::node(name).uid(uid);
            let question = (Arc::new(node), Arc::default());
            (InstanceReads::key(&question), question)
        };
        assert_eq!(
            InstanceReads::wire_keys(&[item("a", "1"), item("b", "2"), item("a", "3")]),
            ["a", "b", "a#3"]
        );
    }
}
