//! Over TLS and HTTP/2, as in a cluster: connections that fall silent, certificates that change.

use std::{future::pending, net::SocketAddr, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tempfile::TempDir;
use tokio::{io::copy_bidirectional, net::TcpStream, sync::watch, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An apiserver with one Node, and a network before it.
struct Secure {
    near: SocketAddr,
    certificate: watch::Sender<Certificate>,
    /// The number of connections, from the first on, that carry nothing any more.
    silent: watch::Sender<usize>,
    tasks: [JoinHandle<()>; 2],
    folder: TempDir,
}

#[derive(Clone)]
struct Certificate {
    pem: String,
    config: Arc<ServerConfig>,
}

impl Certificate {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let chain = vec![made.cert.der().clone()];
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { pem: made.cert.pem(), config: Arc::new(config) }
    }
}

impl Secure {
    async fn start() -> Self {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let certificate = watch::Sender::new(Certificate::new());
        let silent = watch::Sender::new(0);
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = (network.local_addr().unwrap(), server.local_addr().unwrap());
        let tasks = [
            tokio::spawn(serve(server, certificate.subscribe())),
            tokio::spawn(relay(network, far, silent.subscribe())),
        ];
        Self { near, certificate, silent, tasks, folder: tempfile::tempdir().unwrap() }
    }

    /// A kubeconfig that trusts the present certificate.
    fn kubeconfig(&self) -> PathBuf {
        let path = self.folder.path().join("kubeconfig");
        let ca = STANDARD.encode(&self.certificate.borrow().pem);
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://{}', certificate-authority-data: {ca}}}}}]\n\
             users: [{{name: c, user: {{}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n",
            self.near
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    /// From now on, connections so far carry nothing, and say nothing of it.
    fn silence(&self, connections: usize) {
        self.silent.send_replace(connections);
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn serve(listener: TcpListener, certificate: watch::Receiver<Certificate>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(Arc::clone(&certificate.borrow().config));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(async |_| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(
                    br#"{"metadata":{"name":"a"}}"#,
                ))))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ended = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn relay(listener: TcpListener, far: SocketAddr, silent: watch::Receiver<usize>) {
    for number in 0.. {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut silent = silent.clone();
        tokio::spawn(async move {
            let mut far = TcpStream::connect(far).await.unwrap();
            let is_silent = tokio::select! {
                _ended = copy_bidirectional(&mut near, &mut far) => false,
                until = silent.wait_for(|until| number < *until) => until.is_ok(),
            };
            if is_silent {
                pending::<()>().await;
            }
        });
    }
}

/// L1: as when the apiserver's node loses its power: nobody closes the connection.
#[tokio::test]
async fn the_next_attempt_does_not_go_over_a_connection_that_fell_silent() {
    let server = Secure::start().await;
    let options = ClientOptions {
        kubeconfig: Some(server.kubeconfig()),
        request_timeout: Duration::from_secs(60),
        silence: Duration::from_secs(45),
        retries: 0,
        ..ClientOptions::default()
    };
    let client = build(&options, &KubeMetrics::default().client).await.unwrap();
    get(&client).await.unwrap();
    server.silence(1);
    tokio::time::pause();
    get(&client).await.unwrap_err();
    tokio::time::resume();
    get(&client).await.unwrap();
}

/// L9: a kubeconfig names the CA, and is read once.
#[tokio::test]
async fn an_apiserver_with_another_certificate_is_not_the_one_that_was_known() {
    let server = Secure::start().await;
    let options = ClientOptions {
        kubeconfig: Some(server.kubeconfig()),
        request_timeout: Duration::from_secs(60),
        retries: 0,
        ..ClientOptions::default()
    };
    let (former, options) = (server.certificate.borrow().clone(), &options);
    let is_lost = async || {
        tokio::time::pause();
        let lost = tokio::time::timeout(Duration::from_secs(300), options.recognition.lost()).await.is_ok();
        tokio::time::resume();
        lost
    };
    let client = async || build(options, &KubeMetrics::default().client).await.unwrap();
    get(&client().await).await.unwrap();
    assert!(!is_lost().await);
    server.certificate.send_replace(Certificate::new());
    let error = get(&client().await).await.unwrap_err();
    assert!(with_sources(&error).contains("certificate"), "{}", with_sources(&error));
    assert!(!is_lost().await, "one refusal is forgiven");
    get(&client().await).await.unwrap_err();
    assert!(is_lost().await, "{}", with_sources(&error));
    server.certificate.send_replace(former);
    get(&client().await).await.unwrap();
    assert!(!is_lost().await, "it is known again");
}
