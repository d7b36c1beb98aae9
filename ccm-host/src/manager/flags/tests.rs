//! The command line as a whole: defaults, spellings, types.

mod cidrs;
mod docs;
mod refusals;
mod swap;

use std::time::Duration;

use super::*;
use crate::{
    controllers::ALL,
    manager::{
        logging::LogFormat,
        serving::{
            settings::{AccessSettings, ClientCa},
            tls::{CertificateSource, TlsSettings},
        },
    },
};
use ccm_cloud::Endpoint;
use ccm_reconcile::settings::{
    RouteSettings, ServiceSettings,
    cidrs::CidrSettings,
    lifecycle::{LifecycleSettings, Share},
};

const PROVIDER: &str = "--provider=mock=unix:///run/mock.sock";

/// The settings of a command line, with a provider in front.
fn settings(words: &[&str]) -> Settings {
    match parse([PROVIDER].iter().chain(words)) {
        Ok(Request::Run(settings)) => *settings,
        other => panic!("{words:?} gave {other:?}"),
    }
}

/// The mistakes of exactly these words, as printed.
fn mistakes(words: &[&str]) -> Vec<String> {
    match parse(words) {
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
        Ok(request) => panic!("{words:?} gave {request:?}"),
    }
}

fn printed(words: &[&str]) -> String {
    match parse(words) {
        Ok(Request::Print(text)) => text,
        other => panic!("{words:?} gave {other:?}"),
    }
}

fn all_by_default() -> Vec<&'static Registration> {
    ALL.into_iter().filter(|controller| controller.by_default).collect()
}

#[test]
fn defaults() {
    let settings = settings(&[]);
    let socket = Endpoint::Unix(PathBuf::from("/run/mock.sock"));
    assert_eq!(
        settings.providers,
        [ProviderSettings { name: "mock".to_owned(), endpoint: socket, allowed_uids: Vec::new() }]
    );
    assert_eq!(
        settings.kube,
        KubeSettings {
            kubeconfig: None,
            master: None,
            kube_api_qps: 1000.0,
            kube_api_burst: 2000,
            cluster_name: "kubernetes".to_owned(),
            use_service_account_credentials: false,
        }
    );
    assert_eq!(settings.enabled, all_by_default());
    assert_eq!(
        (settings.controllers.nodes.concurrent_node_syncs, settings.controllers.nodes.status_workers()),
        (32, 32)
    );
    assert_eq!(settings.controllers.nodes.node_status_update_frequency, Duration::from_secs(300));
    assert!(settings.controllers.nodes.node_selector.is_everything());
    assert_eq!(
        settings.controllers.lifecycle,
        LifecycleSettings {
            node_monitor_period: Duration::from_secs(5),
            node_deletion_grace: Duration::from_secs(300),
            node_deletion_confirmations: 2,
            node_deletion_max_share: Share::from_fraction(0.05).unwrap(),
            node_deletion_window: Duration::from_secs(600),
            node_shutdown_policy: ccm_reconcile::settings::lifecycle::ShutdownPolicy::Taint,
            node_shutdown_grace: Duration::from_secs(60),
        }
    );
    assert_eq!(
        settings.controllers.services,
        ServiceSettings {
            concurrent_service_syncs: 16,
            load_balancer_resync_period: Duration::from_secs(1800),
            adopt_load_balancers: false,
            delete_orphaned_load_balancers: false,
            exclude_draining_nodes: false,
        }
    );
    assert_eq!(
        settings.serving,
        ServingSettings {
            address: Some("0.0.0.0:10258".parse().unwrap()),
            address_file: None,
            share_port: false,
            tls: TlsSettings {
                certificate: CertificateSource::Memory,
                only_tls13: false,
                cipher_suites: rustls::crypto::ring::ALL_CIPHER_SUITES.to_vec(),
            },
            access: AccessSettings {
                authentication_kubeconfig: None,
                authentication_skip_lookup: false,
                authentication_tolerate_lookup_failure: false,
                authentication_token_webhook_cache_ttl: Duration::from_secs(10),
                client_ca_file: None,
                authorization_kubeconfig: None,
                authorization_always_allow_paths: vec!["/healthz,/readyz,/livez".to_owned()],
                authorization_webhook_cache_authorized_ttl: Duration::from_secs(10),
                authorization_webhook_cache_unauthorized_ttl: Duration::from_secs(10),
            },
        }
    );
    assert_eq!(settings.serving.access.client_ca(), ClientCa::ConfigMap { tolerant: false });
    assert_eq!(settings.controllers.cidrs, CidrSettings { cluster: Vec::new(), allocation: None });
    assert_eq!(
        settings.controllers.routes,
        RouteSettings { configure_cloud_routes: true, route_reconciliation_period: Duration::from_secs(300) },
        "upstream's ten seconds poll the cloud"
    );
    assert_eq!(settings.logging, LoggingSettings { logging_format: LogFormat::Text, v: 0 });
    assert_eq!(
        settings.traces,
        TraceSettings { tracing_endpoint: None, tracing_sampling_rate_per_million: 1_000_000 }
    );
    assert_eq!(
        settings.election,
        election::ElectionSettings {
            leader_elect: true,
            leader_elect_lease_duration: Duration::from_secs(15),
            leader_elect_renew_deadline: Duration::from_secs(10),
            leader_elect_retry_period: Duration::from_secs(2),
            leader_elect_resource_lock: "leases".to_owned(),
            leader_elect_resource_name: "cloud-controller-manager".to_owned(),
            leader_elect_resource_namespace: "kube-system".to_owned(),
        },
        "upstream's Lease at upstream's pace"
    );
    assert_eq!(settings.warnings, Vec::<String>::new());
}

