//! This host in place of an upstream manager: upstream's flags, and command lines as vendors publish them.

use super::*;

/// manager.md 1: every flag of the upstream manager at v0.37.2 (`go run . --help` in `tests/bench/peer` prints them), of
/// its node-ipam controller and its logs, and those that it had until 0.36.
const UPSTREAM: &str = "\
    profiling contention-profiling enable-leader-migration leader-migration-config \
    cloud-provider cloud-config cluster-name cluster-cidr allocate-node-cidrs configure-cloud-routes \
    cidr-allocator-type controllers use-service-account-credentials allow-untagged-cloud \
    route-reconciliation-period node-monitor-period node-sync-period external-cloud-volume-plugin \
    controller-start-interval min-resync-period kube-api-qps kube-api-burst kube-api-content-type feature-gates \
    leader-elect leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period \
    leader-elect-resource-lock leader-elect-resource-name leader-elect-resource-namespace \
    concurrent-node-syncs concurrent-node-lifecycle-syncs concurrent-node-status-updates concurrent-service-syncs \
    service-cluster-ip-range \
    node-cidr-mask-size node-cidr-mask-size-ipv4 node-cidr-mask-size-ipv6 \
    webhooks webhook-secure-port webhook-bind-address webhook-cert-dir webhook-tls-cert-file \
    webhook-tls-private-key-file webhook-tls-cipher-suites webhook-tls-curve-preferences webhook-tls-min-version \
    webhook-tls-sni-cert-key webhook-disable-http2-serving \
    secure-port bind-address cert-dir tls-cert-file tls-private-key-file tls-cipher-suites tls-min-version \
    tls-curve-preferences tls-sni-cert-key disable-http2-serving http2-max-streams-per-connection \
    permit-port-sharing permit-address-sharing \
    authentication-kubeconfig authentication-skip-lookup authentication-tolerate-lookup-failure \
    authentication-token-webhook-cache-ttl client-ca-file requestheader-client-ca-file \
    requestheader-allowed-names requestheader-username-headers requestheader-group-headers \
    requestheader-extra-headers-prefix requestheader-uid-headers authorization-kubeconfig \
    authorization-always-allow-paths authorization-webhook-cache-authorized-ttl \
    authorization-webhook-cache-unauthorized-ttl \
    kubeconfig master node-status-update-frequency v vmodule logging-format log-flush-frequency \
    log-text-split-stream log-json-split-stream log-text-info-buffer-size log-json-info-buffer-size version help";

#[test]
fn every_flag_of_upstream_is_one() {
    let ours: Vec<String> = docs::table().into_iter().map(|flag| flag.name).collect();
    let missing: Vec<&str> =
        UPSTREAM.split_whitespace().filter(|name| !ours.iter().any(|ours| ours == name)).collect();
    assert_eq!(missing, [""; 0]);
}

/// Where it is published, its arguments, and the resulting warnings. `cloud` is the sidecar's name.
struct Published {
    place: &'static str,
    cloud: &'static str,
    words: &'static [&'static str],
    warnings: &'static [&'static str],
}

const CLOUD_CONFIG: &str = "--cloud-config=/etc/config/cloud.conf has no effect: only the provider knows its cloud: \
                            mount the file into the sidecar, and name it in the sidecar's own flag";
const UNTAGGED: &str = "--allow-untagged-cloud=true has no effect: the cluster is named by its uid; a bridged provider may \
                        need the flag in its sidecar";
const NOT_NAMED: &str = "--allocate-node-cidrs=true has no effect: unless kube-controller-manager gives nodes their \
                         CIDRs, add nodeipam to --controllers";

