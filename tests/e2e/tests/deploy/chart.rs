//! What the chart renders from values, and its errors for bad ones.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::deploy::{Helm, folder, made, objects, rights::granted};
use serde_json::{Value, json};

fn mock(more: Value) -> Value {
    let mut values = json!({ "providers": { "mock": { "image": { "repository": "mock", "tag": "1" } } } });
    if let (Some(values), Value::Object(more)) = (values.as_object_mut(), more) {
        values.extend(more);
    }
    values
}

fn much() -> Result<Value> {
    Ok(objects(include_str!("much.yaml"))?.remove(0))
}

fn find<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))
}

fn container<'a>(workload: &'a Value, name: &str) -> Result<&'a Value> {
    let containers =
        workload["spec"]["template"]["spec"]["containers"].as_array().context("no containers")?;
    containers.iter().find(|one| one["name"] == name).with_context(|| format!("no container {name}"))
}

#[test]
fn it_is_linted() -> Result<()> {
    let helm = Helm::built()?;
    for values in [made::plain("DaemonSet"), made::plain("Deployment"), mock(json!({})), much()?] {
        let said = helm.lint(&values)?;
        ensure!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
    }
    Ok(())
}

/// A node that waits for this very pod must be able to run it, and only the two containers share anything.
#[test]
fn as_it_comes_the_pod_runs_on_a_node_that_is_not_initialised_and_has_no_more_than_it_needs() -> Result<()> {
    let objects = objects(&Helm::built()?.render(&mock(json!({})))?)?;
    let workload = find(&objects, "DaemonSet")?;
    let pod = &workload["spec"]["template"]["spec"];
    for taint in [
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node-role.kubernetes.io/control-plane",
    ] {
        let tolerations = pod["tolerations"].as_array().context("tolerations")?;
        ensure!(tolerations.iter().any(|one| one["key"] == taint && one["operator"] == "Exists"), "{taint}");
    }
    ensure!(pod["hostNetwork"] == true && pod["dnsPolicy"] == "Default", "{pod:#}");
    ensure!(pod["automountServiceAccountToken"] == false, "the provider has no token");
    ensure!(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", "{pod:#}");
    ensure!(pod["securityContext"]["runAsNonRoot"] == true, "{pod:#}");
    let waits =
        |name| Ok::<_, anyhow::Error>(container(workload, name)?["lifecycle"]["preStop"]["sleep"].clone());
    ensure!(waits("ccm-host")?.is_null() && !waits("provider-mock")?.is_null(), "the host ends first");
    for name in ["ccm-host", "provider-mock"] {
        let security = &container(workload, name)?["securityContext"];
        ensure!(security["readOnlyRootFilesystem"] == true, "{name}: {security}");
        ensure!(security["allowPrivilegeEscalation"] == false, "{name}: {security}");
        ensure!(security["capabilities"]["drop"] == json!(["ALL"]), "{name}: {security}");
    }
    let mounts = |name: &str| -> Result<BTreeSet<String>> {
        let mounts = container(workload, name)?["volumeMounts"].as_array().context("mounts")?;
        Ok(mounts.iter().filter_map(|mount| mount["name"].as_str().map(str::to_owned)).collect())
    };
    let (host, provider) = (mounts("ccm-host")?, mounts("provider-mock")?);
    ensure!(host.intersection(&provider).eq(["socket-mock"]), "{host:?} {provider:?}");
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let get = &container(workload, "ccm-host")?[probe]["httpGet"];
        ensure!(get["path"] == path && get["scheme"] == "HTTPS" && get["port"] == 10258, "{probe}: {get}");
    }
    Ok(())
}

#[test]
fn what_users_of_other_charts_set_has_its_place() -> Result<()> {
    let objects = objects(&Helm::built()?.render(&much()?)?)?;
    let workload = find(&objects, "Deployment")?;
    let (spec, pod) = (&workload["spec"], &workload["spec"]["template"]["spec"]);
    let host = container(workload, "ccm-host")?;
    for (seen, wanted) in [
        (&workload["metadata"]["name"], json!("cloud-1")),
        (&spec["replicas"], json!(3)),
        (&spec["strategy"], json!({ "type": "Recreate" })),
        (&pod["serviceAccountName"], json!("cloud-1")),
        (&pod["hostNetwork"], json!(false)),
        (&pod["dnsPolicy"], json!("None")),
        (&pod["priorityClassName"], json!("system-node-critical")),
        (
            &pod["affinity"],
            json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } }),
        ),
        (&pod["imagePullSecrets"][0]["name"], json!("registry")),
        (&pod["initContainers"][0]["name"], json!("wait")),
        (&spec["template"]["metadata"]["labels"]["team"], json!("cloud")),
        (&spec["template"]["metadata"]["annotations"]["checksum"], json!("1")),
        (&host["image"], json!("registry.example/host:2.0.0")),
        (&host["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], json!("metadata.name")),
        (&host["env"][1], json!({ "name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1" })),
        (&host["env"][3], json!({ "name": "TZ", "value": "UTC" })),
        (&find(&objects, "PodDisruptionBudget")?["spec"]["maxUnavailable"], json!(1)),
        (&find(&objects, "Service")?["spec"]["ports"][0]["port"], json!(10258)),
    ] {
        ensure!(*seen == wanted, "{seen} is not {wanted}:\n{workload:#}");
    }
    ensure!(host["livenessProbe"]["httpGet"]["host"].is_null(), "a pod with a network of its own: {host:#}");
    let arguments = |name: &str| -> Result<Vec<String>> {
        let list = container(workload, name)?["args"].as_array().context("args")?;
        Ok(list.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
    };
    let (of_host, of_provider) = (arguments("ccm-host")?, arguments("provider-near")?);
    for flag in [
        "--node-monitor-period=10s",
        "--kube-api-burst=2000000",
        "--feature-gates=A=true",
        "--feature-gates=B=false",
        "--controllers=*,-route,nodeipam",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.0.0.0/8,fd00::/48",
        "--allowed-peer-uids=1001",
        "--provider=far=https://far.example:8443",
        "--provider-tls-dir=far=/run/cloudprovider-tls/far",
        "--provider=near=unix:///run/cloudprovider/near/private/ccm.sock",
    ] {
        ensure!(of_host.iter().any(|one| one == flag), "{flag} is not among {of_host:#?}");
    }
    let wanted = [
        "--endpoint=unix:///run/cloudprovider/near/private/ccm.sock",
        "--config=/etc/cloud/near",
        "--kubeconfig=in-cluster",
    ];
    ensure!(of_provider == wanted, "{of_provider:?}");
    let security = &container(workload, "provider-near")?["securityContext"];
    ensure!(security["readOnlyRootFilesystem"] == false && security["runAsUser"] == 1001, "{security}");
    ensure!(security["capabilities"]["drop"] == json!(["ALL"]), "the rest stays: {security}");
    let near = container(workload, "provider-near")?;
    ensure!(near["env"][0]["value"] == "10.0.0.1" && near["env"][2]["name"] == "TOKEN", "{:#}", near["env"]);
    let at = "/var/run/secrets/kubernetes.io/serviceaccount";
    let token = json!({ "name": "token-near", "mountPath": at, "readOnly": true });
    ensure!(near["volumeMounts"].as_array().is_some_and(|all| all.contains(&token)), "{near:#}");
    let volume = json!({ "name": "token-near", "secret": { "secretName": "cloud-1-near" } });
    ensure!(pod["volumes"].as_array().is_some_and(|all| all.contains(&volume)), "{:#}", pod["volumes"]);
    let secret = find(&objects, "Secret")?;
    let account = &secret["metadata"]["annotations"]["kubernetes.io/service-account.name"];
    ensure!(
        account == "cloud-1-near" && secret["type"] == "kubernetes.io/service-account-token",
        "{secret:#}"
    );
    ensure!(container(workload, "provider-far").is_err(), "it is no sidecar");
    Ok(())
}

/// Whoever comes from another cloud controller manager keeps its objects, to be able to go back.
#[test]
fn a_digest_names_the_image() -> Result<()> {
    let (one, other) = (format!("sha256:{}", "1".repeat(64)), format!("sha256:{}", "2".repeat(64)));
    let values = json!({
        "image": { "repository": "host", "digest": one },
        "providers": { "mock": { "image": { "repository": "mock", "tag": "1", "digest": other } } },
    });
    let objects = objects(&Helm::built()?.render(&values)?)?;
    let workload = find(&objects, "DaemonSet")?;
    ensure!(container(workload, "ccm-host")?["image"] == format!("host@{one}"), "{workload:#}");
    ensure!(container(workload, "provider-mock")?["image"] == format!("mock@{other}"), "{workload:#}");
    Ok(())
}

#[test]
fn under_another_name_it_collides_with_nothing() -> Result<()> {
    let values = mock(json!({
        "fullnameOverride": "ccm-host", "useServiceAccountCredentials": true,
        "kind": "Deployment", "podDisruptionBudget": { "enabled": true },
        "controllers": ["*", "kubelet-serving-csr", "persistent-volume-label"], "webhooks": ["*"],
        "sshKeys": { "secret": "kube-system/keys" }, "metrics": { "service": { "enabled": true } },
    }));
    for object in objects(&Helm::built()?.render(&values)?)? {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        ensure!(name.contains("ccm-host"), "{} {name} may be another manager's", object["kind"]);
    }
    Ok(())
}

/// Our apiserver has no kinds of the Prometheus operator.
#[test]
fn a_service_monitor_asks_for_metrics_by_token() -> Result<()> {
    let values = mock(json!({ "metrics": { "serviceMonitor": {
        "enabled": true, "additionalLabels": { "release": "prometheus" }, "interval": "30s",
    }}}));
    let objects = objects(&Helm::built()?.render(&values)?)?;
    let monitor = find(&objects, "ServiceMonitor")?;
    let endpoint = &monitor["spec"]["endpoints"][0];
    ensure!(monitor["metadata"]["labels"]["release"] == "prometheus", "{monitor:#}");
    ensure!(endpoint["scheme"] == "https" && endpoint["interval"] == "30s", "{monitor:#}");
    let service = find(&objects, "Service")?;
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().context("a selector")? {
        ensure!(service["metadata"]["labels"][label] == *value, "{label} does not lead to {service:#}");
    }
    ensure!(service["spec"]["ports"][0]["name"] == endpoint["port"], "{service:#}");
    Ok(())
}

#[test]
fn alerts_are_a_prometheus_rule() -> Result<()> {
    let labels = json!({ "release": "prometheus" });
    let values =
        mock(json!({ "metrics": { "prometheusRule": { "enabled": true, "additionalLabels": labels } } }));
    let objects = objects(&Helm::built()?.render(&values)?)?;
    let rule = find(&objects, "PrometheusRule")?;
    ensure!(rule["metadata"]["labels"]["release"] == "prometheus", "{rule:#}");
    let alerts = std::fs::read_to_string(folder().join("prometheus/alerts.yaml"))?;
    ensure!(e2e::deploy::objects(&alerts)? == [rule["spec"].clone()], "{rule:#}");
    Ok(())
}

#[test]
fn bad_values_are_named_with_what_is_wanted() -> Result<()> {
    let helm = Helm::built()?;
    let provider = |settings: Value| json!({ "providers": { "mock": settings } });
    for (values, said) in [
        (json!({}), "at '/providers': minProperties: got 0, want 1"),
        (provider(json!({})), "at '/providers/mock': missing property 'image'"),
        (provider(json!({ "image": { "repository": "a" } })), "missing property 'tag'"),
        (
            provider(json!({ "image": { "repository": "a", "digest": "latest" } })),
            "at '/providers/mock/image/digest': 'latest' does not match pattern",
        ),
        (
            provider(json!({ "endpoint": "https://a:1" })),
            "at '/providers/mock': missing property 'tlsSecretName'",
        ),
        (
            provider(json!({ "endpoint": "http://a:1", "tlsSecretName": "a" })),
            "at '/providers/mock/endpoint': 'http://a:1' does not match pattern",
        ),
        (
            provider(json!({ "endpoint": "https://a:1", "tlsSecretName": "a", "kubernetes": {} })),
            "at '/providers/mock': 'not' failed",
        ),
        (
            provider(json!({
                "image": { "repository": "mock", "tag": "1" },
                "kubernetes": { "rules": [{ "resources": ["pods"] }] },
            })),
            "at '/providers/mock/kubernetes/rules/0': missing property 'verbs'",
        ),
        (
            mock(json!({ "kind": "StatefulSet" })),
            "at '/kind': value must be one of 'DaemonSet', 'Deployment'",
        ),
        (mock(json!({ "replicaCount": "two" })), "at '/replicaCount': got string, want integer"),
        (
            mock(json!({ "useServiceAccountCredentials": "yes" })),
            "at '/useServiceAccountCredentials': got string, want boolean",
        ),
        (mock(json!({ "hostNetwork": "yes" })), "at '/hostNetwork': got string, want boolean"),
        (mock(json!({ "tolerations": {} })), "at '/tolerations': got object, want array"),
        (
            mock(json!({ "controllers": ["cloud-nod"] })),
            "at '/controllers/0': 'cloud-nod' does not match pattern",
        ),
        (mock(json!({ "leaderElection": { "enabled": false } })), "all replicas act at the same time"),
        (
            mock(json!({ "kind": "Deployment", "replicaCount": 2, "extraArgs": { "leader-elect": false } })),
            "set kind=Deployment and replicaCount=1",
        ),
        (mock(json!({ "extraArgs": { "leader-elect": "False" } })), "all replicas act at the same time"),
        (
            mock(json!({
                "kind": "Deployment", "replicaCount": 1, "leaderElection": { "enabled": false },
                "updateStrategy": { "rollingUpdate": { "maxUnavailable": 1 } },
            })),
            "no updateStrategy but Recreate",
        ),
        (mock(json!({ "nodeSelecter": {} })), "additional properties 'nodeSelecter' not allowed"),
        (mock(json!({ "extraArgs": { "--v": 1 } })), "additional properties '--v' not allowed"),
        (
            mock(json!({ "extraArgs": { "nosuchflag": 1 } })),
            "at '/extraArgs': additional properties 'nosuchflag' not allowed",
        ),
        (mock(json!({ "extraArgs": { "provider": "a=b" } })), "additional properties 'provider' not allowed"),
        (
            mock(json!({ "extraArgs": { "node-monitor-period": "abc" } })),
            "at '/extraArgs/node-monitor-period': 'abc' does not match pattern",
        ),
        (
            mock(json!({ "extraArgs": { "node-monitor-period": 10 } })),
            "at '/extraArgs/node-monitor-period': maximum: got 10, want 0",
        ),
        (
            mock(json!({ "extraArgs": { "concurrent-node-syncs": "many" } })),
            "at '/extraArgs/concurrent-node-syncs': 'many' does not match pattern",
        ),
        (
            mock(json!({ "extraArgs": { "profiling": "perhaps" } })),
            "at '/extraArgs/profiling': 'perhaps' does not match pattern",
        ),
        (
            mock(json!({ "cluster": { "cidrs": ["999.1.1.1/99"] } })),
            "at '/cluster/cidrs/0': '999.1.1.1/99' does not match pattern",
        ),
        (
            mock(json!({ "cluster": { "cidrs": ["10.0.0.0/33"] } })),
            "at '/cluster/cidrs/0': '10.0.0.0/33' does not match pattern",
        ),
        (
            mock(json!({ "extraArgs": { "cluster-cidr": "10.0.0.0/33" } })),
            "at '/extraArgs/cluster-cidr': '10.0.0.0/33' does not match pattern",
        ),
        (
            mock(json!({ "extraArgs": { "cluster-cidr": ["10.0.0.0/16", "pods"] } })),
            "at '/extraArgs/cluster-cidr/1': 'pods' does not match pattern",
        ),
        (
            mock(json!({ "extraArgs": { "service-cluster-ip-range": "10.96.0.0" } })),
            "at '/extraArgs/service-cluster-ip-range': '10.96.0.0' does not match pattern",
        ),
        (
            mock(json!({ "routes": { "enabled": true } })),
            "routes.enabled=true has no effect without the networks of the pods: set cluster.cidrs",
        ),
        (
            mock(json!({ "nodeIpam": { "enabled": true } })),
            "nodeIpam.enabled=true has nothing to allocate from: set cluster.cidrs",
        ),
        (
            mock(json!({ "webhooks": ["persistent-volume-label"] })),
            "add persistent-volume-label to controllers",
        ),
        (mock(json!({ "extraArgs": { "shadow": false } })), "set shadow=true, or leave it out"),
        (
            mock(json!({ "podDisruptionBudget": { "enabled": true } })),
            "podDisruptionBudget.enabled=true has no effect on a DaemonSet",
        ),
        (
            mock(json!({ "extraArgs": { "webhooks": "persistent-volume-label" } })),
            "add persistent-volume-label to controllers",
        ),
        (
            mock(json!({ "kind": "Deployment", "updateStrategy": { "type": "RollingUpdate" } })),
            "updateStrategy waits for ever",
        ),
        (
            mock(json!({ "updateStrategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } } })),
            "updateStrategy waits for ever",
        ),
        (
            mock(json!({
                "kind": "Deployment", "replicaCount": 2,
                "updateStrategy": { "rollingUpdate": { "maxUnavailable": "25%" } },
            })),
            "updateStrategy waits for ever",
        ),
        (
            mock(json!({
                "kind": "Deployment", "podDisruptionBudget": { "enabled": true, "maxUnavailable": "0%" },
            })),
            "lets no drain of a node end",
        ),
        (
            mock(json!({ "cluster": { "cidrs": ["10.0.0.0/16", "10.1.0.0/16"] } })),
            "cluster.cidrs has two networks of IPv4: 10.0.0.0/16,10.1.0.0/16",
        ),
        (
            mock(json!({
                "delegatedAuth": { "enabled": false }, "metrics": { "serviceMonitor": { "enabled": true } },
            })),
            "set delegatedAuth.enabled=true",
        ),
        (
            mock(json!({
                "extraArgs": { "secure-port": "auto" }, "metrics": { "service": { "enabled": true } },
            })),
            "metrics are served at a port that is known beforehand",
        ),
        (
            mock(json!({
                "controllers": ["*", "persistent-volume-label"], "webhooks": ["persistent-volume-label"],
                "extraArgs": { "webhook-secure-port": 0 },
            })),
            "webhooks are served at a port",
        ),
        (
            mock(json!({ "extraArgs": { "authorization-always-allow-paths": "/livez,/metrics" } })),
            "without /readyz makes the readinessProbe ask the apiserver",
        ),
    ] {
        let error = helm.render(&values).err().with_context(|| format!("{values} were taken"))?.to_string();
        ensure!(error.contains(said), "{values}: {said:?} is not said in\n{error}");
    }
    Ok(())
}

#[test]
fn values_that_work_are_taken() -> Result<()> {
    let helm = Helm::built()?;
    for values in [
        json!({ "kind": "Deployment", "replicaCount": 4, "updateStrategy": { "type": "RollingUpdate" } }),
        json!({ "kind": "Deployment", "updateStrategy": { "rollingUpdate": { "maxSurge": 0 } } }),
        json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": "50%" } } }),
        json!({ "extraArgs": { "cluster-cidr": "10.0.0.0/16, fd00::/48", "service-cluster-ip-range": "" } }),
        json!({ "extraArgs": { "cluster-cidr": ["10.0.0.0/16", "fd00::/48"] } }),
        json!({
            "delegatedAuth": { "enabled": false }, "metrics": { "serviceMonitor": { "enabled": true } },
            "extraArgs": { "authorization-always-allow-paths": "/livez,/readyz,/metrics" },
        }),
    ] {
        helm.render(&mock(values.clone())).with_context(|| values.to_string())?;
    }
    Ok(())
}

/// Where one node may run the pod, every other replica is unavailable, of the old version and of the new one: an upgrade goes
/// on only if all may be. `machines.rs` upgrades one under the real controller.
#[test]
fn an_upgrade_of_a_deployment_waits_for_no_replica_without_a_node() -> Result<()> {
    let objects =
        objects(&Helm::built()?.render(&mock(json!({ "kind": "Deployment", "replicaCount": 3 })))?)?;
    let strategy = &find(&objects, "Deployment")?["spec"]["strategy"];
    let wanted =
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "100%" } });
    ensure!(*strategy == wanted, "{strategy}");
    Ok(())
}

/// The presets need nothing but an image, and say so; what they hold reaches the sidecar.
#[test]
fn a_preset_needs_nothing_but_an_image() -> Result<()> {
    let helm = Helm::built()?;
    for (preset, name, arguments, environment) in [
        ("aws", "aws", &[][..], &[][..]),
        ("aws-native", "aws", &["--load-balancers=classic"], &[]),
        (
            "openstack",
            "openstack",
            &["--cloud-config=/etc/openstack/cloud.conf", "--kubeconfig=in-cluster"],
            &[],
        ),
        (
            "hcloud",
            "hcloud",
            &[
                "--kubeconfig=in-cluster",
                "--allow-untagged-cloud",
                "--provider-id-prefixes=hcloud://,hrobot://",
            ],
            &["HCLOUD_TOKEN", "NODE_NAME"],
        ),
    ] {
        let file = folder().join(format!("chart/ccm-host/presets/{preset}.yaml"));
        let mut values = objects(&std::fs::read_to_string(file)?)?.remove(0);
        let error = helm.render(&values).err().context("it was taken without an image")?.to_string();
        ensure!(error.contains(&format!("at '/providers/{name}': missing property 'image'")), "{error}");
        values["providers"][name]["image"] = json!({ "repository": name, "tag": "1" });
        let objects = objects(&helm.render(&values)?)?;
        let workload = find(&objects, "DaemonSet")?;
        let sidecar = container(workload, &format!("provider-{name}"))?;
        let given = sidecar["args"].to_string();
        ensure!(arguments.iter().all(|one| given.contains(one)), "{name}: {given}");
        let given = sidecar["env"].to_string();
        ensure!(environment.iter().all(|one| given.contains(one)), "{name}: {given}");
        // A role of the pod is the sidecar's alone.
        let skipped =
            &workload["spec"]["template"]["metadata"]["annotations"]["eks.amazonaws.com/skip-containers"];
        ensure!((skipped == "ccm-host") == (name == "aws"), "{preset}: {skipped}");
        // What it mounts is there, also the token of an account that may do something.
        let pod = &workload["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().context("volumes")?;
        for mount in sidecar["volumeMounts"].as_array().context("mounts")? {
            ensure!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{name}: {mount}");
        }
        let account = format!("cloud-controller-manager-{name}");
        let has_account = objects
            .iter()
            .any(|one| one["kind"] == "ServiceAccount" && one["metadata"]["name"] == account.as_str());
        ensure!(has_account == arguments.contains(&"--kubeconfig=in-cluster"), "{name}");
    }
    Ok(())
}

/// As in the published chart: a network that the Secret happens to name changes no node's addresses.
#[test]
fn only_the_preset_with_a_network_gives_hcloud_one() -> Result<()> {
    let helm = Helm::built()?;
    let preset = |name: &str| -> Result<Value> {
        let file = folder().join(format!("chart/ccm-host/presets/{name}.yaml"));
        Ok(objects(&std::fs::read_to_string(file)?)?.remove(0))
    };
    let environment = |values: &Value| -> Result<Vec<Value>> {
        let objects = objects(&helm.render(values)?)?;
        let sidecar = container(find(&objects, "DaemonSet")?, "provider-hcloud")?;
        Ok(sidecar["env"].as_array().context("env")?.clone())
    };
    let mut values = preset("hcloud")?;
    values["providers"]["hcloud"]["image"] = json!({ "repository": "hcloud", "tag": "1" });
    let mut without = environment(&values)?;
    // As Helm merges files.
    let network = preset("hcloud-network")?;
    values["routes"] = network["routes"].clone();
    values["providers"]["hcloud"]["env"] = network["providers"]["hcloud"]["env"].clone();
    values["cluster"] = json!({ "cidrs": ["10.244.0.0/16"] });
    let with = environment(&values)?;
    let network = with.iter().position(|one| one["name"] == "HCLOUD_NETWORK").context("no HCLOUD_NETWORK")?;
    ensure!(with[network]["valueFrom"]["secretKeyRef"]["key"] == "network", "{}", with[network]);
    without.insert(network, with[network].clone());
    ensure!(without == with, "the two presets differ in more than the network: {without:#?} {with:#?}");
    Ok(())
}

/// Next to another cloud controller manager: everything may only read, and nothing else selects its pods.
#[test]
fn in_shadow_mode_nothing_may_be_written() -> Result<()> {
    let all = ["*", "nodeipam", "kubelet-serving-csr", "persistent-volume-label"];
    let values = mock(json!({
        "shadow": true, "controllers": all, "useServiceAccountCredentials": true,
        // As the manager that acts has them.
        "extraArgs": {
            "use-service-account-credentials": true, "leader-elect": true, "webhooks": "persistent-volume-label",
        },
        "nodeIpam": { "enabled": true }, "cluster": { "cidrs": ["10.0.0.0/8"] },
        "kind": "DaemonSet", "updateStrategy": { "type": "OnDelete" },
        "rbac": { "extraRules": [
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"] },
        ] },
        "providers": { "mock": {
            "image": { "repository": "mock", "tag": "1" },
            "kubernetes": { "rules": [
                { "apiGroups": [""], "resources": ["services"], "verbs": ["get", "patch"] },
                { "apiGroups": [""], "resources": ["events"], "verbs": ["create"] },
            ] },
        } },
    }));
    let objects = objects(&Helm::built()?.render(&values)?)?;
    let is_read = |right: &e2e::deploy::rights::Right| {
        matches!(right.verb.as_str(), "get" | "list" | "watch")
            || matches!(right.resource.as_str(), "tokenreviews" | "subjectaccessreviews")
    };
    let granted = granted(&objects);
    let writes: Vec<_> = granted.iter().filter(|right| !is_read(right)).map(ToString::to_string).collect();
    ensure!(writes.is_empty() && granted.len() > 8, "{writes:?} of {}", granted.len());
    let workload = find(&objects, "Deployment")?;
    ensure!(workload["spec"]["replicas"] == 1, "{workload:#}");
    ensure!(
        workload["spec"]["strategy"]["type"] == "Recreate",
        "a DaemonSet's is no Deployment's: {workload:#}"
    );
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    ensure!(labels["app.kubernetes.io/name"] == "cloud-controller-manager-shadow", "{labels:#}");
    let arguments = container(workload, "ccm-host")?["args"].to_string();
    ensure!(arguments.contains("--shadow=true") && arguments.contains("--leader-elect=false"), "{arguments}");
    ensure!(!arguments.contains("service-account") && !arguments.contains("webhook"), "{arguments}");
    Ok(())
}

/// Each row: values, what must be granted, and what must not.
#[test]
fn rights_follow_what_runs() -> Result<()> {
    let helm = Helm::built()?;
    let cidrs = json!({ "cidrs": ["10.0.0.0/8"] });
    for (values, granted_, not) in [
        (
            json!({ "controllers": [] }),
            &["get nodes"][..],
            &["nodes/status", "services", "events", "delete"][..],
        ),
        (
            json!({ "controllers": ["cloud-node"] }),
            &["patch nodes/status"],
            &["delete", "services", "node-lease"],
        ),
        (json!({ "controllers": ["service"] }), &["patch services/status"], &["patch nodes", "delete"]),
        (json!({ "controllers": ["service-lb-controller"] }), &["patch services/status"], &["patch nodes"]),
        (json!({ "controllers": ["*", "-service"] }), &["delete nodes"], &["services"]),
        (
            json!({ "controllers": ["-cloud-node-lifecycle", "*", "cloud-node-lifecycle"] }),
            &["patch nodes"],
            &["delete"],
        ),
        (json!({ "controllers": ["route"] }), &[], &["patch nodes/status"]),
        (json!({ "controllers": ["route"], "cluster": cidrs }), &["patch nodes/status"], &["delete"]),
        (
            json!({ "controllers": ["route"], "cluster": cidrs, "routes": { "enabled": false } }),
            &[],
            &["nodes/status"],
        ),
        (
            json!({ "controllers": [], "nodeIpam": { "enabled": true }, "cluster": cidrs }),
            &["patch nodes"],
            &["nodes/status"],
        ),
        (
            json!({
                "controllers": [], "nodeIpam": { "enabled": true },
                "extraArgs": { "cidr-allocator-type": "CloudAllocator" },
            }),
            &["patch nodes"],
            &[],
        ),
        (json!({ "extraArgs": { "controllers": "service" } }), &["services/status"], &["patch nodes"]),
        (
            json!({ "kind": "Deployment", "replicaCount": 1, "leaderElection": { "enabled": false } }),
            &["delete nodes"],
            &["leases in kube-system"],
        ),
        (
            json!({ "kind": "Deployment", "replicaCount": 1, "extraArgs": { "leader-elect": false } }),
            &[],
            &["leases in kube-system"],
        ),
        (
            json!({ "leaderElection": { "resourceName": "mine", "resourceNamespace": "cloud" } }),
            &["update leases in cloud/mine", "create leases in cloud"],
            &["leases in kube-system"],
        ),
        (json!({ "delegatedAuth": { "enabled": false } }), &[], &["reviews", "extension-apiserver"]),
        (
            json!({ "extraArgs": { "authentication-skip-lookup": true } }),
            &["reviews"],
            &["extension-apiserver"],
        ),
        (
            json!({ "useServiceAccountCredentials": true, "controllers": ["service"] }),
            &[
                "create serviceaccounts/token in kube-system/service-controller",
                "create serviceaccounts in kube-system",
                "get nodes",
            ],
            &["node-controller", "route-controller", "patch nodes"],
        ),
        (
            json!({ "extraArgs": { "use-service-account-credentials": true } }),
            &["serviceaccounts/token in kube-system/node-controller"],
            &["route-controller"],
        ),
        (
            json!({ "useServiceAccountCredentials": true, "controllers": [] }),
            &["list nodes"],
            &["serviceaccounts"],
        ),
        (json!({}), &["delete nodes"], &["certificatesigningrequests", "signers"]),
        (
            json!({ "useServiceAccountCredentials": true, "controllers": ["kubelet-serving-csr"] }),
            &["create serviceaccounts/token in kube-system/kubelet-serving-csr-controller", "get nodes"],
            &["patch nodes", "node-controller"],
        ),
        (
            json!({ "controllers": ["*", "kubelet-serving-csr"] }),
            &[
                "patch certificatesigningrequests/approval",
                "approve signers in kubernetes.io/kubelet-serving",
            ],
            &["create certificatesigningrequests", "sign signers"],
        ),
        (
            json!({ "controllers": ["*", "persistent-volume-label"] }),
            &["patch persistentvolumes", "watch persistentvolumes"],
            &["update persistentvolumes", "delete persistentvolumes", "certificatesigningrequests"],
        ),
        (
            json!({ "controllers": ["persistent-volume-label"], "webhooks": ["*"] }),
            &[
                "patch secrets in kube-system/cloud-controller-manager-webhook",
                "patch mutatingwebhookconfigurations in cloud-controller-manager",
            ],
            &["create secrets", "list secrets", "create mutatingwebhookconfigurations", "update mutating"],
        ),
        (
            json!({
                "controllers": ["persistent-volume-label"],
                "webhooks": ["persistent-volume-label-controller"],
            }),
            &["patch mutatingwebhookconfigurations"],
            &[],
        ),
        (
            json!({
                "controllers": ["persistent-volume-label"],
                "webhooks": ["*", "-persistent-volume-label"],
            }),
            &[],
            &["secrets", "mutatingwebhookconfigurations"],
        ),
        (json!({ "webhooks": ["*"] }), &[], &["secrets", "mutatingwebhookconfigurations"]),
        // The host's own flags mean the same, in every spelling that it reads.
        (
            json!({
                "controllers": ["persistent-volume-label"],
                "extraArgs": { "webhooks": "persistent-volume-label" },
            }),
            &["patch secrets in kube-system/cloud-controller-manager-webhook"],
            &[],
        ),
        (
            json!({ "extraArgs": { "use-service-account-credentials": "True" } }),
            &["create serviceaccounts/token in kube-system/node-controller"],
            &[],
        ),
        (json!({ "rbac": { "create": false } }), &[], &[" "]),
    ] {
        let rights = granted(&objects(&helm.render(&mock(values.clone()))?)?);
        let rights: Vec<String> = rights.iter().map(ToString::to_string).collect();
        let has = |part: &&str| rights.iter().any(|right| right.contains(*part));
        let (missing, unwanted) =
            (granted_.iter().find(|part| !has(part)), not.iter().find(|part| has(part)));
        ensure!(
            missing.is_none() && unwanted.is_none(),
            "{values}: {missing:?}, {unwanted:?} of {rights:#?}"
        );
        // A cache reads live what a list no longer has, before it forgets it.
        let lists = rights.iter().filter_map(|right| right.strip_prefix("list "));
        let unread: Vec<_> = lists.filter(|what| !rights.contains(&format!("get {what}"))).collect();
        ensure!(unread.is_empty(), "{values}: {unread:?} of {rights:#?}");
    }
    Ok(())
}

/// A host that listens on one address of the node answers its probes there; loopback would have it restarted for ever.
#[test]
fn probes_ask_where_the_host_listens() -> Result<()> {
    for (bound, asked) in [
        (json!({}), "127.0.0.1"),
        (json!({ "bind-address": "0.0.0.0" }), "127.0.0.1"),
        (json!({ "bind-address": "::" }), "127.0.0.1"),
        (json!({ "bind-address": "10.0.0.5" }), "10.0.0.5"),
        (json!({ "bind-address": "fd00::5" }), "fd00::5"),
    ] {
        let workload = Helm::built()?.render_only("workload.yaml", &mock(json!({ "extraArgs": bound })))?;
        let workload = objects(&workload)?.remove(0);
        let host = container(&workload, "ccm-host")?;
        for probe in ["livenessProbe", "readinessProbe"] {
            ensure!(host[probe]["httpGet"]["host"] == asked, "{bound}: {:#}", host[probe]);
        }
    }
    Ok(())
}
