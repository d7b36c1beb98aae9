//! TCP: only with certificates of both sides, taken up anew when they change.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use cloudprovider_sdk::contract::discovery::v1::discovery_client::DiscoveryClient;
use cloudprovider_sdk::contract::discovery::v1::{GetInfoRequest, GetInfoResponse};
use cloudprovider_sdk::proto::instances_client::InstancesClient;
use cloudprovider_sdk::{ClientName, Endpoint, ProviderHandle, ServeError, ServeOptions, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::cloud::Cloud;
use crate::fixture::within;
use crate::requests::batch;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key for a DNS name or a URI.
    fn issue(&self, name: &str) -> (String, String) {
        let (key, is_uri) = (KeyPair::generate().unwrap(), name.contains("://"));
        let mut params = CertificateParams::default();
        let name = name.to_owned().try_into().unwrap();
        params.subject_alt_names = vec![if is_uri { SanType::URI(name) } else { SanType::DnsName(name) }];
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

struct Files(TempDir);

impl Files {
    fn new(server: &Authority, clients: &Authority) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.renew(server, clients);
        files
    }

    fn renew(&self, server: &Authority, clients: &Authority) {
        let (certificate, key) = server.issue("localhost");
        for (name, text) in [("tls.crt", certificate), ("tls.key", key), ("ca.crt", clients.pem())] {
            fs::write(self.path().join(name), text).unwrap();
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn options(&self) -> ServeOptions {
        let mut options = ServeOptions::new("tcp://127.0.0.1:0".parse().unwrap());
        options.tls_cert_file = Some(self.path().join("tls.crt"));
        options.tls_key_file = Some(self.path().join("tls.key"));
        options.tls_client_ca_file = Some(self.path().join("ca.crt"));
        options
    }
}

struct Secured {
    address: SocketAddr,
    handle: ProviderHandle,
    task: JoinHandle<Result<(), ServeError>>,
    cloud: Cloud,
}

async fn serve(files: &Files) -> Secured {
    serve_with(files.options()).await
}

async fn serve_with(options: ServeOptions) -> Secured {
    let _already = rustls::crypto::ring::default_provider().install_default();
    let cloud = Cloud::new();
    let bound = Server::new(cloud.provider(), options).without_signals().bind().await.unwrap();
    let Endpoint::Tcp(address) = *bound.endpoint() else { panic!("{:?}", bound.endpoint()) };
    let handle = bound.handle();
    Secured { address, handle, task: tokio::spawn(bound.run()), cloud }
}

impl Secured {
    async fn channel(
        &self,
        trusted: &Authority,
        client: Option<(String, String)>,
    ) -> Result<tonic::transport::Channel, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(trusted.pem()))
            .domain_name("localhost");
        if let Some((certificate, key)) = client {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = tonic::transport::Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await
    }

    async fn info(
        &self,
        trusted: &Authority,
        client: Option<(String, String)>,
    ) -> Result<GetInfoResponse, String> {
        let call = async {
            let channel = self.channel(trusted, client).await.map_err(|error| format!("{error:?}"))?;
            let answer = DiscoveryClient::new(channel).get_info(GetInfoRequest::default()).await;
            answer.map(tonic::Response::into_inner).map_err(|status| format!("{status:?}"))
        };
        within(call).await
    }
}

#[tokio::test]
async fn a_client_with_a_certificate_is_served() {
    let (server, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&server, &clients);
    let served = serve(&files).await;
    let channel = served.channel(&server, Some(clients.issue("host"))).await.unwrap();
    InstancesClient::new(channel).batch_get_instances(batch(&["a"])).await.unwrap();
    assert!(served.cloud.told.lock()["peer"].starts_with("Tls"), "{:?}", served.cloud.told.lock());
    served.handle.stop();
    within(served.task).await.unwrap().unwrap();
}

/// D21: silent connections beyond the number of handshakes keep nobody out, and cost others their place one at a time.
#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let (server, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&server, &clients);
    let served = serve(&files).await;
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(TcpStream::connect(served.address).await.unwrap());
    }
    served.info(&server, Some(clients.issue("host"))).await.unwrap();
    let is_open = |one: &&TcpStream| {
        let read = one.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let open = silent.iter().filter(is_open).count();
    assert!((40..80).contains(&open), "{open} are still open: their own time was not over");
}

#[tokio::test]
async fn clients_without_a_good_certificate_are_refused() {
    let (server, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&server, &clients);
    let served = serve(&files).await;
    served.info(&server, None).await.unwrap_err();
    served.info(&server, Some(Authority::new().issue("host"))).await.unwrap_err();
    served.info(&server, Some(server.issue("host"))).await.unwrap_err();
    served.info(&server, Some(clients.issue("host"))).await.unwrap();
}

#[tokio::test]
async fn a_client_must_carry_a_name_that_is_asked_for() {
    let (server, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&server, &clients);
    let mut options = files.options();
    let names = ["other", "host"].map(|name| ClientName::Dns(name.try_into().unwrap()));
    let uri = ClientName::Uri("spiffe://cluster.local/ccm".to_owned());
    options.tls_client_names = names.into_iter().chain([uri]).collect();
    let served = serve_with(options).await;
    served.info(&server, Some(clients.issue("host"))).await.unwrap();
    served.info(&server, Some(clients.issue("spiffe://cluster.local/ccm"))).await.unwrap();
    served.info(&server, Some(clients.issue("spiffe://cluster.local/ccm/other"))).await.unwrap_err();
    served.info(&server, Some(clients.issue("stranger"))).await.unwrap_err();
    served.info(&server, Some(Authority::new().issue("host"))).await.unwrap_err();
}

#[tokio::test]
async fn plaintext_is_refused() {
    let (server, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&server, &clients);
    let served = serve(&files).await;
    let plain = tonic::transport::Endpoint::from_shared(format!("http://{}", served.address)).unwrap();
    let refused = within(async {
        DiscoveryClient::new(plain.connect_lazy()).get_info(GetInfoRequest::default()).await
    });
    refused.await.unwrap_err();

    let mut options = files.options();
    (options.tls_cert_file, options.tls_key_file, options.tls_client_ca_file) = (None, None, None);
    let error = Server::new(Cloud::new().provider(), options).bind().await.unwrap_err();
    assert!(matches!(error, ServeError::NoTls), "{error}");
    assert!(error.to_string().contains("--tls-client-ca-file"), "{error}");
}

#[tokio::test]
async fn old_tls_is_refused() {
    let (server, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&server, &clients);
    let served = serve(&files).await;
    let shake = async |versions: &[&'static rustls::SupportedProtocolVersion]| {
        use rustls_pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        let authority = rustls_pki_types::CertificateDer::from_pem_slice(server.pem().as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let (certificate, key) = clients.issue("host");
        let certificate = rustls_pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = rustls::ClientConfig::builder_with_protocol_versions(versions)
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .unwrap();
        let stream = tokio::net::TcpStream::connect(served.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        within(connector.connect("localhost".try_into().unwrap(), stream)).await.map(drop)
    };
    shake(&[&rustls::version::TLS13]).await.unwrap();
    shake(&[&rustls::version::TLS12]).await.unwrap_err();
}

#[tokio::test]
async fn renewed_certificates_are_taken_up() {
    let (server, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&server, &clients);
    let served = serve(&files).await;
    let old_client = clients.issue("host");
    served.info(&server, Some(old_client.clone())).await.unwrap();

    let (new_server, new_clients) = (Authority::new(), Authority::new());
    files.renew(&new_server, &new_clients);
    served.info(&new_server, Some(new_clients.issue("host"))).await.unwrap();
    served.info(&server, Some(new_clients.issue("host"))).await.unwrap_err();
    served.info(&new_server, Some(old_client)).await.unwrap_err();

    // Half of a renewal: the key does not fit. The last good files stay in use.
    let (_, other_key) = new_server.issue("localhost");
    let right_key = fs::read_to_string(files.path().join("tls.key")).unwrap();
    fs::write(files.path().join("tls.key"), other_key).unwrap();
    served.info(&new_server, Some(new_clients.issue("host"))).await.unwrap();
    fs::remove_file(files.path().join("tls.key")).unwrap();
    served.info(&new_server, Some(new_clients.issue("host"))).await.unwrap();
    fs::write(files.path().join("tls.key"), right_key).unwrap();
    served.info(&new_server, Some(new_clients.issue("host"))).await.unwrap();
}

#[tokio::test]
async fn files_that_are_no_good_are_named() {
    let authority = Authority::new();
    let files = Files::new(&authority, &authority);
    for (name, text) in [("tls.crt", "nothing"), ("ca.crt", ""), ("tls.key", "-----BEGIN X-----")] {
        let path = files.path().join(name);
        let good = fs::read_to_string(&path).unwrap();
        fs::write(&path, text).unwrap();
        let error = Server::new(Cloud::new().provider(), files.options()).bind().await.unwrap_err();
        assert!(matches!(error, ServeError::TlsFile { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        fs::write(&path, good).unwrap();
    }
}
