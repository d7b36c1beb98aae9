//! Flags as users write them.

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    serve: ServeOptions,
}

fn parse(flags: &[&str]) -> Result<ServeOptions, String> {
    let flags = std::iter::once("sidecar").chain(flags.iter().copied());
    Flags::try_parse_from(flags).map(|flags| flags.serve).map_err(|error| error.to_string())
}

#[test]
fn endpoints_are_sockets_or_addresses() {
    for (text, shown) in [
        ("unix:///run/a/b.sock", "unix:///run/a/b.sock"),
        ("unix:/run/a/b.sock", "unix:///run/a/b.sock"),
        ("/run/a/b.sock", "unix:///run/a/b.sock"),
        ("tcp://127.0.0.1:7443", "tcp://127.0.0.1:7443"),
        ("https://[::1]:7443/", "tcp://[::1]:7443"),
    ] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
    }
}

#[test]
fn other_endpoints_are_refused_with_a_remedy() {
    let long = format!("unix:///{}", "a".repeat(100));
    for (text, part) in [
        ("unix://run/a.sock", "absolute path"),
        ("unix:///run/a/", "absolute path"),
        (long.as_str(), "has 101 bytes"),
        ("unix-abstract:x", "abstract sockets"),
        ("unix:@x", "abstract sockets"),
        ("http://127.0.0.1:80", "plain TCP"),
        ("tcp://somewhere", "not address:port"),
        ("x", "unix:///path"),
    ] {
        let error = text.parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn flags_have_defaults() {
    let options = parse(&[]).unwrap();
    assert_eq!(options.shutdown_grace, DEFAULT_SHUTDOWN_GRACE);
    assert!(options.allowed_peer_uids.is_empty() && options.metrics_address.is_none() && !options.reflection);
}

#[test]
fn flags_are_read() {
    let options = parse(&[
        "--endpoint=tcp://127.0.0.1:0",
        "--allowed-peer-uids=0,1000",
        "--tls-cert-file=/c",
        "--tls-key-file=/k",
        "--tls-client-ca-file=/ca",
        "--tls-client-names=host,ccm.example,spiffe://cluster.local/ccm",
        "--metrics-address=9090",
        "--log-format=json",
        "--shutdown-grace=2.5s",
    ])
    .unwrap();
    assert_eq!(options.allowed_peer_uids, [0, 1000]);
    assert_eq!(options.tls_client_names.len(), 3);
    assert_eq!(options.tls_client_names[2], ClientName::Uri("spiffe://cluster.local/ccm".to_owned()));
    assert_eq!(options.metrics_address.unwrap().to_string(), "127.0.0.1:9090");
    assert_eq!(options.shutdown_grace, Duration::from_millis(2500));
    assert_eq!(options.log_format, LogFormat::Json);
}

#[test]
fn half_of_tls_is_refused() {
    assert!(parse(&["--tls-cert-file=/c"]).unwrap_err().contains("--tls-key-file"));
    assert!(parse(&["--tls-key-file=/c"]).unwrap_err().contains("--tls-cert-file"));
    assert!(parse(&["--tls-client-names=host"]).unwrap_err().contains("--tls-client-ca-file"));
    assert!(parse(&["--tls-client-names=ho st"]).unwrap_err().contains("ho st"));
    assert!(parse(&["--metrics-address=x"]).unwrap_err().contains("127.0.0.1:9090"));
}
