//! A kubeconfig, and a client, for one identity at one apiserver, from the same values.

use std::{fs::OpenOptions, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::AuthInfo;
use serde_json::{Value, json};

use crate::authority::{Authority, Certificate};

/// How a user authenticates.
#[derive(Debug)]
pub(crate) enum Identity {
    Token(String),
    Certificate(Certificate),
}

impl Identity {
    fn user(&self) -> Value {
        match self {
            Self::Token(token) => json!({ "token": token }),
            Self::Certificate(certificate) => json!({
                "client-certificate-data": STANDARD.encode(&certificate.pem),
                "client-key-data": STANDARD.encode(&certificate.key_pem),
            }),
        }
    }
}

/// The kubeconfig's text, for clients in every language: JSON, which is also YAML.
pub(crate) fn text(url: &str, authority: &Authority, identity: &Identity) -> String {
    let cluster = json!({ "server": url, "certificate-authority-data": STANDARD.encode(authority.pem()) });
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "control-plane", "cluster": cluster }],
        "users": [{ "name": "user", "user": identity.user() }],
        "contexts": [{ "name": "control-plane", "context": { "cluster": "control-plane", "user": "user" } }],
        "current-context": "control-plane",
    });
    format!("{kubeconfig:#}\n")
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The configuration of a client. kube's connection pool is unbounded: all requests run concurrently.
pub(crate) fn client_config(url: &str, authority: &Authority, identity: &Identity) -> Result<kube::Config> {
    let mut config = kube::Config::new(url.parse().with_context(|| format!("{url} is no URI"))?);
    config.root_cert = Some(vec![authority.der().to_vec()]);
    config.auth_info =
        serde_json::from_value::<AuthInfo>(identity.user()).context("cannot make the client's identity")?;
    Ok(config)
}
