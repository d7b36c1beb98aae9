//! One GET over loopback HTTPS/1.1.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How the caller authenticates.
#[derive(Debug, Clone, Default)]
pub enum Caller {
    /// Not at all.
    #[default]
    Nobody,
    /// A bearer token.
    Token(String),
    /// A certificate and its key, in PEM.
    Certificate(String, String),
}

impl Caller {
    /// The user of a kubeconfig.
    pub fn of(kubeconfig: &Path) -> Result<Self> {
        let text = fs::read(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let config: Value = serde_json::from_slice(&text)?;
        let user = &config["users"][0]["user"];
        if let Some(token) = user["token"].as_str() {
            return Ok(Self::Token(token.to_owned()));
        }
        let pem = |name: &str| -> Result<String> {
            let data =
                user[name].as_str().with_context(|| format!("{} has no {name}", kubeconfig.display()))?;
            Ok(String::from_utf8(STANDARD.decode(data)?)?)
        };
        Ok(Self::Certificate(pem("client-certificate-data")?, pem("client-key-data")?))
    }
}

/// Sends a GET to a server whose certificate this file vouches for, and returns status and body.
pub async fn get(address: &str, trusted: &Path, path: &str, caller: &Caller) -> Result<(u16, String)> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    let connector = TlsConnector::from(Arc::new(config(trusted, caller)?));
    let name = ServerName::try_from("localhost").context("a name")?;
    let stream = connector.connect(name, stream).await.context("no handshake")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<hyper::body::Bytes>>(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = http::Request::get(path).header("host", address);
    let request = match caller {
        Caller::Token(token) => request.header("authorization", format!("Bearer {token}")),
        Caller::Nobody | Caller::Certificate(..) => request,
    };
    let response = sender.send_request(request.body(Empty::new())?).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    driver.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

fn config(trusted: &Path, caller: &Caller) -> Result<ClientConfig> {
    let pem = fs::read(trusted).with_context(|| format!("cannot read {}", trusted.display()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    Ok(match caller {
        Caller::Certificate(certificate, key) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>()?;
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
        Caller::Nobody | Caller::Token(_) => config.with_no_client_auth(),
    })
}
