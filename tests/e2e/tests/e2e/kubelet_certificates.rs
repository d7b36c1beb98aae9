//! Serving certificates of kubelets on a real control plane: which requests are approved, and which are not.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use e2e::{
    certificates::{Ask, decided, decision, grant, subject},
    event, join, nothing_was_forbidden, quick,
};
use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::Node};
use kube::{
    Api,
    api::{ListParams, Patch},
};
use provider_mock::cloud::{Address, AddressKind, NewInstances};
use rcgen::{
    Attribute, BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;
use test_cluster::{
    Cluster, HOST_USER, Options, metrics,
    nodes::{as_registered, register, set_ready},
    wait,
};

/// With the controller's permissions, before the host runs.
/// The mock is told of a Node's addresses, and reports those of its instances alone.
async fn prepared(options: Options) -> Result<Cluster> {
    let cluster =
        options.host_flag("--kubelet-serving-csr-trust-node-readers=true").start_without_host().await?;
    grant(&cluster).await?;
    Ok(cluster)
}

async fn started(mut cluster: Cluster) -> Result<Cluster> {
    cluster.start_host()?;
    cluster.host_ready().await?;
    Ok(cluster)
}

/// The names that a node's kubelet requests: every address in its status.
async fn all_names(cluster: &Cluster, node: &str) -> Result<Vec<String>> {
    let instance = cluster.cloud()?.door().instance(node).await?;
    Ok(instance.addresses.iter().map(|address| address.address.clone()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_is_approved_as_soon_as_the_cloud_knows_its_node() -> Result<()> {
    let cluster = prepared(quick().host_flag("--controllers=*,kubelet-serving-csr")).await?;
    let cluster = started(cluster).await?;
    register(&cluster.client, as_registered("node-a")).await?;
    set_ready(&cluster.client, "node-a", "True").await?;
    // On its own initiative, before it knows an address from the cloud.
    Ask::of("node-a", &["node-a"])?.make(&cluster, "early").await?;
    wait::until("the request waits", async || {
        let text = cluster.host_metrics().await?;
        Ok((metrics::sum(&text, "ccm_reports", &["NodeUninitialized"]) == 1.0).then_some(()))
    })
    .await?;

    cluster.cloud()?.create_instance("node-a", "zone-a").await?;

    decided(&cluster, "early", "Approved").await?;
    let events = cluster.control_plane.audit_events()?;
    let of = |resource: &str| events.iter().find(|event| event.verb == "patch" && event.resource == resource);
    let initialised: jiff::Timestamp = of("nodes").context("no patch of the node")?.answered.parse()?;
    let approved: jiff::Timestamp =
        of("certificatesigningrequests/approval").context("no approval")?.answered.parse()?;
    println!("approved {:#} after the node was initialised", approved - initialised);
    assert!(approved.duration_since(initialised).as_secs_f64() < 1.0, "{initialised} {approved}");

    let names = all_names(&cluster, "node-a").await?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(names.len() >= 4, "{names:?}");
    Ask::of("node-a", &names)?.make(&cluster, "full").await?;
    assert_eq!(decided(&cluster, "full", "Approved").await?, "KubeletServingCertificateApproved");
    event(&cluster, "node-a", "KubeletServingCertificateApproved").await?;
    nothing_was_forbidden(&cluster)
}

/// One request for each of many nodes, all at once: the host queries the cloud in batches.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_requests_cost_a_few_calls() -> Result<()> {
    let cluster = prepared(Options::default().host_flag("--controllers=kubelet-serving-csr")).await?;
    let wish = NewInstances { count: Some(100), ..NewInstances::default() };
    for instance in cluster.cloud()?.door().create_instances(&wish).await? {
        let mut node = as_registered(&instance.name);
        node["spec"] = json!({ "providerID": instance.provider_id });
        register(&cluster.client, node).await?;
        Ask::of(&instance.name, &[&instance.name])?.make(&cluster, &format!("csr-{}", instance.name)).await?;
    }
    cluster.cloud()?.reset_calls().await?;
    let cluster = started(cluster).await?;

    let all = Api::<CertificateSigningRequest>::all(cluster.client.clone());
    wait::until("100 approvals", async || {
        let requests = all.list(&ListParams::default()).await?.items;
        let approved = requests.iter().filter(|request| {
            request
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .any(|one| one.type_ == "Approved")
        });
        Ok((approved.count() == 100).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", cluster.parts()))?;
    let (calls, items) = cluster.cloud()?.calls_and_items("BatchGetInstances").await?;
    println!("100 requests: {calls} calls about {items} instances");
    // Few, although on a busy machine they come apart by more than the few milliseconds for which a call waits.
    assert!(calls <= 15 && items == 100, "{calls} calls about {items} instances");
    let counts = cluster.control_plane.audit_counts(HOST_USER)?;
    let approvals = counts.get(&("patch".to_owned(), "certificatesigningrequests/approval".to_owned()));
    assert_eq!(approvals.copied(), Some(100), "{counts:?}");
    nothing_was_forbidden(&cluster)
}

/// A request that must not be approved, and the reason if it can be denied.
type Hostile = (&'static str, Ask, Option<&'static str>);

/// Everything that the apiserver accepts. What it refuses by itself (a signature that does not verify, DER that
/// does not parse) is in the controller's table tests.
fn hostile() -> Result<Vec<Hostile>> {
    let named = |names: &[&str]| Ask::of("node-a", names);
    let with = |change: &dyn Fn(&mut CertificateParams)| Ask::with("node-a", &["node-a"], change);
    let by = |user: &str, groups: &[&'static str]| -> Result<Ask> {
        Ok(Ask { user: user.to_owned(), groups: groups.to_vec(), ..named(&["node-a"])? })
    };
    let usages = |usages: &[&'static str]| -> Result<Ask> {
        Ok(Ask { usages: usages.to_vec(), ..named(&["node-a"])? })
    };
    let text = |change: &dyn Fn(String) -> String| -> Result<Ask> {
        let good = named(&["node-a"])?;
        Ok(Ask { pem: change(good.pem.clone()), ..good })
    };
    let extension = |oid: &[u64], content: &[u8]| {
        let (oid, content) = (oid.to_vec(), content.to_vec());
        with(&move |params| {
            params.custom_extensions = vec![CustomExtension::from_oid_content(&oid, content.clone())];
        })
    };
    let email = SanType::Rfc822Name("a@b".try_into()?);
    let uri = SanType::URI("spiffe://a/b".try_into()?);
    let password = {
        static PASSWORD: [u64; 7] = [1, 2, 840, 113_549, 1, 9, 7];
        let mut params = CertificateParams::new(["node-a".to_owned()])?;
        params.distinguished_name = subject("system:nodes", "system:node:node-a");
        let attribute = Attribute { oid: &PASSWORD, values: [&[0x31, 8, 0x0c, 6][..], b"secret"].concat() };
        let request = params.serialize_request_with_attributes(&KeyPair::generate()?, vec![attribute])?;
        Ask { pem: request.pem()?, ..named(&["node-a"])? }
    };
    Ok(vec![
        ("another-nodes-name", named(&["node-b"])?, Some("OtherNode")),
        ("another-nodes-name-in-capitals", named(&["NODE-B"])?, Some("OtherNode")),
        ("another-nodes-dns-name", named(&["node-b.mock.internal"])?, Some("NotReported")),
        ("another-nodes-address", named(&["node-a", "10.77.0.2"])?, Some("NotReported")),
        ("an-address-of-nobody", named(&["8.8.8.8"])?, Some("NotReported")),
        ("an-address-that-only-the-status-has", named(&["10.77.0.66"])?, Some("NotReported")),
        ("a-name-in-capitals", named(&["NODE-A"])?, Some("NotReported")),
        ("a-name-with-a-dot", named(&["node-a."])?, Some("ForbiddenName")),
        ("a-wildcard", named(&["*"])?, Some("ForbiddenName")),
        ("a-wildcard-of-a-domain", named(&["*.mock.internal"])?, Some("ForbiddenName")),
        ("localhost", named(&["localhost"])?, Some("ForbiddenName")),
        ("the-apiserver", named(&["kubernetes.default.svc"])?, Some("ForbiddenName")),
        ("a-service", named(&["db.prod.svc.cluster.local"])?, Some("ForbiddenName")),
        ("loopback", named(&["127.0.0.1"])?, Some("ForbiddenAddress")),
        ("loopback-6", named(&["::1"])?, Some("ForbiddenAddress")),
        ("unspecified", named(&["0.0.0.0"])?, Some("ForbiddenAddress")),
        ("link-local", named(&["169.254.169.254"])?, Some("ForbiddenAddress")),
        ("link-local-6", named(&["fe80::1"])?, Some("ForbiddenAddress")),
        ("multicast", named(&["224.0.0.1"])?, Some("ForbiddenAddress")),
        ("broadcast", named(&["255.255.255.255"])?, Some("ForbiddenAddress")),
        ("ipv4-in-ipv6", named(&["::ffff:10.77.0.1"])?, Some("ForbiddenAddress")),
        ("no-names", named(&[])?, Some("NoNames")),
        ("an-email", with(&|p| p.subject_alt_names.push(email.clone()))?, Some("ForbiddenNameType")),
        ("a-uri", with(&|p| p.subject_alt_names.push(uri.clone()))?, Some("ForbiddenNameType")),
        (
            "another-nodes-subject",
            with(&|p| p.distinguished_name = subject("system:nodes", "system:node:node-b"))?,
            Some("WrongSubject"),
        ),
        (
            "a-plain-subject",
            with(&|p| p.distinguished_name = subject("system:nodes", "node-a"))?,
            Some("WrongSubject"),
        ),
        (
            "masters",
            with(&|p| p.distinguished_name = subject("system:masters", "system:node:node-a"))?,
            Some("WrongSubject"),
        ),
        (
            "two-organizations",
            with(&|p| p.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "system:masters"))?,
            Some("WrongSubject"),
        ),
        (
            "a-unit-in-the-subject",
            with(&|p| p.distinguished_name.push(DnType::OrganizationalUnitName, "unit"))?,
            Some("WrongSubject"),
        ),
        ("a-ca", with(&|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained))?, Some("ForbiddenExtension")),
        (
            "a-key-usage",
            with(&|p| p.key_usages = vec![KeyUsagePurpose::KeyCertSign])?,
            Some("ForbiddenExtension"),
        ),
        (
            "a-purpose",
            with(&|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth])?,
            Some("ForbiddenExtension"),
        ),
        ("an-unknown-extension", extension(&[1, 2, 3, 4], &[5, 0])?, Some("ForbiddenExtension")),
        ("a-password", password, Some("ForbiddenExtension")),
        ("two-blocks", text(&|pem| pem.repeat(2))?, Some("Malformed")),
        ("words-before", text(&|pem| format!("words\n{pem}"))?, Some("Malformed")),
        ("words-after", text(&|pem| format!("{pem}words"))?, Some("Malformed")),
        ("by-another-node", by("system:node:node-b", &["system:nodes"])?, Some("WrongSubject")),
        (
            "by-a-service-account",
            by("system:serviceaccount:default:node-a", &["system:serviceaccounts"])?,
            Some("NotANode"),
        ),
        ("by-a-person-among-the-nodes", by("jane", &["system:nodes"])?, Some("NotANode")),
        ("by-a-bootstrap-token", by("system:bootstrap:abcdef", &["system:bootstrappers"])?, Some("NotANode")),
        ("by-nobody", by("system:node:", &["system:nodes"])?, Some("NotANode")),
        ("outside-of-the-group", by("system:node:node-a", &[])?, Some("NotANode")),
        ("a-clients-usages", usages(&["digital signature", "client auth"])?, Some("WrongUsages")),
        ("both-usages", usages(&["digital signature", "server auth", "client auth"])?, Some("WrongUsages")),
        ("no-server", usages(&["digital signature", "key encipherment"])?, Some("WrongUsages")),
        ("a-stranger-to-the-cluster", Ask::of("ghost", &["ghost"])?, None),
        ("a-node-that-waits", Ask::of("fresh", &["fresh"])?, None),
        ("a-node-whose-machine-is-gone", Ask::of("gone", &["gone"])?, None),
        ("a-node-whose-machine-stands-still", Ask::of("stopped", &["stopped"])?, None),
        ("a-node-with-the-id-of-another", Ask::of("thief", &["node-c", "10.77.0.3"])?, None),
        ("the-node-that-was-robbed", Ask::of("node-c", &["node-c"])?, None),
        (
            "a-node-with-the-id-of-no-nodes-machine",
            Ask::of("impostor", &["lonely", "10.77.0.4"])?,
            Some("NodeNotNamed"),
        ),
        ("an-excluded-node", Ask::of("excluded", &["excluded"])?, None),
        ("another-signer", Ask { signer: "example.com/signer", ..named(&["node-a"])? }, None),
    ])
}

async fn with_address(cluster: &Cluster, name: &str, address: &str) -> Result<()> {
    let addresses = vec![
        Address::new(AddressKind::InternalIp, address),
        Address::new(AddressKind::Hostname, name),
        Address::new(AddressKind::InternalDns, format!("{name}.mock.internal")),
    ];
    cluster.cloud()?.door().patch_instance(name, &json!({"addresses": addresses})).await?;
    Ok(())
}

/// A node with the provider ID of this machine, as its kubelet can claim at registration.
async fn registered_as(cluster: &Cluster, name: &str, machine: &str) -> Result<()> {
    let mut node = as_registered(name);
    node["spec"] = json!({ "providerID": cluster.cloud()?.door().instance(machine).await?.provider_id });
    register(&cluster.client, node).await?;
    set_ready(&cluster.client, name, "True").await
}

/// A cluster with honest nodes, and those that the hostile requests need.
async fn scene(cluster: &Cluster) -> Result<()> {
    let cloud = cluster.cloud()?;
    join(cluster, &["node-a", "node-b", "node-c", "gone", "stopped", "excluded"]).await?;
    cloud.create_instance("lonely", "zone-a").await?;
    for (name, address) in
        [("node-a", "10.77.0.1"), ("node-b", "10.77.0.2"), ("node-c", "10.77.0.3"), ("lonely", "10.77.0.4")]
    {
        with_address(cluster, name, address).await?;
    }
    registered_as(cluster, "thief", "node-c").await?;
    registered_as(cluster, "impostor", "lonely").await?;
    register(&cluster.client, as_registered("fresh")).await?;
    cloud.terminate_instance("gone").await?;
    cloud.stop_instance("stopped").await?;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let exclude = json!({ "metadata": { "labels": { "cloudprovider.ccm/exclude": "true" } } });
    nodes.patch("excluded", &Default::default(), &Patch::Merge(exclude)).await?;
    let lie = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.77.0.66" }] } });
    nodes.patch_status("node-a", &Default::default(), &Patch::Strategic(lie)).await?;
    Ok(())
}

async fn decisions(cluster: &Cluster, hostile: &[Hostile]) -> Result<BTreeMap<&'static str, String>> {
    let mut found = BTreeMap::new();
    for (name, ..) in hostile {
        let decided = decision(cluster, name).await?;
        let words = decided.map(|one| format!("{} {}", one.type_, one.reason.unwrap_or_default()));
        found.insert(*name, words.unwrap_or_default());
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_are_left_alone_and_denied_if_the_policy_says_so() -> Result<()> {
    let cluster = prepared(quick().host_flag("--controllers=*,kubelet-serving-csr")).await?;
    let mut cluster = started(cluster).await?;
    scene(&cluster).await?;
    let hostile = hostile()?;
    assert!(hostile.len() >= 50, "{}", hostile.len());
    for (name, ask, _) in &hostile {
        ask.make(&cluster, name).await?;
    }
    let judged = |text: &str| metrics::sum(text, "ccm_reports", &["kubelet-serving-csr-controller"]);
    // All but the one for another signer, which is not even watched.
    let watched = hostile.len() - 1;
    wait::until("each is judged", async || {
        Ok((judged(&cluster.host_metrics().await?) >= watched as f64).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}\n{:?}", cluster.parts(), cluster.control_plane.audit_counts(HOST_USER)))?;
    for (name, words) in decisions(&cluster, &hostile).await? {
        assert_eq!(words, "", "{name}");
    }
    event(&cluster, "node-a", "KubeletServingCertificateRefused").await?;
    event(&cluster, "thief", "KubeletServingCertificateWaiting").await?;

    cluster.restart_host_with(&["--kubelet-serving-csr-policy=approve-and-deny".to_owned()]).await?;

    for (name, _, reason) in &hostile {
        if let Some(reason) = reason {
            assert_eq!(decided(&cluster, name, "Denied").await?, *reason, "{name}");
        }
    }
    Ask::of("node-a", &["node-a", "10.77.0.1"])?.make(&cluster, "good").await?;
    decided(&cluster, "good", "Approved").await?;
    let denied = |reason: &Option<&str>| reason.map(|reason| format!("Denied {reason}")).unwrap_or_default();
    let want: BTreeMap<_, _> = hostile.iter().map(|(name, _, reason)| (*name, denied(reason))).collect();
    assert_eq!(decisions(&cluster, &hostile).await?, want);
    nothing_was_forbidden(&cluster)
}
