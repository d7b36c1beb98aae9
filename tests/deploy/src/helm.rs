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

use crate::folder;

const TOOLS: &str = "deploy/tools";
/// Built from its module, Helm believes that it speaks to the oldest cluster there is.
const KUBERNETES: &str = "--kube-version=1.36.0";

/// What this process has built already: linking takes a while, also when nothing has changed.
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

/// The real Helm, for the one chart.
#[derive(Debug)]
pub struct Helm(PathBuf);

impl Helm {
    /// Builds it, or finds it built.
    pub fn built() -> Result<Self> {
        Ok(Self(built("helm", "helm.sh/helm/v3/cmd/helm")?))
    }

    /// `helm lint --strict`; out comes what it says.
    pub fn lint(&self, values: &Value) -> Result<String> {
        self.run(&["lint", "--strict"], &[], values)
    }

    /// The manifests as `helm install cloud-controller-manager` makes them in `kube-system`.
    pub fn render(&self, values: &Value) -> Result<String> {
        self.run(&["template", "cloud-controller-manager"], &["--namespace=kube-system"], values)
    }

    /// Those of one template.
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
    /// Builds it, or finds it built.
    pub fn built() -> Result<Self> {
        Ok(Self(built("kustomize", "sigs.k8s.io/kustomize/kustomize/v5")?))
    }

    /// `kustomize build` of a folder.
    pub fn build(&self, of: &Path) -> Result<String> {
        output(Command::new(&self.0).arg("build").arg(of), "")
    }
}

/// The Kubernetes objects of a text.
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
