//! Helm and kustomize, built from the modules that `deploy/tools` pins.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use test_cluster::go;

use super::folder;

const TOOLS: &str = "deploy/tools";
/// Helm built from its module assumes the oldest supported cluster.
const KUBERNETES: &str = "--kube-version=1.37.0";

/// What this process has already built: linking takes a while even if nothing has changed.
static BUILT: Mutex<Vec<(&str, PathBuf)>> = Mutex::new(Vec::new());

fn built(name: &'static str, package: &str) -> Result<PathBuf> {
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((_, program)) = built.iter().find(|(known, _)| *known == name) {
        return Ok(program.clone());
    }
    let program = go::built(TOOLS, package, name)?;
    built.push((name, program.clone()));
    Ok(program)
}

/// The real Helm, for our only chart.
#[derive(Debug)]
pub struct Helm(PathBuf);

impl Helm {
    /// Builds it, unless it is built.
    pub fn built() -> Result<Self> {
        Ok(Self(built("helm", "helm.sh/helm/v3/cmd/helm")?))
    }

    /// The output of `helm lint --strict`.
    pub fn lint(&self, values: &Value) -> Result<String> {
        self.run(&["lint", "--strict"], &[], values)
    }

    /// The manifests that `helm install cloud-controller-manager` creates in `kube-system`.
    pub fn render(&self, values: &Value) -> Result<String> {
        self.run(&["template", "cloud-controller-manager"], &["--namespace=kube-system"], values)
    }

    /// The manifests of one template.
    pub fn render_only(&self, template: &str, values: &Value) -> Result<String> {
        let only = format!("--show-only=templates/{template}");
        self.run(&["template", "cloud-controller-manager"], &["--namespace=kube-system", &only], values)
    }

    fn run(&self, command: &[&str], flags: &[&str], values: &Value) -> Result<String> {
        let mut helm = Command::new(&self.0);
        helm.args(command).arg(folder().join("chart/ccm-host")).args(flags).args([KUBERNETES, "--values=-"]);
        output(&mut helm, &values.to_string())
    }
}

/// The real kustomize.
#[derive(Debug)]
pub struct Kustomize(PathBuf);

impl Kustomize {
    /// Builds it, unless it is built.
    pub fn built() -> Result<Self> {
        Ok(Self(built("kustomize", "sigs.k8s.io/kustomize/kustomize/v5")?))
    }

    /// `kustomize build` of a directory.
    pub fn build(&self, of: &Path) -> Result<String> {
        output(Command::new(&self.0).arg("build").arg(of), "")
    }
}

/// The Kubernetes objects in a text.
pub fn objects(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("no YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn output(command: &mut Command, input: &str) -> Result<String> {
    let mut running = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    running.stdin.take().context("it was piped")?.write_all(input.as_bytes())?;
    let done = running.wait_with_output()?;
    if !done.status.success() {
        bail!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
