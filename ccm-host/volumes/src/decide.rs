//! Which labels and which node affinity a volume gets. Pure.
//!
//! In: the volume, and what providers answered about its disk. Out: whom to ask, what to write, or why not. Upstream's
//! rules with these differences: labels of the user win over the cloud's, each key counts for itself, and only the names
//! of zone and region that are current are written.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity,
};

use ccm_base::label;
use ccm_cloud::{CloudError, VolumeAnswer, VolumeQuery, VolumeState};
use ccm_kube::persistent_volume::{Disk, PersistentVolume};
use ccm_reconcile::{Report, Retry, SLOW_RETRY};

pub(super) const ZONE: &str = label::ZONE[0];
pub(super) const REGION: &str = label::REGION[0];

/// The deprecated labels of zone and region, with their replacements.
const FORMER: [(&str, &str); 2] = [(label::ZONE[1], ZONE), (label::REGION[1], REGION)];

/// What the in-tree provisioners wrote before the disk existed.
const PLACEHOLDER: &str = "placeholder-for-provisioning";

/// The longest id that the contract carries.
const LONGEST_ID: usize = 1 << 10;

pub(super) type Labels = BTreeMap<String, String>;

/// Where the labels of a volume come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// There is nothing to label, or nothing left.
    Nothing,
    /// The provisioner knew: no provider is asked.
    Trusted(Labels),
    Ask(VolumeQuery),
}

/// The cloud's labels, and sentences that name what was dropped from them; or why there are none, which is nothing if the
/// volume is not one of the providers'.
pub(super) type Known = Result<(Labels, Vec<String>), Vec<Report>>;

/// The Event of a volume that has no labels yet.
const NOT_LABELLED: &str = "VolumeNotLabelled";

/// Nobody takes these labels: they make no sense.
pub(super) fn refused(why: String) -> Report {
    Report::blocked("LabelsRefused", why, Retry::After(SLOW_RETRY)).warning(NOT_LABELLED)
}

fn disk(query: &VolumeQuery) -> String {
    format!("disk {:?} ({})", query.volume_id, query.plugin)
}

/// Until a provider that has not introduced itself may be known. Nobody is asked meanwhile.
const UNDECIDED: Duration = Duration::from_secs(5);

/// A provider that may know the disk has not introduced itself yet.
pub(super) fn undecided(query: &VolumeQuery) -> Report {
    let message = format!("a provider that may know {} has not introduced itself yet", disk(query));
    Report::waiting("ProviderUnsure", message, Retry::After(UNDECIDED))
}

/// The labels that a volume did not get.
pub(super) fn left_out(plan: &Plan, rejected: &[String]) -> Vec<Report> {
    let warn = |event, message| Report::left_alone(event, message).warning(event);
    let invalid = (!rejected.is_empty()).then(|| warn("InvalidVolumeLabels", rejected.join("; ")));
    let differing = (!plan.differing.is_empty()).then(|| {
        warn("VolumeLabelsDiffer", format!("labels are left as they are: {}", plan.differing.join(", ")))
    });
    invalid.into_iter().chain(differing).collect()
}

pub(super) fn basis(volume: &PersistentVolume) -> Basis {
    let Some(Disk { plugin, id }) = &volume.disk else { return Basis::Nothing };
    if volume.is_deleting || id.is_empty() || id == PLACEHOLDER || id.len() > LONGEST_ID {
        return Basis::Nothing;
    }
    let pair = [ZONE, REGION].map(|key| volume.labels.get(key));
    if let ([Some(_), Some(_)], Some(keys)) = (pair, &volume.affinity_keys)
        && [ZONE, REGION].iter().all(|key| keys.iter().any(|used| used == key))
    {
        return Basis::Nothing;
    }
    if volume.is_provisioned
        && let Some(trusted) = trusted(volume)
    {
        return Basis::Trusted(trusted);
    }
    Basis::Ask(VolumeQuery {
        name: volume.name.clone(),
        uid: volume.uid.clone(),
        plugin,
        volume_id: id.clone(),
        labels: volume.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    })
}

