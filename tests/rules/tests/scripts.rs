//! What the scripts of the checks and of a release must notice.

#![allow(clippy::expect_used, reason = "a test that cannot read the checkout has failed")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use workspace_rules::root;

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).expect(file)
}

fn bash(script: &str) -> Output {
    Command::new("bash").args(["-euc", script]).env_remove("COMPLETE").output().expect("bash")
}

/// Otherwise it would be green for ever on a machine that lost its packages.
#[test]
fn the_checks_of_the_project_fail_without_machines() {
    let run = read(".ci/run");
    let start = run.find("without_machines() {").expect("the function");
    let function = run[start..].split_inclusive("\n}\n").next().expect("its end");
    let told =
        |before: &str| bash(&format!("packages=(containerd runc)\n{function}{before} without_machines"));
    assert!(told("").status.success(), "elsewhere they are left out");
    let failed = told("COMPLETE=yes");
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains("apt-get install --no-install-recommends containerd runc"), "{said}");

    assert!(read(".github/workflows/ci.yaml").contains(" COMPLETE=yes .ci/run"), "CI leaves nothing out");
    let calls = run.lines().filter(|line| line.trim_start().ends_with("without_machines")).count();
    assert_eq!(calls, 2, "where packages cannot be had, and where the cluster cannot be");
}

/// Whoever follows the pages would install another version.
#[test]
fn a_page_with_images_of_another_version_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = |file: &str, change: &dyn Fn(String) -> String| {
        let to = folder.path().join(file);
        fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).expect("a folder");
        fs::write(to, change(read(file))).expect(file);
    };
    let parts = [
        "deploy/release/version",
        "Cargo.toml",
        "deploy/chart/ccm-host/Chart.yaml",
        "provider-sdk/python/src/cloudprovider_sdk/version.py",
        "provider-sdk/go/doc.go",
        "providers/aws/Cargo.toml",
    ];
    let pages = ["docs/operate.md", "docs/without-an-sdk.md"];
    parts.iter().chain(&pages).for_each(|file| copy(file, &|text| text));
    let version = || bash(&format!("bash {}/deploy/release/version", folder.path().display()));
    let told = version();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let now = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    for page in pages {
        let image = if page.ends_with("operate.md") { "ccm-host, tag: \"" } else { "ccm-host:" };
        let named = format!("{image}{now}");
        assert!(read(page).contains(&named), "{page} names no image");
        copy(page, &|text| text.replace(&named, &format!("{image}0.0.9")));
        let told = version();
        let said = String::from_utf8_lossy(&told.stderr);
        assert!(!told.status.success() && said.contains(page) && said.contains("'0.0.9'"), "{page}: {said}");
        copy(page, &|text| text);
    }
}
