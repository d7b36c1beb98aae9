//! Confirms the deletion of Nodes that the guard holds back, as docs/node-deletion.md has it: an annotation.
//!
//! In: names, and each Node as it is now. Out: what would be allowed and, if the person agrees, the annotation with the
//! Node's uid, written only to exactly that Node. The host deletes it in its next pass, after its own last checks.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::json;

use crate::{Verdict, cli::Way, credentials, door::NotFound, show::Output};

const CONFIRM: &str = "cloudprovider.ccm/confirm-deletion";
const HELD_BACK: &str = "CloudProviderDeletionBlocked";
const KUBELET_ALIVE: &str = "KubeletAlive";

/// What confirming means for one Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Confirmation {
    node: String,
    uid: String,
    /// The rule that is overruled.
    rule: String,
    why: String,
    confirmed: bool,
}

pub(crate) async fn confirm(way: &Way, names: &[String], yes: bool, output: &Output) -> Result<Verdict> {
    let client = Client::try_from(credentials::config(way).await?)?;
    let api = Api::<Node>::all(client);
    let mut wanted = Vec::new();
    for name in names {
        let node = api.get_opt(name).await.with_context(|| format!("the node {name:?} cannot be read"))?;
        let node =
            node.ok_or_else(|| NotFound(format!("there is no node {name:?}: it may be deleted already")))?;
        wanted.push(examine(name, &node)?);
    }
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    for one in &mut wanted {
        if yes {
            // The uid in the body: the apiserver refuses to write to another Node of that name.
            let body = json!({ "metadata": { "uid": one.uid, "annotations": { CONFIRM: one.uid } } });
            match api.patch(&one.node, &PatchParams::default(), &Patch::Merge(body)).await {
                Ok(_) => one.confirmed = true,
                Err(error) => {
                    lines.push(format!(
                        "node {} (uid {}): not confirmed: {}",
                        one.node,
                        one.uid,
                        why(&error)
                    ));
                    failed.push(one.node.clone());
                    continue;
                }
            }
        }
        let did = if yes { "confirmed" } else { "would be confirmed" };
        lines.push(format!(
            "node {} (uid {}): the deletion {did}, overruling {}",
            one.node, one.uid, one.rule
        ));
        lines.push(format!("  {}", one.why));
    }
    lines.push(if yes {
        format!("The host deletes them in its next passes, unless an instance is found or a kubelet is heard. To take it back: \
                 kubectl annotate node NAME {CONFIRM}-")
    } else {
        "Nothing was done: give --yes if these nodes are really gone. Their pods are then deleted as well.".to_owned()
    });
    output.done(&wanted, &lines)?;
    if !failed.is_empty() {
        bail!("not confirmed: {}", failed.join(", "));
    }
    Ok(Verdict::attention_if(!yes))
}

fn why(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("you need the right to patch nodes: {}", status.message)
        }
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => {
            format!("it was deleted, or made anew, in the meantime: {}", status.message)
        }
        error => error.to_string(),
    }
}

/// Whether there is something to confirm, and what.
fn examine(name: &str, node: &Node) -> Result<Confirmation> {
    let conditions = || node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is =
        |kind: &str| conditions().find(|known| known.type_ == kind).filter(|known| known.status == "True");
    if is("Ready").is_some() {
        bail!("node {name:?} is Ready: the guard keeps no Ready node, so there is nothing to confirm");
    }
    let Some(held) = is(HELD_BACK) else {
        bail!(
            "the guard does not hold node {name:?} back (it has no condition {HELD_BACK}): ccmctl explain node {name} says why it is there"
        );
    };
    let rule = held.reason.clone().unwrap_or_default();
    if rule == KUBELET_ALIVE {
        bail!(
            "node {name:?} is kept because its kubelet renews its Lease, which nobody can overrule: stop the kubelet"
        );
    }
    let uid = node.metadata.uid.clone().with_context(|| format!("node {name:?} has no uid"))?;
    let why = held.message.clone().unwrap_or_default();
    Ok(Confirmation { node: name.to_owned(), uid, rule, why, confirmed: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &[(&str, &str, &str)]) -> Node {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, reason)| json!({ "type": kind, "status": status, "reason": reason, "message": "so" }))
            .collect();
        serde_json::from_value(
            json!({ "metadata": { "uid": "u-1" }, "status": { "conditions": conditions } }),
        )
        .unwrap()
    }

    #[test]
    fn only_what_the_guard_holds_back_is_confirmed() {
        let held = |reason| node(&[("Ready", "Unknown", "NodeStatusUnknown"), (HELD_BACK, "True", reason)]);
        let seen = examine("n", &held("TooManyDeletions")).unwrap();
        assert_eq!(
            (seen.uid.as_str(), seen.rule.as_str(), seen.confirmed),
            ("u-1", "TooManyDeletions", false)
        );
        let rows = [
            (held(KUBELET_ALIVE), "stop the kubelet"),
            (node(&[("Ready", "True", ""), (HELD_BACK, "True", "TooManyDeletions")]), "is Ready"),
            (node(&[("Ready", "False", "")]), "does not hold"),
            (node(&[(HELD_BACK, "False", "DeletionAllowed")]), "does not hold"),
        ];
        for (node, word) in rows {
            let error = examine("n", &node).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("\"n\""), "{error}");
        }
    }
}
