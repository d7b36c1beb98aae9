//! proto → sdk → providers, and proto → host; host and providers meet only on the wire.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::collections::BTreeMap;

use cargo_metadata::MetadataCommand;

/// What each shipped crate may depend on among ours, for anything but its tests.
const MAY: [(&str, &[&str]); 4] = [
    ("cloudprovider-proto", &[]),
    ("cloudprovider-sdk", &["cloudprovider-proto"]),
    ("provider-mock", &["cloudprovider-proto", "cloudprovider-sdk"]),
    ("ccm-host", &["cloudprovider-proto"]),
];

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
        if folders[package.name.as_str()].starts_with("tests/") {
            continue;
        }
        let (_, allowed) = MAY
            .iter()
            .find(|(name, _)| *name == package.name.as_str())
            .unwrap_or_else(|| panic!("{} is shipped: say in this test what it may depend on", package.name));
        for dependency in &package.dependencies {
            let ours = folders.contains_key(&dependency.name);
            assert!(
                !ours || allowed.contains(&dependency.name.as_str()),
                "{} must not depend on {}: host and providers meet only on the wire",
                package.name,
                dependency.name
            );
        }
    }
}
