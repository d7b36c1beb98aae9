//! Plans which updates share a call: as many as fit by count and bytes, each set of backends once, no Service twice.

use std::collections::{HashMap, HashSet};

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;

use super::Updates;
use crate::cloud::{
    BackendSet, CloudError, UpdateLoadBalancer,
    call::{batch, method},
    status, wanted,
};

/// Room for the cluster, the fencing, and everything else that precedes the items.
const RESERVE: usize = 8 << 10;
/// `BatchUpdateLoadBalancersRequest.backend_sets`.
pub(super) const BACKEND_SETS: u32 = 3;
/// Tag, length and index of an item or a set.
const PER_ENTRY: usize = 16;

type Item = batch::Item<Updates>;
type Planned = batch::Planned<Updates>;

/// Splits by count and bytes. A set is never split.
pub(super) fn plan(items: Vec<Item>, wants: &pb::Wants, most_bytes: usize, most_items: usize) -> Planned {
    let budget = most_bytes.saturating_sub(RESERVE);
    let mut planned = Planned { chunks: Vec::new(), too_large: Vec::new() };
    let mut sorted = items;
    // Items with the same set are adjacent, so that the set is sent as seldom as possible.
    sorted.sort_by(|(_, a), (_, b)| a.backends.digest.cmp(&b.backends.digest));
    let mut open: Vec<Chunk> = Vec::new();
    for item in sorted {
        let set = item.1.backends.encoded.len() + PER_ENTRY;
        let own = update(&item.1, 0, wants).encoded_len() + PER_ENTRY;
        if set + own > budget {
            planned.too_large.push((item.0.clone(), too_large(&item, set + own, budget)));
            continue;
        }
        match open.iter_mut().find(|chunk| chunk.takes(&item, set, own, budget, most_items)) {
            Some(chunk) => chunk.add(item, set, own),
            None => {
                let mut chunk = Chunk::default();
                chunk.add(item, set, own);
                open.push(chunk);
            }
        }
    }
    planned.chunks = open.into_iter().map(|chunk| chunk.items).collect();
    planned
}

/// The sets and items of a call.
pub(super) fn message<'a>(
    items: &'a [Item],
    wants: &pb::Wants,
) -> (Vec<&'a BackendSet>, Vec<pb::LoadBalancerUpdate>) {
    let mut sets: Vec<&BackendSet> = Vec::new();
    let mut index: HashMap<&str, u32> = HashMap::new();
    let updates = items.iter().map(|(_, wanted)| {
        let at = *index.entry(&wanted.backends.digest).or_insert_with(|| {
            sets.push(&wanted.backends);
            u32::try_from(sets.len() - 1).unwrap_or(u32::MAX)
        });
        update(wanted, at, wants)
    });
    let updates = updates.collect();
    (sets, updates)
}

#[derive(Default)]
struct Chunk {
    items: Vec<Item>,
    sets: HashSet<String>,
    uids: HashSet<String>,
    bytes: usize,
}

impl Chunk {
    fn takes(&self, (key, wanted): &Item, set: usize, own: usize, budget: usize, most: usize) -> bool {
        let set = if self.sets.contains(&wanted.backends.digest) { 0 } else { set };
        self.items.len() < most && self.bytes + set + own <= budget && !self.uids.contains(&key.subject)
    }

    fn add(&mut self, item: Item, set: usize, own: usize) {
        if self.sets.insert(item.1.backends.digest.clone()) {
            self.bytes += set;
        }
        self.bytes += own;
        self.uids.insert(item.0.subject.clone());
        self.items.push(item);
    }
}

fn update(wanted: &UpdateLoadBalancer, backend_set: u32, wants: &pb::Wants) -> pb::LoadBalancerUpdate {
    pb::LoadBalancerUpdate {
        service: Some(wanted::service(&wanted.service, &wants.service.clone().unwrap_or_default())),
        backend_set,
        desired_digest: wanted.desired_digest.clone(),
        revision: wanted.revision,
    }
}

