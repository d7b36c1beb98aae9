//! Applies manifests as people write them, several documents in one text, by server-side apply.

use anyhow::{Context as _, Result};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use serde_json::Value;

const FIELD_MANAGER: &str = "control-plane";
const DEFAULT_NAMESPACE: &str = "default";

/// Applies in the order given; stops at the first refused one.
pub(crate) async fn apply_yaml(client: &Client, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for object in parse(yaml)? {
        applied.push(apply(client, &object).await?);
    }
    Ok(applied)
}

/// Empty documents (a comment, a doubled `---`) are common in rendered charts.
fn parse(yaml: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("no YAML")?;
    let objects = documents.into_iter().filter(|document| !document.is_null());
    objects.map(|document| serde_json::from_value(document).context("no Kubernetes object")).collect()
}

async fn apply(client: &Client, object: &DynamicObject) -> Result<DynamicObject> {
    let types = object.types.as_ref().context("an object without apiVersion and kind")?;
    let name = object.metadata.name.as_deref().with_context(|| format!("a {} without a name", types.kind))?;
    let what = || format!("cannot apply {} {} {name}", types.api_version, types.kind);
    let kind = GroupVersionKind::try_from(types).with_context(what)?;
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.with_context(what)?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object)).await.with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_documents_are_passed_over() {
        let yaml = "---\n# Source: chart\n---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n---\n---\n{apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
        let names: Vec<_> =
            parse(yaml).unwrap().into_iter().filter_map(|object| object.metadata.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn text_that_is_no_manifest_is_an_error() {
        assert!(parse("just words").is_err());
        assert!(parse("a: [").is_err());
    }
}
