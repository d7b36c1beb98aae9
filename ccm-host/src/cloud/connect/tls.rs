//! Mutual TLS. The files are read on each connection, so that rotated certificates take effect.

use std::path::PathBuf;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint as Transport, Identity};

use super::ConnectError;
use crate::cloud::{settings::TlsDir, status::with_sources};

pub(super) async fn transport(host: &str, port: u16, dir: &TlsDir) -> Result<Transport, ConnectError> {
    let ca = read(dir.ca()).await?;
    let certificate = read(dir.certificate()).await?;
    let key = read(dir.key()).await?;
    let unusable = |problem: String| ConnectError::Tls { path: dir.0.clone(), problem };
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca))
        .identity(Identity::from_pem(certificate, key))
        .domain_name(host.trim_start_matches('[').trim_end_matches(']'));
    Transport::from_shared(format!("https://{host}:{port}"))
        .map_err(|error| unusable(error.to_string()))?
        .tls_config(config)
        .map_err(|error| unusable(with_sources(&error)))
}

async fn read(path: PathBuf) -> Result<Vec<u8>, ConnectError> {
    match tokio::fs::read(&path).await {
        Ok(bytes) if bytes.is_empty() => Err(ConnectError::Tls { path, problem: "it is empty".to_owned() }),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(ConnectError::Tls { path, problem: error.to_string() }),
    }
}
