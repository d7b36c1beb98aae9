//! proto → sdk → providers, and proto → state → host and ccmctl; host, ccmctl and providers meet only on the wire.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::collections::BTreeMap;

use cargo_metadata::{Dependency, DependencyKind::Development, MetadataCommand};

/// What each shipped crate may depend on among ours, except in its tests.
const MAY: [(&str, &[&str]); 14] = [
    ("cloudprovider-proto", &[]),
    ("cloudprovider-sdk", &["cloudprovider-proto"]),
    ("provider-mock", &["cloudprovider-proto", "cloudprovider-sdk"]),
    ("ccm-state", &["cloudprovider-proto"]),
    // The floors of the host, from the ground up.
    ("ccm-base", &[]),
    ("ccm-kube", &["ccm-base", "ccm-state"]),
    ("ccm-cloud", &["ccm-base", "ccm-kube", "ccm-state", "cloudprovider-proto"]),
    ("ccm-reconcile", &["ccm-base", "ccm-cloud", "ccm-kube", "ccm-state", "cloudprovider-proto"]),
    ("ccm-nodes", CONTROLLERS),
    ("ccm-services", CONTROLLERS),
    ("ccm-volumes", CONTROLLERS),
    (
        "ccm-host",
        &[
            "ccm-base",
            "ccm-cloud",
            "ccm-kube",
            "ccm-nodes",
            "ccm-reconcile",
            "ccm-services",
            "ccm-state",
            "ccm-volumes",
        ],
    ),
    // It queries a running host of any release: it knows the documents, not the host.
    ("ccmctl", &["cloudprovider-proto", "ccm-state"]),
    // It tests providers of all kinds, so it may know none.
    ("provider-conformance", &["cloudprovider-proto"]),
];

/// Controllers know what they share, and no other controllers.
const CONTROLLERS: &[&str] = &["ccm-base", "ccm-cloud", "ccm-kube", "ccm-reconcile", "ccm-state"];

#[test]
fn shipped_crates_depend_in_one_direction() {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace_rules::root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let folders: BTreeMap<String, String> = metadata
        .workspace_packages()
        .iter()
        .map(|package| {
            let folder =
                package.manifest_path.strip_prefix(&metadata.workspace_root).expect("inside").to_string();
            (package.name.to_string(), folder)
        })
        .collect();
    for package in metadata.workspace_packages() {
        let known = MAY.iter().find(|(name, _)| *name == package.name.as_str());
        if known.is_none() && folders[package.name.as_str()].starts_with("tests/") {
            continue;
        }
        let (_, allowed) = known
            .unwrap_or_else(|| panic!("{} is shipped: say in this test what it may depend on", package.name));
        let shipped = |dependency: &&Dependency| {
            // An optional one is of the feature `testing`.
            dependency.kind != Development && !dependency.optional
        };
        for dependency in package.dependencies.iter().filter(shipped) {
            let ours = folders.contains_key(&dependency.name);
            let is_for_tests = dependency.features.iter().any(|feature| feature == "testing");
            assert!(!is_for_tests, "{} would ship fakes of {}", package.name, dependency.name);
            assert!(
                !ours || allowed.contains(&dependency.name.as_str()),
                "{} must not depend on {}: see the table in this test",
                package.name,
                dependency.name
            );
        }
    }
}

/// Go modules below a directory, each with its `go.mod`.
fn go_modules(folder: &str) -> Vec<(String, String)> {
    workspace_rules::files(&workspace_rules::root().join(folder), "go.mod")
        .expect("readable checkout")
        .into_iter()
        .map(|file| (file.display().to_string(), std::fs::read_to_string(&file).expect("text")))
        .collect()
}

#[test]
fn a_vendors_libraries_stay_in_the_module_of_its_provider() {
    let sdk = go_modules("provider-sdk");
    assert!(sdk.len() > 1, "the SDK and its bridge: {sdk:?}");
    for (file, text) in sdk {
        assert!(!text.contains("aws"), "{file} needs a vendor's library");
    }
    let providers = go_modules("providers");
    assert!(!providers.is_empty(), "bridged providers are Go modules");
    for (file, text) in providers {
        assert!(
            text.contains("cloudprovider.ccm/sdk => ../../provider-sdk/go"),
            "{file} does not use our SDK"
        );
    }
}

/// A workspace of its own, so the test above does not see it.
#[test]
fn the_provider_of_aws_knows_the_sdk_alone() {
    let manifest = workspace_rules::root().join("providers/aws/Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec().expect("cargo metadata");
    let [package] = *metadata.workspace_packages() else { panic!("providers/aws is one package") };
    let shipped = package.dependencies.iter().filter(|one| one.kind != Development && one.path.is_some());
    let ours: Vec<_> = shipped.map(|one| one.name.as_str()).collect();
    assert_eq!(ours, ["cloudprovider-sdk"]);
}