/// Zone and region as the volume says them: both under the current names, or else both under the deprecated ones.
fn trusted(volume: &PersistentVolume) -> Option<Labels> {
    let pair = |keys: [&str; 2]| -> Option<Labels> {
        let [zone, region] = keys.map(|key| volume.labels.get(key).map(str::to_owned));
        Some(BTreeMap::from([(ZONE.to_owned(), zone?), (REGION.to_owned(), region?)]))
    };
    pair([ZONE, REGION]).or_else(|| pair(FORMER.map(|(former, _)| former)))
}

/// What the answers of all providers that know volumes come to. The contract does not say whose a volume is before one
/// was asked. One that has it counts once all others have denied it: a node affinity cannot be taken back.
pub(super) fn verdict(
    query: &VolumeQuery,
    answers: Vec<(String, Result<VolumeAnswer, CloudError>)>,
) -> Known {
    let disk = disk(query);
    let (mut found, mut absent, mut failed) = (Vec::new(), Vec::new(), None);
    for (provider, answer) in answers {
        match answer {
            Ok(answer) => match answer.state {
                VolumeState::Present => found.push((provider, answer)),
                VolumeState::Absent => absent.push(provider),
                VolumeState::NotOwned => {}
                VolumeState::Unspecified => failed = failed.or(Some((provider, answer.error))),
            },
            Err(error) => failed = failed.or(Some((provider, Some(error)))),
        }
    }
    let unlabelled =
        |reason, message, retry| Err(vec![Report::blocked(reason, message, retry).warning(NOT_LABELLED)]);
    match (found.len(), failed) {
        (2.., _) => {
            let names: Vec<_> = found.iter().map(|(provider, _)| format!("{provider:?}")).collect();
            let message = format!("{disk} is known to several providers: {}", names.join(", "));
            unlabelled("SeveralProviders", message, Retry::After(SLOW_RETRY))
        }
        (_, Some((provider, error))) => {
            let message = format!("provider {provider:?} could not say where {disk} is");
            match error {
                Some(error) => {
                    Err(vec![Report::failed("ProviderFailed", message, &error).warning(NOT_LABELLED)])
                }
                None => {
                    let message = format!("{message}: it does not say why");
                    unlabelled("ProviderFailed", message, Retry::Backoff)
                }
            }
        }
        (1, None) => {
            let (_, answer) = found.swap_remove(0);
            Ok((answer.labels, answer.rejected))
        }
        (0, None) if absent.is_empty() => Err(Vec::new()),
        (0, None) => {
            let names: Vec<_> = absent.iter().map(|provider| format!("{provider:?}")).collect();
            let message = format!("{disk} does not exist, says provider {}", names.join(", "));
            unlabelled("DiskNotFound", message, Retry::Backoff)
        }
    }
}

/// What a volume lacks.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Labels to set; none of them is there yet.
    pub(super) labels: Labels,
    /// What each term of the node affinity should also ask of a node.
    pub(super) requirements: Vec<NodeSelectorRequirement>,
    /// One phrase for each label of the user that is not what the cloud says.
    pub(super) differing: Vec<String>,
}

/// Compares the volume with the cloud's labels. An error names a value that makes no sense.
pub(super) fn plan(volume: &PersistentVolume, labels: Labels) -> Result<Plan, String> {
    let mut plan = Plan::default();
    for (key, value) in current(labels) {
        let values = values_of(&key, &value)?;
        let former = FORMER.iter().find(|(_, current)| *current == key).map(|(former, _)| *former);
        let own = [volume.labels.get(&key), former.and_then(|former| volume.labels.get(former))];
        let differs = |own: &&str| values_of(&key, own).as_ref() != Ok(&values);
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
    pub(super) fn affinity(&self, before: Option<VolumeNodeAffinity>) -> Option<VolumeNodeAffinity> {
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
fn values_of(key: &str, value: &str) -> Result<Vec<String>, String> {
    if key != ZONE {
        return Ok(vec![value.to_owned()]);
    }
    let zones: BTreeSet<_> = value.split("__").map(|zone| zone.trim().to_owned()).collect();
    if zones.contains("") {
        return Err(format!("{key} {value:?} has an empty part"));
    }
    Ok(zones.into_iter().collect())
}
