//! From the cloud's labels to what is written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity,
};

use super::{FORMER, Labels, ZONE};
use crate::kube::persistent_volume::PersistentVolume;

/// What a volume lacks.
#[derive(Debug, Default, PartialEq)]
pub(in super::super) struct Plan {
    /// Labels to set; none of them is there yet.
    pub(in super::super) labels: Labels,
    /// What each term of the node affinity should also ask of a node.
    pub(in super::super) requirements: Vec<NodeSelectorRequirement>,
    /// One phrase for each label of the user that is not what the cloud says.
    pub(in super::super) differing: Vec<String>,
}

/// Compares the volume with the cloud's labels. An error names a value that makes no sense.
pub(in super::super) fn plan(volume: &PersistentVolume, labels: Labels) -> Result<Plan, String> {
    let mut plan = Plan::default();
    for (key, value) in current(labels) {
        let values = values(&key, &value)?;
        let former = FORMER.iter().find(|(_, current)| *current == key).map(|(former, _)| *former);
        let own = [volume.labels.get(&key), former.and_then(|former| volume.labels.get(former))];
        let differs = |own: &&str| self::values(&key, own).as_ref() != Ok(&values);
        if let Some(own) = own.into_iter().flatten().find(differs) {
            plan.differing.push(format!("{key} is {own:?} and not {:?}", values.join("__")));
            continue;
        }
        if !volume.labels.contains_key(&key) {
            plan.labels.insert(key.clone(), values.join("__"));
        }
        let is_used = |used: &String| *used == key || Some(used.as_str()) == former;
        if !volume.affinity_keys.iter().flatten().any(is_used) {
            let operator = "In".to_owned();
            plan.requirements.push(NodeSelectorRequirement { key, operator, values: Some(values) });
        }
    }
    Ok(plan)
}

impl Plan {
    /// The node affinity with these requirements in every term; `None` if there are none.
    pub(in super::super) fn affinity(
        &self,
        before: Option<VolumeNodeAffinity>,
    ) -> Option<VolumeNodeAffinity> {
        if self.requirements.is_empty() {
            return None;
        }
        let mut terms = before.and_then(|before| before.required).unwrap_or_default().node_selector_terms;
        if terms.is_empty() {
            // Selects every node until the requirements are in it.
            let expressions = Some(Vec::new());
            terms.push(NodeSelectorTerm { match_expressions: expressions, match_fields: None });
        } else {
            // A term without any condition selects no node: with a requirement it would.
            let is_empty = |term: &NodeSelectorTerm| {
                term.match_expressions.iter().flatten().next().is_none()
                    && term.match_fields.iter().flatten().next().is_none()
            };
            terms.retain(|term| !is_empty(term));
            if terms.is_empty() {
                return None;
            }
        }
        for term in &mut terms {
            term.match_expressions.get_or_insert_default().extend(self.requirements.iter().cloned());
        }
        Some(VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: terms }) })
    }
}

/// The labels by their current names. Where a provider gives both, the current one counts.
fn current(mut labels: Labels) -> BTreeMap<String, String> {
    for (former, key) in FORMER {
        if let Some(value) = labels.remove(former) {
            labels.entry(key.to_owned()).or_insert(value);
        }
    }
    labels
}

/// The values of a label: those of a zone are several, in one text.
fn values(key: &str, value: &str) -> Result<Vec<String>, String> {
    if key != ZONE {
        return Ok(vec![value.to_owned()]);
    }
    let zones: BTreeSet<_> = value.split("__").map(|zone| zone.trim().to_owned()).collect();
    if zones.contains("") {
        return Err(format!("{key} {value:?} has an empty part"));
    }
    Ok(zones.into_iter().collect())
}
