//! The files of `deploy/` that are generated from the chart, and the purpose of each.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Helm, folder, values};

const MADE: &str =
    "# Made from chart/ccm-host; change that, and run UPDATE_DOCS=1 cargo test --test deploy.\n";
const PLACEHOLDER: &str = "# The provider `example` stands for yours: its name, image and arguments.\n";
const TABLE: &str = "\n## Values\n\n";

/// One file and its expected content.
#[derive(Debug)]
pub struct Made {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// The values of the plain manifests: the chart's own, and a placeholder for the provider.
pub fn plain(kind: &str) -> Value {
    json!({ "kind": kind, "providers": { "example": {
        "image": { "repository": "registry.example/cloud-provider", "tag": "1.0.0" },
    }}})
}

/// All files.
pub fn files(helm: &Helm) -> Result<Vec<Made>> {
    let mut files = vec![readme()?, schema()?];
    // A chart contains everything that it installs.
    let alerts = std::fs::read_to_string(folder().join("prometheus/alerts.yaml"))?;
    files.push(Made { path: folder().join("chart/ccm-host/alerts.yaml"), text: alerts });
    let rights = rights(helm)?;
    for path in ["rbac.yaml", "kustomize/base/rbac.yaml"] {
        files.push(Made { path: folder().join(path), text: format!("{MADE}{rights}") });
    }
    let mut more = plain("DaemonSet");
    more["controllers"] = json!(["*", "kubelet-serving-csr", "persistent-volume-label"]);
    more["sshKeys"] = json!({ "secret": "kube-system/ssh-keys" });
    more["webhooks"] = json!(["persistent-volume-label"]);
    for name in ["kubelet-serving-csr.yaml", "ssh-keys.yaml", "persistent-volume-label.yaml", "webhooks.yaml"]
    {
        let rights = without_sources(&helm.render_only(name, &more)?);
        files.push(Made { path: folder().join(name), text: format!("{MADE}{rights}") });
    }
    for kind in ["DaemonSet", "Deployment"] {
        let workload = without_sources(&helm.render_only("workload.yaml", &plain(kind))?);
        let name = kind.to_lowercase();
        let whole = format!("{MADE}{PLACEHOLDER}{rights}{workload}");
        files.push(Made { path: folder().join(format!("manifests/{name}.yaml")), text: whole });
        let alone = format!("{MADE}{PLACEHOLDER}{workload}");
        files.push(Made { path: folder().join(format!("kustomize/{name}/workload.yaml")), text: alone });
    }
    Ok(files)
}

/// The permissions of all controllers except those that have their own file.
fn rights(helm: &Helm) -> Result<String> {
    let mut all = plain("DaemonSet");
    all["nodeIpam"] = json!({ "enabled": true });
    all["cluster"] = json!({ "cidrs": ["10.244.0.0/16"] });
    Ok(without_sources(&helm.render_only("rbac.yaml", &all)?))
}

/// The chart's page, with its table generated from the current values.
fn readme() -> Result<Made> {
    let path = folder().join("chart/ccm-host/README.md");
    let text = std::fs::read_to_string(&path)?;
    let (before, _) = text.split_once(TABLE).with_context(|| format!("{} has no values", path.display()))?;
    let table = values::table(&std::fs::read_to_string(folder().join("chart/ccm-host/values.yaml"))?)?;
    Ok(Made { path, text: format!("{before}{TABLE}{table}") })
}

/// The schema of the values, with the host's flags for `extraArgs`: a flag that does not exist, or whose value cannot be
/// read, is refused before anything changes.
fn schema() -> Result<Made> {
    let path = folder().join("chart/ccm-host/values.schema.json");
    let read = |path| Ok::<Value, anyhow::Error>(serde_json::from_str(&std::fs::read_to_string(path)?)?);
    let mut schema = read(path.clone())?;
    let file = read(folder().join("../docs/config.schema.json"))?;
    let flags = file["properties"].as_object().context("the schema of the configuration has no flags")?;
    let mut allowed: serde_json::Map<String, Value> = flags
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "provider" | "provider-tls-dir"))
        .map(|(name, property)| {
            (name.clone(), json!({ "$ref": format!("#/$defs/{}", kind(name, property)) }))
        })
        .collect();
    allowed.insert("config".to_owned(), json!({ "$ref": "#/$defs/text" }));
    let duration = flags["node-monitor-period"]["pattern"].clone();
    let network = schema["properties"]["cluster"]["properties"]["cidrs"]["items"]["pattern"].as_str();
    let network = network.context("cluster.cidrs has no pattern")?.trim_matches(['^', '$']).to_owned();
    // As the host reads them, spaces may stand around each.
    let networks = format!("^\\s*({network}\\s*(,\\s*{network}\\s*)?)?$");
    // `--set` makes numbers and switches of what a file has in quotes, and a list repeats the flag.
    schema["$defs"] = json!({
        "switch": {
            "type": ["boolean", "integer", "string"],
            "pattern": "^(1|t|T|true|TRUE|True|0|f|F|false|FALSE|False)$",
        },
        "integer": { "type": ["integer", "string"], "pattern": "^[0-9]+$" },
        "number": { "type": ["number", "string"], "pattern": "^[0-9]+(\\.[0-9]*)?$" },
        "duration": { "type": ["string", "integer"], "pattern": duration, "maximum": 0 },
        "text": { "type": ["string", "number", "boolean"] },
        "list": { "type": ["string", "number", "array"], "items": { "type": ["string", "number"] } },
        "networks": {
            "type": ["string", "array"], "pattern": networks,
            "items": { "type": "string", "pattern": networks }, "maxItems": 2,
        },
    });
    schema["properties"]["extraArgs"] = json!({
        "description": "The host's flags by name, made from docs/config.schema.json.",
        "type": "object",
        "additionalProperties": false,
        "properties": allowed,
    });
    Ok(Made { path, text: format!("{schema:#}\n") })
}

/// The definition for a flag's value in `extraArgs`.
fn kind(name: &str, property: &Value) -> &'static str {
    match property["type"].as_str() {
        _ if matches!(name, "cluster-cidr" | "service-cluster-ip-range") => "networks",
        Some("boolean") => "switch",
        Some("integer") => "integer",
        Some("number") => "number",
        Some(_) if property.get("pattern").is_some() => "duration",
        Some(_) => "text",
        None => "list",
    }
}

/// Helm marks each document with its template.
fn without_sources(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("# Source: ")).map(|line| format!("{line}\n")).collect()
}
