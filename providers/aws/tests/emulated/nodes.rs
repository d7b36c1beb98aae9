//! Nodes: the same answers as the published provider's, in far fewer calls.

use std::time::SystemTime;

use cloudprovider_proto::v1alpha1::{
    ErrorReason, InstanceResult, InstanceState, InstanceView, ListInstancesRequest, NodeRef,
    UnreachableLocation,
};

use crate::aws::{Aws, Instance, cluster};

/// Nodes that the host asks about in one call.
const BATCH: usize = 200;

/// What a node gets, in the form in which both providers can be compared: without the time, and without an order of labels.
fn told(result: &InstanceResult) -> String {
    let Some(instance) = &result.instance else { return format!("{:?} {:?}", result.state(), result.error) };
    let mut labels: Vec<_> = instance.labels.iter().collect();
    labels.sort();
    let addresses: Vec<_> =
        instance.addresses.iter().map(|one| format!("{:?} {}", one.r#type(), one.address)).collect();
    format!(
        "{} {} {} {} {addresses:?} {labels:?}",
        instance.provider_id, instance.instance_type, instance.zone, instance.region
    )
}

/// Asks both providers about an instance of each shape.
async fn both_agree(config: &str, node: impl Fn(&Instance) -> NodeRef) -> Vec<String> {
    let mut aws = Aws::start().await;
    aws.configure(config);
    let shapes: Vec<Instance> = aws.tell("shapes").await;
    // Where they differ on purpose has tests of its own.
    let shapes: Vec<_> = shapes
        .into_iter()
        .filter(|shape| !matches!(&*shape.name, "terminated" | "of another cluster"))
        .collect();
    let nodes: Vec<_> = shapes.iter().map(node).collect();
    let (native, published) = (aws.native(&[]).await, aws.published().await);
    let native = native.ask(&nodes, InstanceView::Metadata).await;
    let published = published.ask(&nodes, InstanceView::Metadata).await;
    for ((shape, native), published) in shapes.iter().zip(&native).zip(&published) {
        assert_eq!(told(native), told(published), "an instance {}", shape.name);
    }
    native.iter().map(told).collect()
}

#[tokio::test]
async fn both_providers_say_the_same_of_every_shape_by_its_provider_id() {
    let told = both_agree("", Instance::node).await;
    let having = |part: &str| told.iter().filter(|one| one.contains(part)).count();
    assert_eq!(
        (having("ExternalDns"), having("layer-3"), having("aws:///us-east-1b/")),
        (1, 2, 1),
        "{told:?}"
    );
}

#[tokio::test]
async fn both_providers_say_the_same_of_every_shape_in_both_families() {
    let told = both_agree("NodeIPFamilies = ipv6\nNodeIPFamilies = ipv4", Instance::node).await;
    assert_eq!(
        told.iter().filter(|one| one.contains("[\"InternalIp 2")).count(),
        1,
        "first of all: {told:?}"
    );
}

#[tokio::test]
async fn both_providers_find_every_shape_by_the_name_of_its_node() {
    both_agree("", Instance::new_node).await;
}

#[tokio::test]
async fn hundreds_of_nodes_take_few_calls() {
    let mut aws = Aws::start().await;
    // A size that nothing was made for, and that the emulator answers in time beside everything else.
    let count = BATCH + 1 + usize::from(std::process::id() as u8) / 2;
    let instances: Vec<Instance> = aws.tell(&format!("launch us-east-1a {count}")).await;
    let native = aws.native(&[]).await;
    let at_start = aws.calls().await;
    let batches = count.div_ceil(BATCH) as u32;
    for nodes in instances.chunks(BATCH) {
        let nodes: Vec<_> = nodes.iter().map(Instance::new_node).collect();
        for (node, result) in nodes.iter().zip(native.ask(&nodes, InstanceView::Metadata).await) {
            assert_eq!(result.instance.expect("it is found").name, node.name);
        }
    }
    let init = aws.calls().await;
    // Three a batch by name; whether the type has a place in the network, once.
    assert!(init - at_start <= 3 * batches + 1, "{count} nodes took {} calls", init - at_start);
    for nodes in instances.chunks(BATCH) {
        let nodes: Vec<_> = nodes.iter().map(Instance::node).collect();
        let results = native.ask(&nodes, InstanceView::All).await;
        assert!(results.iter().all(|one| one.state() == InstanceState::Running && one.authoritative));
    }
    assert_eq!(aws.calls().await - init, batches, "a sweep");
    // The list reaches everything, in pages of EC2's own.
    let mut listed = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListInstancesRequest { cluster: cluster(), page_size: 100, page_token, view: 0 };
        let page = native.instances().list_instances(request).await.unwrap().into_inner();
        assert!(page.instances.len() <= 100);
        listed.extend(page.instances.into_iter().map(|one| one.instance.unwrap().provider_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    listed.sort();
    let mut expected: Vec<_> = instances.iter().map(Instance::provider_id).collect();
    expected.sort();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn a_list_without_what_cannot_be_described_is_incomplete() {
    let mut aws = Aws::start().await;
    let [one, gone]: [Instance; 2] = aws.tell::<Vec<_>>("launch us-east-1a 2").await.try_into().unwrap();
    aws.tell::<serde_json::Value>(&format!("terminate {}", gone.id)).await;
    let denied =
        r#"rules {"action":"ec2:DescribeAvailabilityZones","code":"UnauthorizedOperation","status":403}"#;
    aws.tell::<serde_json::Value>(denied).await;
    let native = aws.native(&[]).await;
    let list = async || {
        let request = ListInstancesRequest { cluster: cluster(), ..ListInstancesRequest::default() };
        let page = native.instances().list_instances(request).await.unwrap().into_inner();
        let listed: Vec<_> =
            page.instances.into_iter().map(|one| one.instance.unwrap().provider_id).collect();
        let part = |part: UnreachableLocation| (part.location, part.error.unwrap().reason());
        (listed, page.unreachable.into_iter().map(part).collect::<Vec<_>>())
    };
    let zone = ("us-east-1a".to_owned(), ErrorReason::CloudPermissionDenied);
    assert_eq!(list().await, (Vec::new(), vec![zone]));
    aws.tell::<serde_json::Value>("rules").await;
    assert_eq!(list().await, (vec![one.provider_id()], Vec::new()), "not what is terminated");
}

#[tokio::test]
async fn what_ec2_does_not_know_is_gone_only_once_its_node_is_old() {
    let mut aws = Aws::start().await;
    let [here, hidden]: [Instance; 2] = aws.tell::<Vec<_>>("launch us-east-1a 2").await.try_into().unwrap();
    let native = aws.native(&[]).await;
    let sees_little = aws.native(&["--nodes-of-other-accounts"]).await;
    aws.tell::<serde_json::Value>(&format!("hide {}", hidden.id)).await;
    let young = NodeRef { creation_time: Some(SystemTime::now().into()), ..hidden.node() };
    let unnamed = NodeRef { name: hidden.id.clone(), ..hidden.new_node() };
    let nodes = [here.node(), hidden.node(), young, unnamed];
    let results = native.ask(&nodes, InstanceView::Existence).await;
    assert_eq!(results[0].state(), InstanceState::Running);
    assert_eq!((results[1].state(), results[1].authoritative), (InstanceState::Absent, true));
    assert_eq!(results[2].state(), InstanceState::Unspecified);
    assert_eq!(results[2].error.as_ref().unwrap().reason(), ErrorReason::RetryLater);
    assert_eq!((results[3].state(), results[3].authoritative), (InstanceState::Absent, false), "by name");
    let results = sees_little.ask(&nodes, InstanceView::Existence).await;
    assert_eq!((results[1].state(), results[1].authoritative), (InstanceState::Absent, false));
    // What EC2 itself says is terminated is gone for both, at any age.
    aws.tell::<serde_json::Value>(&format!("show {}", hidden.id)).await;
    aws.tell::<serde_json::Value>(&format!("terminate {}", hidden.id)).await;
    for provider in [&native, &sees_little] {
        let results = provider.ask(&nodes[1..3], InstanceView::Existence).await;
        assert!(results.iter().all(|one| one.state() == InstanceState::Absent && one.authoritative));
    }
}

/// Where the published provider would initialise a node, and delete it at once, or serve the machine of another cluster.
#[tokio::test]
async fn what_is_gone_is_absent_and_what_is_of_another_cluster_is_not_ours() {
    let mut aws = Aws::start().await;
    let shapes: Vec<Instance> = aws.tell("shapes").await;
    let of = |name| shapes.iter().find(|one| one.name == name).unwrap().node();
    let elsewhere = NodeRef { provider_id: "aws:///eu-west-1a/i-01234567".to_owned(), ..of("plain") };
    let virtual_one = NodeRef { provider_id: "aws:///us-east-1a/i-kwok-7".to_owned(), ..of("plain") };
    let native = aws.native(&[]).await;
    let nodes = [of("terminated"), of("of another cluster"), elsewhere, virtual_one, of("plain")];
    let results = native.ask(&nodes, InstanceView::Metadata).await;
    let states: Vec<_> = results.iter().map(InstanceResult::state).collect();
    use InstanceState::{Absent, NotOwned, Running};
    assert_eq!(
        states,
        [Absent, NotOwned, NotOwned, NotOwned, Running],
        "one of them must not fail the others"
    );
}

/// How many layers each of these results has, or why it has no labels.
fn layers(results: &[InstanceResult]) -> Vec<Result<usize, ErrorReason>> {
    let of = |result: &InstanceResult| match (&result.instance, &result.error) {
        (Some(instance), _) => {
            Ok(instance.labels.keys().filter(|key| key.contains("network-node-layer-")).count())
        }
        (None, error) => Err(error.as_ref().unwrap().reason()),
    };
    results.iter().map(of).collect()
}

#[tokio::test]
async fn the_network_is_asked_about_a_page_of_instances_at_once_and_about_each_once() {
    let mut aws = Aws::start().await;
    let instances: Vec<Instance> = aws.tell("launch us-east-1a 45 trainers trn1.32xlarge").await;
    let nodes: Vec<_> = instances.iter().map(Instance::node).collect();
    let native = aws.native(&[]).await;
    for _ in 0..2 {
        let results = native.ask(&nodes, InstanceView::Metadata).await;
        assert_eq!(layers(&results), vec![Ok(3); 45]);
    }
    let calls: std::collections::BTreeMap<String, u32> = aws.tell("calls").await;
    assert_eq!(calls["ec2:DescribeInstanceTopology"], 3, "and none the second time");
}

#[tokio::test]
async fn nodes_wait_for_their_place_if_they_need_it_or_may_have_it() {
    let mut aws = Aws::start().await;
    let trainer: Instance = aws.tell::<Vec<_>>("launch us-east-1a 1 trainer trn1.32xlarge").await.remove(0);
    let plain: Instance = aws.tell("launch us-east-1a").await;
    let young = |node: NodeRef| NodeRef { creation_time: Some(SystemTime::now().into()), ..node };
    let nodes = [trainer.node(), young(trainer.node()), plain.node(), young(plain.node())];
    aws.tell::<serde_json::Value>(r#"rules {"action":"ec2:DescribeInstanceTopology","times":1}"#).await;
    let native = aws.native(&[]).await;
    let results = native.ask(&nodes, InstanceView::Metadata).await;
    let waits = Err(ErrorReason::MetadataNotReady);
    // An old node that waits keeps its labels, also of a type that the provider cannot know to have none.
    assert_eq!(layers(&results), [waits, waits, waits, Ok(0)]);
    assert_eq!(results[0].state(), InstanceState::Running, "and it is known to run");
    let results = native.ask(&nodes, InstanceView::Metadata).await;
    assert_eq!(layers(&results), [Ok(3), Ok(3), Ok(0), Ok(0)], "once AWS tells");
    // Without the right to ask there are no labels, and nodes do not wait for them.
    let denied =
        r#"rules {"action":"ec2:DescribeInstanceTopology","code":"UnauthorizedOperation","status":403}"#;
    aws.tell::<serde_json::Value>(denied).await;
    let native = aws.native(&[]).await;
    let results = native.ask(&nodes, InstanceView::Metadata).await;
    assert_eq!(layers(&results), vec![Ok(0); 4]);
}

#[tokio::test]
async fn a_node_with_a_name_of_its_own_is_found_by_an_address() {
    let mut aws = Aws::start().await;
    let instance: Instance = aws.tell("launch us-east-1a").await;
    let address = instance.node.split('.').next().unwrap().replacen("ip-", "", 1).replace('-', ".");
    let in_its_name =
        NodeRef { name: instance.node.replace("ec2.internal", "example.com"), ..instance.new_node() };
    let of_its_kubelet =
        NodeRef { name: "worker-1".to_owned(), provided_node_ips: vec![address], ..instance.new_node() };
    let native = aws.native(&[]).await;
    let results = native.ask(&[in_its_name, of_its_kubelet], InstanceView::Metadata).await;
    for result in results {
        assert_eq!(result.instance.unwrap().provider_id, instance.provider_id());
    }
    // The host sends a kubelet's word only to a provider that wants it.
    for (flags, wants) in [(&[][..], false), (&["--nodes-by-address"], true)] {
        let wanted = aws.native(flags).await.wants().await.identity.unwrap();
        assert_eq!((wanted.provided_node_ips, wanted.labels.len(), wanted.creation_time), (wants, 0, true));
    }
}