#[test]
fn every_spelling_of_a_flag() {
    for words in [
        &["--concurrent-node-syncs=7"][..],
        &["--concurrent-node-syncs", "7"],
        &["--concurrent_node_syncs=7"],
        &["--concurrent_node-syncs", "7"],
        &["--concurrent-node-syncs=9", "--concurrent-node-syncs=7"],
    ] {
        assert_eq!(settings(words).controllers.nodes.concurrent_node_syncs, 7, "{words:?}");
    }
    for words in [&["-v", "4"][..], &["-v=4"], &["-v4"], &["--v=4"], &["--v", "4"]] {
        assert_eq!(settings(words).logging.v, 4, "{words:?}");
    }
    for words in [
        &["--controllers=*,-service"][..],
        &["--controllers", "-service,*"],
        &["--controllers=*", "--controllers", "-service"],
        &["--controllers= * , -service "],
    ] {
        let mut expected = all_by_default();
        expected.retain(|controller| controller.short_name != "service");
        assert_eq!(settings(words).enabled, expected, "{words:?}");
    }
    assert!(settings(&["--controllers="]).enabled.is_empty());
    for words in [&["--leader-elect=false"][..], &["--leader-elect=F"], &["--leader_elect=0"]] {
        assert!(!settings(words).election.leader_elect, "{words:?}");
    }
}