const PUBLISHED: [Published; 8] = [
    Published {
        place: "cloud-provider-aws, examples/existing-cluster/base, 63ec440c",
        cloud: "aws",
        words: &[
            "--v=2",
            "--cloud-provider=aws",
            "--use-service-account-credentials=true",
            "--configure-cloud-routes=false",
        ],
        warnings: &[],
    },
    Published {
        place: "cloud-provider-aws, chart, 63ec440c",
        cloud: "aws",
        words: &["--v=2", "--cloud-provider=aws"],
        warnings: &[],
    },
    Published {
        place: "cloud-provider-openstack, manifests, DaemonSet, c453fb7c9",
        cloud: "openstack",
        words: &[
            "--v=1",
            "--cluster-name=kubernetes",
            "--cloud-config=/etc/config/cloud.conf",
            "--cloud-provider=openstack",
            "--use-service-account-credentials=false",
            "--bind-address=127.0.0.1",
        ],
        warnings: &[CLOUD_CONFIG],
    },
    Published {
        place: "cloud-provider-openstack, manifests, Pod, c453fb7c9",
        cloud: "openstack",
        words: &[
            "--v=1",
            "--cluster-name=kubernetes",
            "--cloud-config=/etc/config/cloud.conf",
            "--cloud-provider=openstack",
            "--use-service-account-credentials=true",
            "--bind-address=127.0.0.1",
        ],
        warnings: &[CLOUD_CONFIG],
    },
    Published {
        place: "cloud-provider-openstack, chart with a ServiceMonitor, c453fb7c9",
        cloud: "openstack",
        words: &[
            "--v=2",
            "--cloud-config=/etc/config/cloud.conf",
            "--cluster-name=kubernetes",
            "--cloud-provider=openstack",
            "--use-service-account-credentials=false",
            "--controllers=cloud-node,cloud-node-lifecycle,route,service",
            "--bind-address=0.0.0.0",
        ],
        warnings: &[CLOUD_CONFIG],
    },
    Published {
        place: "hcloud-cloud-controller-manager, deploy/ccm.yaml, 6485324f",
        cloud: "hcloud",
        words: &[
            "--allow-untagged-cloud",
            "--cloud-provider=hcloud",
            "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
            "--route-reconciliation-period=30s",
            "--webhook-secure-port=0",
            "--leader-elect=false",
        ],
        warnings: &[UNTAGGED],
    },
    Published {
        place: "hcloud-cloud-controller-manager, deploy/ccm-networks.yaml, 6485324f",
        cloud: "hcloud",
        words: &[
            "--allow-untagged-cloud",
            "--cloud-provider=hcloud",
            "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
            "--route-reconciliation-period=30s",
            "--webhook-secure-port=0",
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.244.0.0/16",
            "--leader-elect=false",
        ],
        warnings: &[NOT_NAMED, UNTAGGED],
    },
    Published {
        place: "hcloud-cloud-controller-manager, chart as a DaemonSet, 6485324f",
        cloud: "hcloud",
        words: &[
            "--allow-untagged-cloud",
            "--cloud-provider=hcloud",
            "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true",
            "--route-reconciliation-period=30s",
            "--webhook-secure-port=0",
        ],
        warnings: &[UNTAGGED],
    },
];

#[test]
fn published_manifests_start_with_one_more_flag() {
    for Published { place, cloud, words, warnings } in PUBLISHED {
        let sidecar = format!("--provider={cloud}=unix:///run/ccm/{cloud}.sock");
        let request = parse(words.iter().copied().chain([sidecar.as_str()]));
        let Ok(Request::Run(settings)) = request else { panic!("{place} gave {request:?}") };
        assert_eq!(settings.warnings, warnings, "{place}");
        assert!(!settings.enabled.contains(&&node_ipam::REGISTRATION), "{place}");
    }
}

#[test]
fn without_the_one_more_flag_they_are_told_which() {
    for Published { place, cloud, words, .. } in PUBLISHED {
        let found = mistakes(words);
        let expected = format!(
            "--provider: no provider is given, and this process holds the code of no cloud, nor that of {cloud}: run \
             the provider of {cloud} beside it, and add --provider {cloud}=unix:///path/of/the/socket"
        );
        assert_eq!(found, [expected], "{place}");
    }
}

#[test]
fn what_cannot_mean_anything_is_told() {
    let settings = settings(&[
        "--node-sync-period=10s",
        "--external-cloud-volume-plugin=x",
        "--kube-api-content-type=application/json",
        "--feature-gates=A=true, CloudControllerManagerWatchBasedRoutesReconciliation=false",
        "--kube-api-burst=30",
        "--vmodule=route=4",
        "--webhook_secure_port=10260",
        "--controllers=*,-tagging",
    ]);
    assert_eq!(
        settings.warnings,
        [
            "--kube-api-burst=30 is less than --kube-api-qps=1000: the rate is reached only by requests that are \
             spread over the second",
            "--controllers: -tagging has no effect: it belongs to a vendor's own manager; whether it runs is said to the \
             sidecar",
            "--feature-gates=A=true has no effect: this host knows no such gate",
            "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false has no effect: routes always \
             follow the events of nodes, and are swept every --route-reconciliation-period",
            "--external-cloud-volume-plugin=x has no effect: volumes belong to CSI drivers",
            "--kube-api-content-type=application/json has no effect: the apiserver is spoken to in JSON",
            "--node-sync-period=10s has no effect: see --node-status-update-frequency",
            "--vmodule=route=4 has no effect: there is no verbosity per file: raise --v",
        ]
    );
}

#[test]
fn what_asks_for_nothing_needs_no_word() {
    let quiet = settings(&[
        "--profiling=false",
        "--contention-profiling=false",
        "--webhook-secure-port=0",
        "--cloud-config=",
        "--allow-untagged-cloud=false",
        "--enable-leader-migration=false",
        "--node-sync-period=0s",
    ]);
    assert_eq!(quiet.warnings, [""; 0]);
}
