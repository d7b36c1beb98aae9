//! The text of every refusal: flag, value, problem, remedy.

use super::*;

/// One invalid flag beside a valid provider.
#[test]
fn refuses_one_flag_with_its_remedy() {
    let rows = [
        // numbers
        ("--concurrent-node-syncs=0", "no node would ever be initialised: give 1 or more"),
        ("--concurrent-node-syncs=-1", "is not a whole number: give a number from 1 to 1000"),
        ("--concurrent-node-syncs=many", "is not a whole number: give a number from 1 to 1000"),
        ("--concurrent-node-syncs=1001", "is too many: give at most 1000"),
        ("--concurrent-node-status-updates=-1", "is not a whole number: give a number from 1 to 1000"),
        ("--concurrent-service-syncs=0", "no load balancer would ever be built: give 1 or more"),
        ("--node-deletion-confirmations=0", "is too small: give 1 or more"),
        ("--node-deletion-confirmations=x", "is not a whole number: give a number of 1 or more"),
        ("--kube-api-qps=0", "would let no request through: give a number above 0, such as 1000"),
        ("--kube-api-qps=-1", "would let no request through: give a number above 0, such as 1000"),
        ("--kube-api-qps=inf", "is not a finite number: give a number above 0, such as 1000"),
        ("--kube-api-qps=fast", "is not a number: give a number above 0, such as 1000"),
        ("--kube-api-burst=0", "is too small: give 1 or more"),
        // durations
        ("--node-monitor-period=-5s", "is negative: give 5s"),
        ("--node-monitor-period=0s", "is zero: give a duration such as 30s or 5m"),
        ("--node-monitor-period=5", "has no unit: add one of ms, s, m, h, for example 30s"),
        ("--node-monitor-period=soon", "is not a duration: write it like 250ms, 30s or 1h30m"),
        ("--node-monitor-period=9999999h", "is longer than 292 years: give less"),
        ("--node-status-update-frequency=0", "is zero: give a duration such as 30s or 5m"),
        ("--node-deletion-grace=-1m", "is negative: give 1m"),
        ("--node-deletion-window=0s", "is zero: give a duration such as 30s or 5m"),
        ("--load-balancer-resync-period=0s", "is zero: give a duration such as 30s or 5m"),
        // contradictions
        (
            "--node-deletion-window=1s",
            "is shorter than --node-monitor-period=5s: give a window of several monitor periods",
        ),
        ("--kubelet-serving-csr-policy=deny", "is unknown: give approve or approve-and-deny"),
        ("--node-deletion-max-share=5", "is ambiguous: write 5% for a percentage"),
        // texts
        ("--allowed-peer-uids=root", "\"root\" is not a user id: give numbers, for example 1000,65532"),
        ("--allowed-peer-uids=1,", "\"\" is not a user id: give numbers, for example 1000,65532"),
        (
            "--node-selector=a in b",
            "\"a in b\" has no valid label key: write it as for kubectl -l, for example \"pool in (a,b),!unmanaged\"",
        ),
        ("--cluster-name=", "is empty: give a name, or leave the flag out for \"kubernetes\""),
        ("--logging-format=xml", "is unknown: give text or json"),
        ("--v=11", "is not a verbosity: give 0 to 10"),
        (
            "--tracing-endpoint=https://collector:4317",
            "requires TLS, which is not supported for collectors: give host:port of a collector in the pod or on the node, \
             such as localhost:4317",
        ),
        (
            "--tracing-endpoint=collector",
            "is not an address with a port: give host:port of a collector in the pod or on the node, such as localhost:4317",
        ),
        ("--tracing-sampling-rate-per-million=1000001", "is not a part of a million: give 0 to 1000000"),
        ("--v=-1", "is not a verbosity: give 0 to 10"),
        ("--master=10.0.0.1:6443", "is not an http or https URL: give a URL such as https://host:6443"),
        ("--master=localhost", "is not an http or https URL: give a URL such as https://host:6443"),
        ("--master=::", "is not a URL: give a URL such as https://host:6443"),
        (
            "--bind-address=localhost",
            "is not an IP address: give 0.0.0.0 for all interfaces, or one such as 127.0.0.1",
        ),
        ("--secure-port=70000", "is not a port: give 1 to 65535, auto for a free one, or 0 to serve nothing"),
        ("--tls-min-version=1.3", "is not a TLS version: give VersionTLS12 or VersionTLS13"),
        (
            "--tls-cert-file=/tls.crt",
            "has no effect without --tls-private-key-file: give --tls-private-key-file as well, or leave both out for a \
             self-signed certificate",
        ),
        ("--authorization-always-allow-paths=metrics", "is not a path: begin it with /, as in /healthz"),
        (
            "--controllers=*,nodes,-volumes",
            "\"nodes\", \"-volumes\" is unknown: use '*' and these, with '-' in front to turn one off: \
             cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, node-ipam-controller, \
             node-route-controller, ssh-keys-controller, kubelet-serving-csr-controller, \
             persistent-volume-label-controller",
        ),
        (
            "--webhooks=nodes",
            "\"nodes\" is not a webhook: use '*' and these, with '-' in front to turn one off: persistent-volume-label",
        ),
        (
            "--webhooks=persistent-volume-label",
            "has no effect without its controller: add persistent-volume-label to --controllers, which does what the \
             webhook leaves",
        ),
        ("--webhook-secure-port=x", "is not a port: give 1 to 65535, or 0 to serve no webhooks"),
        (
            "--webhook-certificate-secret=webhook",
            "names no Secret: give NAMESPACE/NAME, for example kube-system/webhook",
        ),
        // providers
        ("--cloud-provider=aws", "is not the name of a provider: leave it out, or give mock"),
        (
            "--cloud-provider=external",
            "is the kubelet's value; this process is the external provider: leave it out, or give mock",
        ),
        ("--provider=mock=/run/b.sock", "\"mock\" is already a provider: give each provider its own name"),
        (
            "--provider=b=/run/mock.sock",
            "\"mock\" listens at the same endpoint: give each provider its own endpoint",
        ),
        ("--provider=/run/b.sock", "is not NAME=ENDPOINT: write --provider NAME=ENDPOINT"),
        ("--provider=b=", "is not NAME=ENDPOINT: write --provider NAME=ENDPOINT"),
        (
            "--provider=B_2=/run/b.sock",
            "\"B_2\" cannot name a provider: use at most 63 lower-case letters, digits, '-' and '.', with a letter \
             or digit at both ends",
        ),
        (
            "--provider=b=unix://run/b.sock",
            "\"run/b.sock\" is not the absolute path of a socket: write unix:///path/of/the/socket",
        ),
        (
            "--provider=b=/run/",
            "\"/run/\" is not the absolute path of a socket: write unix:///path/of/the/socket",
        ),
        (
            "--provider=b=run.sock",
            "\"run.sock\" is neither an absolute path nor a URL: use unix:///path, or https://host:port with \
             --provider-tls-dir",
        ),
        (
            "--provider=b=tcp://h:1",
            "the scheme \"tcp\" is not supported: use unix:///path, or https://host:port with --provider-tls-dir",
        ),
        (
            "--provider=b=http://h:1",
            "plain TCP has neither encryption nor proof of who answers: use unix:///path, or b=https://h:1 with \
             --provider-tls-dir b=DIR",
        ),
        (
            "--provider=b=h:1",
            "plain TCP has neither encryption nor proof of who answers: use unix:///path, or b=https://h:1 with \
             --provider-tls-dir b=DIR",
        ),
        (
            "--provider=b=https://h:1",
            "an https endpoint needs certificates of both sides: add --provider-tls-dir b=DIR with ca.crt, tls.crt \
             and tls.key",
        ),
        ("--provider=b=https://h", "\"h\" is not host:port: write https://host:port, without a path"),
        ("--provider=b=https://h:1/p", "\"h:1/p\" is not host:port: write https://host:port, without a path"),
        ("--provider-tls-dir=mock", "is not NAME=DIR: write --provider-tls-dir NAME=DIR"),
        (
            "--provider-tls-dir=mock=/etc",
            "belongs to no provider with an https endpoint: give --provider mock=https://HOST:PORT, or leave this \
             flag out",
        ),
        // not yet, and never
        ("--leader-elect-resource-lock=endpoints", "is not a supported lock: give leases"),
        ("--leader-elect-resource-name=", "is empty: leave the flag out for the default"),
        (
            "--leader-elect-lease-duration=15500ms",
            "is not a whole number of seconds: a Lease counts in seconds",
        ),
        (
            "--leader-elect-renew-deadline=15s",
            "is not below the lease duration of 15s: else two replicas could lead at a time",
        ),
        (
            "--leader-elect-retry-period=9s",
            "leaves no time for a second try within the renew deadline of 10s: give less than five sixths of it",
        ),
        ("--leader-elect=maybe", "is neither true nor false: give true or false"),
        ("--allow-untagged-cloud=maybe", "is neither true nor false: give true or false"),
        ("--node-sync-period=x", "is not a duration: write it like 250ms, 30s or 1h30m"),
        (
            "--feature-gates=A",
            "is not NAME=true or NAME=false: write --feature-gates NAME=true or NAME=false",
        ),
        ("--concurrent-node-lifecycle-syncs=0", "is too small: give 1 or more"),
        ("--feature-gates=A=on", "is neither true nor false: write A=true"),
        ("--version=v9", "is neither true nor false: give true or raw"),
    ];
    for (word, message) in rows {
        assert_eq!(mistakes(&[PROVIDER, word]), [format!("{word}: {message}")]);
    }
}

