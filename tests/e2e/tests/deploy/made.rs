//! The generated files match the chart: `UPDATE_DOCS=1` regenerates them.

use std::{env, fs};

use anyhow::{Result, ensure};
use e2e::deploy::{Helm, Kustomize, folder, made, objects};
use serde_json::Value;

#[test]
fn what_is_made_from_the_chart_is_up_to_date() -> Result<()> {
    let update = env::var_os("UPDATE_DOCS").is_some();
    for file in made::files(&Helm::built()?)? {
        if update {
            fs::write(&file.path, &file.text)?;
        }
        ensure!(
            fs::read_to_string(&file.path).unwrap_or_default() == file.text,
            "{} is not what the chart says; run UPDATE_DOCS=1 cargo test --test deploy",
            file.path.display()
        );
    }
    Ok(())
}

/// Installing with Helm, kubectl or kustomize gives the same cluster.
#[test]
fn chart_manifests_and_kustomize_say_the_same() -> Result<()> {
    let (helm, kustomize) = (Helm::built()?, Kustomize::built()?);
    for kind in ["DaemonSet", "Deployment"] {
        let name = kind.to_lowercase();
        let installed = sorted(&helm.render(&made::plain(kind))?)?;
        let plain = sorted(&fs::read_to_string(folder().join(format!("manifests/{name}.yaml")))?)?;
        let built = sorted(&kustomize.build(&folder().join("kustomize").join(&name))?)?;
        ensure!(installed == plain, "{kind}: helm and manifests/ differ:\n{installed:#?}\n{plain:#?}");
        ensure!(installed == built, "{kind}: helm and kustomize/ differ:\n{installed:#?}\n{built:#?}");
    }
    Ok(())
}

/// Their order has no meaning.
fn sorted(yaml: &str) -> Result<Vec<Value>> {
    let mut objects = objects(yaml)?;
    objects.sort_by_cached_key(|object| format!("{} {}", object["kind"], object["metadata"]));
    Ok(objects)
}
