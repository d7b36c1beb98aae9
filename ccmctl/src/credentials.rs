//! Who asks: the kubeconfig's user, or whoever the flags name.
//!
//! In: the flags and the kubeconfig. Out: a TLS configuration with the client certificate, and the `Authorization` header.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use http::{HeaderValue, Request, Response, header::AUTHORIZATION};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config,
    client::ConfigExt as _,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::WebPkiServerVerifier,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::cli::Way;

/// How a request shows who asks.
pub(crate) struct Credentials {
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) authorization: Option<HeaderValue>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The configuration of the cluster.
pub(crate) async fn config(way: &Way) -> Result<Config> {
    let options = KubeConfigOptions { context: way.context.clone(), ..KubeConfigOptions::default() };
    let config = match &way.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path)
                .with_context(|| format!("--kubeconfig={} cannot be read", path.display()))?;
            Config::from_custom_kubeconfig(read, &options).await?
        }
        None if way.context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer()
            .await
            .context("no kubeconfig found, and not running in a pod: give --kubeconfig")?,
    };
    Ok(config)
}

/// The uid of the namespace kube-system, by which providers know the cluster.
pub(crate) async fn cluster_uid(way: &Way) -> Result<String> {
    let uid = async {
        let client = Client::try_from(config(way).await?)?;
        let found = Api::<Namespace>::all(client).get_metadata("kube-system").await?;
        found.metadata.uid.context("the namespace kube-system has no uid")
    };
    uid.await.context(
        "the uid of the cluster is not known: give --cluster-uid, or a kubeconfig that may get namespaces",
    )
}

impl Credentials {
    /// Of the flags, else of the kubeconfig. `verified`: whether somebody else vouches for the host already.
    pub(crate) async fn new(way: &Way, verified: bool) -> Result<Self> {
        let (mut tls, authorization) = match of_flags(way)? {
            Some(given) => given,
            None => of_kubeconfig(&config(way).await?).await?,
        };
        let verifier: Arc<dyn ServerCertVerifier> = match &way.certificate_authority {
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                WebPkiServerVerifier::builder_with_provider(roots, Arc::new(ring::default_provider()))
                    .build()?
            }
            None if verified || way.insecure_skip_tls_verify => Arc::new(Anybody(ring::default_provider())),
            None => bail!(
                "nothing says whether {} is the host: give --certificate-authority, or --insecure-skip-tls-verify (the \
                 certificate that the host makes itself is new at each start)",
                way.server.as_deref().unwrap_or_default()
            ),
        };
        tls.dangerous().set_certificate_verifier(verifier);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: Arc::new(tls), authorization })
    }
}

/// `None` if the flags name nobody.
fn of_flags(way: &Way) -> Result<Option<(ClientConfig, Option<HeaderValue>)>> {
    let token = match (&way.token, &way.token_file) {
        (Some(token), _) => Some(token.clone()),
        (None, Some(path)) => Some(
            fs::read_to_string(path)
                .with_context(|| format!("--token-file={} cannot be read", path.display()))?,
        ),
        (None, None) => None,
    };
    let token = token.map(|token| bearer(token.trim())).transpose()?;
    let builder = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
    Ok(match (&way.client_certificate, &way.client_key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .with_context(|| format!("--client-key={} holds no key", key.display()))?;
            let tls = builder
                .with_client_auth_cert(chain, key)
                .context("--client-certificate and --client-key cannot be used")?;
            Some((tls, token))
        }
        _ => token.map(|token| (builder.with_no_client_auth(), Some(token))),
    })
}

async fn of_kubeconfig(config: &Config) -> Result<(ClientConfig, Option<HeaderValue>)> {
    let tls = config.rustls_client_config().context("the kubeconfig's certificates cannot be used")?;
    let Some(layer) = config.auth_layer().context("the kubeconfig's credentials cannot be used")? else {
        return Ok((tls, None));
    };
    // The layer knows every kind of credentials, and writes them into a request: this one goes nowhere.
    let read = layer.layer(service_fn(|request: Request<kube::client::Body>| {
        let header = request.headers().get(AUTHORIZATION).cloned();
        std::future::ready(Ok::<_, tower::BoxError>(Response::new(header)))
    }));
    let request = Request::new(kube::client::Body::empty());
    let header = read.oneshot(request).await.map_err(anyhow::Error::from_boxed)?;
    Ok((tls, header.into_body()))
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let Ok(mut header) = HeaderValue::try_from(format!("Bearer {token}")) else {
        bail!("the token has characters that no token has");
    };
    header.set_sensitive(true);
    Ok(header)
}

fn roots(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .with_context(|| format!("{} holds an unusable certificate", path.display()))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().with_context(|| format!("{} cannot be read as certificates", path.display()))?;
    if found.is_empty() {
        bail!("{} holds no certificate", path.display());
    }
    Ok(found)
}

/// Takes any certificate whose key the other end has.
#[derive(Debug)]
struct Anybody(CryptoProvider);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