#[test]
fn refuses_words_that_are_no_flags() {
    let rows = [
        ("--no-such", "--no-such: unknown flag: see --help for all flags"),
        (
            "--node-monitor-perod=5s",
            "--node-monitor-perod: unknown flag: did you mean --node-monitor-period? see --help for all flags",
        ),
        ("-x", "-x: unknown flag: see --help for all flags"),
        ("start", "start: is not a flag, and nothing else is expected: write --name=value"),
        ("-", "-: is not a flag, and nothing else is expected: write --name=value"),
        ("--cluster-name", "--cluster-name: needs a value: write --cluster-name=VALUE"),
        ("-v", "--v: needs a value: write --v=VALUE"),
        ("-v=", "--v=: is not a verbosity: give 0 to 10"),
        (
            "--port=0",
            "--port: was removed from Kubernetes components: there is no port without TLS: leave it out; see \
             --secure-port",
        ),
        (
            "--logtostderr",
            "--logtostderr: was removed from Kubernetes components: logs always go to standard error: leave it out",
        ),
        (
            "--log_dir=/var/log",
            "--log_dir: was removed from Kubernetes components: no log files are written: redirect standard error",
        ),
        (
            "--skip_headers",
            "--skip_headers: was removed from Kubernetes components: choose the shape with --logging-format",
        ),
    ];
    for (word, message) in rows {
        assert_eq!(mistakes(&[PROVIDER, word]), [message]);
    }
}

