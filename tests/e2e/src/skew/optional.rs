//! The fields that the contract calls optional: the word is in the comment above the field.

use std::collections::BTreeSet;

const SOURCES: [&str; 12] = [
    include_str!("../../../../proto/ccm/discovery/v1/discovery.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/cloud_provider.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/cluster.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/clusters.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/effects.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/errors.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/instances.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/load_balancers.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/node.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/routes.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/service.proto"),
    include_str!("../../../../proto/ccm/cloudprovider/v1alpha1/volumes.proto"),
];

/// Full names of all optional fields.
pub(crate) fn fields() -> BTreeSet<String> {
    SOURCES.iter().flat_map(|source| fields_of(source)).collect()
}

fn fields_of(source: &str) -> Vec<String> {
    let (mut package, mut messages, mut comment, mut found) = ("", Vec::new(), String::new(), Vec::new());
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("//") {
            comment.push_str(text);
            continue;
        }
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';');
        } else if line.ends_with('{') {
            messages.push(line.split_whitespace().nth(1).unwrap_or_default());
        } else if line.starts_with('}') {
            messages.pop();
        } else if let Some((declared, _number)) = line.split_once(" = ")
            && comment.contains("Optional")
            && let Some(name) = declared.split_whitespace().last()
            // A token says where the caller is: without it, the request would ask for something else.
            && !name.ends_with("_token")
        {
            found.push(format!("{package}.{}.{name}", messages.join(".")));
        }
        comment.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use cloudprovider_proto::BASELINE_DESCRIPTOR_SET;
    use prost_reflect::DescriptorPool;

    use super::*;

    #[test]
    fn they_are_fields_of_the_contract() {
        let pool = DescriptorPool::decode(BASELINE_DESCRIPTOR_SET).unwrap();
        let known: BTreeSet<String> = pool
            .all_messages()
            .flat_map(|message| {
                message.fields().map(|field| field.full_name().to_owned()).collect::<Vec<_>>()
            })
            .collect();
        let optional = fields();
        assert!(optional.len() > 30, "the way in which fields are called optional has changed: {optional:?}");
        // A field added after the baseline is not a field of the baseline; there is none yet.
        let strange: Vec<&String> = optional.difference(&known).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }
}