fn too_large((_, wanted): &Item, bytes: usize, budget: usize) -> CloudError {
    let message = format!(
        "the update of {} with {} nodes takes {bytes} bytes, the provider accepts {budget}: a set cannot be split",
        wanted.service.key,
        wanted.backends.nodes.len()
    );
    status::too_large(method::BATCH_UPDATE_LOAD_BALANCERS.name, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud::call::batch::BatchRpc as _,
        kube::fixtures::{node, service},
    };
    use std::sync::Arc;

    fn set(nodes: usize) -> Arc<crate::cloud::BackendSet> {
        let nodes = (0..nodes).map(|i| Arc::new(node(&format!("node-{i}")))).collect();
        Arc::new(wanted::backend_set(nodes, &pb::NodeFields::default()))
    }

    fn item(name: &str, backends: &Arc<crate::cloud::BackendSet>, revision: u64) -> Item {
        let wanted = UpdateLoadBalancer {
            service: Arc::new(service(name).load_balancer()),
            backends: Arc::clone(backends),
            desired_digest: "d".to_owned(),
            revision,
        };
        (Updates::key(&wanted), wanted)
    }

    /// The message as the provider reads it.
    fn sent(items: &[Item]) -> pb::BatchUpdateLoadBalancersRequest {
        let (sets, items) = message(items, &pb::Wants::default());
        let backend_sets = sets.iter().map(|set| pb::BackendSet::decode(&set.encoded[..]).unwrap()).collect();
        pb::BatchUpdateLoadBalancersRequest { backend_sets, items, ..Default::default() }
    }

    fn shape(planned: &Planned) -> Vec<usize> {
        planned.chunks.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_hundred_services_with_one_set_are_one_call_with_one_set() {
        let backends = set(50);
        let items = (0..100).map(|i| item(&format!("s{i}"), &backends, 1)).collect();
        let planned = plan(items, &pb::Wants::default(), 16 << 20, 500);
        assert_eq!(shape(&planned), [100]);
        let message = sent(&planned.chunks[0]);
        assert_eq!((message.backend_sets.len(), message.items.len()), (1, 100));
        assert!(message.items.iter().all(|item| item.backend_set == 0));
    }

    #[test]
    fn each_item_points_at_its_own_set() {
        let (a, b) = (set(1), set(2));
        let items = vec![item("s1", &a, 1), item("s2", &b, 1), item("s3", &a, 1)];
        let planned = plan(items, &pb::Wants::default(), 16 << 20, 500);
        let message = sent(&planned.chunks[0]);
        assert_eq!(message.backend_sets.len(), 2);
        for (item, (_, wanted)) in message.items.iter().zip(&planned.chunks[0]) {
            assert_eq!(message.backend_sets[item.backend_set as usize].digest, wanted.backends.digest);
        }
    }

    #[test]
    fn batches_are_split_by_count_and_by_bytes_and_never_above() {
        let backends = set(3);
        let items = || (0..10).map(|i| item(&format!("s{i}"), &backends, 1)).collect();
        assert_eq!(shape(&plan(items(), &pb::Wants::default(), 16 << 20, 4)), [4, 4, 2]);

        let small = RESERVE + 400;
        let planned = plan(items(), &pb::Wants::default(), small, 500);
        assert!(planned.chunks.len() > 1 && planned.too_large.is_empty());
        assert_eq!(shape(&planned).iter().sum::<usize>(), 10);
        for chunk in &planned.chunks {
            let bytes = sent(chunk).encoded_len();
            assert!(bytes <= small, "{bytes} bytes");
        }
    }

    #[test]
    fn what_fits_into_no_message_is_told_and_never_cut() {
        let (small, large) = (set(1), set(2000));
        let items = vec![item("small", &small, 1), item("large", &large, 1)];
        let planned = plan(items, &pb::Wants::default(), RESERVE + 10_000, 500);
        assert_eq!(shape(&planned), [1]);
        assert_eq!(planned.chunks[0][0].1.service.uid, "small-uid");
        let (key, error) = &planned.too_large[0];
        assert_eq!(key.subject, "large-uid");
        assert!(error.is_too_large());
        assert!(error.message.contains("default/large with 2000 nodes"), "{}", error.message);
    }

    #[test]
    fn no_service_is_twice_in_a_call() {
        let backends = set(1);
        let items = vec![item("s", &backends, 1), item("s", &backends, 2)];
        assert_eq!(shape(&plan(items, &pb::Wants::default(), 16 << 20, 500)), [1, 1]);
    }
}