#[test]
fn values_become_types() {
    let settings = settings(&[
        "--provider=aws.east=/run/aws.sock",
        "--provider=far=https://[::1]:8443",
        "--provider-tls-dir=far=/etc/far",
        "--allowed-peer-uids=1000, 65532",
        "--cloud-provider=aws.east",
        "--kubeconfig=/etc/kube",
        "--master=https://10.0.0.1:6443",
        "--kube-api-qps=0.5",
        "--kube-api-burst=1",
        "--concurrent-node-syncs=4",
        "--concurrent-node-status-updates=3",
        "--node-selector=pool in (a,b)",
        "--node-deletion-grace=0s",
        "--node-deletion-max-share=0.25",
        "--bind-address=::1",
        "--secure-port=auto",
        "--serving-address-file=/run/address",
        "--logging-format=json",
        "--v=10",
    ]);
    let far = Endpoint::Https { host: "[::1]".to_owned(), port: 8443, tls: PathBuf::from("/etc/far") };
    assert_eq!(settings.providers[1].endpoint, Endpoint::Unix(PathBuf::from("/run/aws.sock")));
    assert_eq!(settings.providers[2].endpoint, far);
    assert_eq!(far.to_string(), "https://[::1]:8443");
    assert!(settings.providers.iter().all(|provider| provider.allowed_uids == [1000, 65532]));
    assert_eq!(settings.kube.master.unwrap().authority().unwrap().as_str(), "10.0.0.1:6443");
    assert_eq!((settings.kube.kube_api_qps, settings.kube.kube_api_burst), (0.5, 1));
    assert_eq!(
        (settings.controllers.nodes.concurrent_node_syncs, settings.controllers.nodes.status_workers()),
        (4, 3)
    );
    assert_eq!(settings.controllers.nodes.node_selector.to_string(), "pool in (a,b)");
    assert_eq!(settings.controllers.lifecycle.node_deletion_grace, Duration::ZERO);
    assert_eq!(settings.controllers.lifecycle.node_deletion_max_share.fraction(), 0.25);
    assert_eq!(settings.serving.address, Some("[::1]:0".parse().unwrap()));
    assert_eq!(settings.serving.address_file, Some(PathBuf::from("/run/address")));
    assert_eq!(settings.logging, LoggingSettings { logging_format: LogFormat::Json, v: 10 });
}

#[test]
fn certificates_and_ciphers_are_chosen() {
    let of = |words: &[&str]| settings(words).serving.tls;
    let files =
        of(&["--tls-cert-file=/tls/tls.crt", "--tls-private-key-file=/tls/tls.key", "--cert-dir=/var"]);
    let expected =
        CertificateSource::Files { certificate: "/tls/tls.crt".into(), key: "/tls/tls.key".into() };
    assert_eq!(files.certificate, expected, "the files win over the folder");
    assert_eq!(of(&["--cert-dir=/var/ccm"]).certificate, CertificateSource::Folder("/var/ccm".into()));
    assert!(of(&["--tls-min-version=VersionTLS13"]).only_tls13);
    let suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_AES_128_GCM_SHA256";
    let chosen = of(&[&format!("--tls-cipher-suites={suites}")]).cipher_suites;
    let names: Vec<String> = chosen.iter().map(|suite| format!("{:?}", suite.suite())).collect();
    assert_eq!(
        names[names.len() - 2..],
        ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"]
    );
    assert_eq!(
        names.iter().filter(|name| name.starts_with("TLS13_")).count(),
        3,
        "those of 1.3 stay: {names:?}"
    );
    let old =
        settings(&["--tls-min-version=VersionTLS10", "--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"]);
    assert_eq!(
        old.warnings,
        [
            "--tls-min-version=VersionTLS10 has no effect: TLS 1.2 is the lowest supported version",
            "--tls-cipher-suites: TLS_RSA_WITH_AES_128_CBC_SHA is not offered: only suites that are safe are",
        ]
    );
}

#[test]
fn what_is_open_and_whom_clients_are_believed() {
    let access = settings(&["--authorization-always-allow-paths=/metrics,/livez/*"]).serving.access;
    for (path, open) in [
        ("/metrics", true),
        ("/metrics/slis", false),
        ("/livez/ping", true),
        ("/livez", false),
        ("/healthz", false),
    ] {
        assert_eq!(access.opens(path), open, "{path}");
    }
    let ca = |words: &[&str]| settings(words).serving.access.client_ca();
    assert_eq!(ca(&["--client-ca-file=/ca.crt"]), ClientCa::File("/ca.crt".into()));
    assert_eq!(ca(&["--authentication-skip-lookup"]), ClientCa::Nobody);
    assert_eq!(ca(&["--authentication-tolerate-lookup-failure"]), ClientCa::ConfigMap { tolerant: true });
}