#[test]
fn refuses_words_that_are_not_text() {
    use std::os::unix::ffi::OsStringExt as _;
    let word = OsString::from_vec(b"--cluster-name=\xff".to_vec());
    let errors = parse([OsString::from(PROVIDER), word]).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].problem, "is not UTF-8");
}

#[test]
fn reports_all_mistakes_at_once() {
    let found = mistakes(&[
        "--no-such",
        "value",
        "--port",
        "0",
        "--logtostderr",
        "stray",
        "--concurrent-node-syncs=0",
        "--node-monitor-period=-5s",
        "--controllers=nobody",
        "--leader-elect=perhaps",
        "--",
        "--after",
    ]);
    let beginnings = [
        "--no-such: unknown flag",
        "--port: was removed",
        "--logtostderr: was removed",
        "stray: is not a flag",
        "--after: is not a flag",
        "--concurrent-node-syncs=0: no node",
        "--node-monitor-period=-5s: is negative",
        "--leader-elect=perhaps: is neither true nor false",
        "--provider: no provider is given: write --provider NAME=unix:///path/of/the/socket",
        "--controllers=nobody: \"nobody\" is unknown",
    ];
    assert_eq!(found.len(), beginnings.len(), "{found:#?}");
    for (mistake, beginning) in found.iter().zip(beginnings) {
        assert!(mistake.starts_with(beginning), "{mistake:?} is not about {beginning:?}");
    }
}

/// A default that replaces an invalid value is not held against other flags.
#[test]
fn a_wrong_value_is_one_mistake() {
    let words = ["--leader-elect-lease-duration=x", "--leader-elect-renew-deadline=20s"];
    let found = mistakes(&[PROVIDER, words[0], words[1]]);
    assert_eq!(found, [format!("{}: is not a duration: write it like 250ms, 30s or 1h30m", words[0])]);
}

#[test]
fn a_long_socket_path_is_refused() {
    let word = format!("--provider=b=/{}", "s".repeat(107));
    let found = mistakes(&[PROVIDER, &word]);
    assert_eq!(
        found,
        [format!("{word}: the path has 108 bytes, a socket address holds 107: use a shorter path")]
    );
}

#[test]
fn contradictions_between_flags() {
    let file = ["--secure-port=0", "--serving-address-file=/run/a"];
    assert_eq!(
        mistakes(&[PROVIDER, file[0], file[1]]),
        [
            "--serving-address-file=/run/a: there is no address to write with --secure-port=0: leave one of the two \
          out, or give --secure-port=auto"
        ]
    );
    let dirs = ["--provider=b=https://h:1", "--provider-tls-dir=b=/x", "--provider-tls-dir=b=/y"];
    assert_eq!(
        mistakes(&[PROVIDER, dirs[0], dirs[1], dirs[2]]),
        ["--provider-tls-dir=b=/y: is the second folder for \"b\": give one for each provider"]
    );
}

#[test]
fn a_password_is_not_repeated() {
    let rows = [
        ("--master=https://admin:s3cret@host:6443", "master", "put credentials into a kubeconfig"),
        (
            "--tracing-endpoint=http://u:s3cret@host:4317",
            "tracing-endpoint",
            "give host:port; collectors are called without credentials",
        ),
        (
            "--provider=b=https://u:s3cret@host:1",
            "provider",
            "providers over TCP show certificates: use --provider-tls-dir",
        ),
        (
            "--provider=b=u:s3cret@host:1",
            "provider",
            "providers over TCP show certificates: use --provider-tls-dir",
        ),
    ];
    for (given, flag, remedy) in rows {
        let want = format!("--{flag}: the URL carries a user name or password: {remedy}");
        assert_eq!(mistakes(&[PROVIDER, given]), [want], "{given}");
    }
}