/// An empty value unsets a value given before.
#[test]
fn an_empty_path_is_none() {
    assert_eq!(settings(&["--kubeconfig=/etc/kube", "--kubeconfig="]).kube.kubeconfig, None);
    assert_eq!(settings(&["--kubeconfig=", "--kubeconfig=/b"]).kube.kubeconfig, Some(PathBuf::from("/b")));
}

#[test]
fn port_zero_serves_nothing() {
    assert_eq!(settings(&["--secure-port=0"]).serving.address, None);
}

#[test]
fn prints_help_and_version() {
    let help = printed(&["--help"]);
    for text in ["Providers:", "Node lifecycle:", "--node-deletion-max-share <PERCENT>", "[default: 5%]"] {
        assert!(help.contains(text), "{text:?} is not in\n{help}");
    }
    assert_eq!(printed(&["-h"]), help);
    assert_eq!(printed(&["--version"]), format!("ccm-host v{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(printed(&["--version=true", "--no-such"]), printed(&["--version"]));
    let raw = printed(&["--version=raw"]);
    assert!(raw.starts_with(&format!("version=v{} commit=", env!("CARGO_PKG_VERSION"))), "{raw}");
    settings(&["--version=false"]);
}

#[test]
fn every_flag_is_shown_with_its_value() {
    let request = parse([PROVIDER, "--provider=b=/run/b.sock", "--cluster-name=c", "--v=2"]).unwrap();
    let Request::Run(settings) = request else { panic!("{request:?}") };
    let flags = settings.flags;
    let shown = |name: &str| flags.iter().find(|(flag, _)| flag == name).map(|(_, value)| value.as_str());
    assert_eq!(shown("provider"), Some("mock=unix:///run/mock.sock,b=/run/b.sock"));
    assert_eq!(shown("cluster-name"), Some("c"));
    assert_eq!(shown("node-monitor-period"), Some("5s"));
    assert_eq!(shown("feature-gates"), Some(""));
    assert_eq!(flags.len(), docs::table().len() - 1, "all but --help");
    assert!(flags.is_sorted());
}

/// OPT-1..3, NW-23: how many nodes are written concurrently; a number that would do nothing is refused.
#[test]
fn workers_of_nodes_are_checked_and_one_follows_the_other() {
    type Workers = Option<(usize, usize)>;
    let rows: [(&str, &[&str], Workers); 7] = [
        ("OPT-1, OPT-2 nothing", &[], Some((32, 32))),
        ("OPT-1 negative", &["--concurrent-node-syncs=-5"], None),
        ("OPT-1 zero", &["--concurrent-node-syncs=0"], None),
        ("OPT-1, OPT-3 the first alone", &["--concurrent-node-syncs=5"], Some((5, 5))),
        ("OPT-1 both", &["--concurrent-node-syncs=5", "--concurrent-node-status-updates=5"], Some((5, 5))),
        (
            "OPT-3 each its own",
            &["--concurrent-node-syncs=5", "--concurrent-node-status-updates=7"],
            Some((5, 7)),
        ),
        (
            "OPT-1 the second negative",
            &["--concurrent-node-syncs=5", "--concurrent-node-status-updates=-1"],
            None,
        ),
    ];
    for (id, words, want) in rows {
        let got = match parse([PROVIDER].iter().chain(words)) {
            Ok(Request::Run(settings)) => Some((
                settings.controllers.nodes.concurrent_node_syncs,
                settings.controllers.nodes.status_workers(),
            )),
            _ => None,
        };
        assert_eq!(got, want, "{id}");
    }
    let settings = settings(&[]);
    let periods = (
        settings.controllers.lifecycle.node_monitor_period,
        settings.controllers.nodes.node_status_update_frequency,
    );
    assert_eq!(periods, (Duration::from_secs(5), Duration::from_secs(300)), "OPT-2");
}
