//! Routes: the same as the published provider's, in fewer calls, and nothing of anybody else's.

use std::collections::BTreeMap;

use cloudprovider_proto::v1alpha1::{
    BatchDeleteRoutesRequest, BatchEnsureRoutesRequest, ErrorReason, Fencing, InstanceView,
    ListRoutesRequest, NodeRef, Route, RouteDeletion, RouteResult, RouteState, RouteToDelete, RouteToEnsure,
};
use serde::Deserialize;
use tonic::Status;

use crate::aws::{Aws, Instance, Provider, cluster};

/// What the table of the emulator has, but for gateways.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct InTable {
    destination: String,
    instance: String,
    state: String,
    #[serde(default)]
    drops: bool,
}

fn leads(destination: &str, instance: &Instance) -> InTable {
    let (destination, instance) = (destination.to_owned(), instance.id.clone());
    InTable { destination, instance, state: "active".to_owned(), drops: false }
}

async fn table(aws: &mut Aws) -> Vec<InTable> {
    let mut all: Vec<InTable> = aws.tell("routes").await;
    all.sort_by(|a, b| a.destination.cmp(&b.destination));
    all
}

pub(crate) async fn try_ensure(
    provider: &Provider,
    wanted: &[(&str, NodeRef)],
) -> Result<Vec<RouteResult>, Status> {
    let item = |(destination, target): &(&str, NodeRef)| RouteToEnsure {
        key: (*destination).to_owned(),
        destination_cidr: (*destination).to_owned(),
        target: Some(target.clone()),
    };
    let request = BatchEnsureRoutesRequest {
        cluster: cluster(),
        fencing: Some(Fencing::default()),
        items: wanted.iter().map(item).collect(),
    };
    let answer = provider.routes().batch_ensure_routes(request).await?;
    let mut results = answer.into_inner().results;
    results.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(results)
}

async fn ensure(provider: &Provider, wanted: &[(&str, NodeRef)]) -> Vec<RouteResult> {
    try_ensure(provider, wanted).await.unwrap()
}

/// The result of one, which is an error.
async fn refused(provider: &Provider, destination: &str, target: NodeRef) -> ErrorReason {
    let [result] = &ensure(provider, &[(destination, target)]).await[..] else {
        panic!("one item has one result")
    };
    result.error.as_ref().unwrap_or_else(|| panic!("{result:?}")).reason()
}

pub(crate) async fn try_list(provider: &Provider) -> Result<Vec<Route>, Status> {
    let request = ListRoutesRequest { cluster: cluster(), page_size: 500, ..ListRoutesRequest::default() };
    Ok(provider.routes().list_routes(request).await?.into_inner().routes)
}

/// Where each destination leads, by provider ID.
async fn listed(provider: &Provider) -> BTreeMap<String, (Option<String>, RouteState)> {
    let all = try_list(provider).await.unwrap();
    let target = |route: &Route| route.target.as_ref().map(|target| target.provider_id.clone());
    all.into_iter().map(|one| (one.destination_cidr.clone(), (target(&one), one.state()))).collect()
}

pub(crate) async fn try_delete(provider: &Provider, route: &Route) -> Result<RouteDeletion, Status> {
    let items = vec![RouteToDelete { key: "k".to_owned(), route: Some(route.clone()) }];
    let request = BatchDeleteRoutesRequest { cluster: cluster(), fencing: Some(Fencing::default()), items };
    Ok(provider.routes().batch_delete_routes(request).await?.into_inner().results.remove(0))
}

async fn delete(provider: &Provider, route: &Route) -> RouteDeletion {
    try_delete(provider, route).await.unwrap()
}

#[tokio::test]
async fn each_provider_takes_over_the_routes_of_the_other_as_they_are() {
    let mut aws = Aws::start().await;
    let machines: Vec<Instance> = aws.tell("launch us-east-1a 4").await;
    let cidrs = ["10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"];
    let wanted: Vec<_> = cidrs.into_iter().zip(machines.iter().map(Instance::node)).collect();
    let expected: Vec<_> = cidrs.into_iter().zip(&machines).map(|(cidr, one)| leads(cidr, one)).collect();
    let (native, published) = (aws.native(&[]).await, aws.published().await);
    // It must have heard of a node before it lists a route to it.
    published.ask(&machines.iter().map(Instance::node).collect::<Vec<_>>(), InstanceView::Existence).await;

    for result in
        ensure(&published, &wanted[..2]).await.into_iter().chain(ensure(&native, &wanted[2..]).await)
    {
        assert!(result.route.is_some(), "{result:?}");
    }
    assert_eq!(table(&mut aws).await, expected);
    let before = aws.tell("calls").await;
    let ours = listed(&native).await;
    assert_eq!(ours.len(), 4);
    for (cidr, machine) in cidrs.into_iter().zip(&machines) {
        assert_eq!(ours[cidr], (Some(machine.provider_id()), RouteState::Active), "{cidr}");
    }
    for result in ensure(&native, &wanted).await {
        assert_eq!(result.route.unwrap().state(), RouteState::Active);
    }
    assert_eq!(aws.changes_since(&before).await, BTreeMap::new());
    assert_eq!(listed(&published).await.into_keys().collect::<Vec<_>>(), cidrs);

    for (provider, cidr) in [(&native, cidrs[0]), (&published, cidrs[3])] {
        let all = try_list(provider).await.unwrap();
        let route = all.iter().find(|route| route.destination_cidr == cidr).unwrap();
        assert_eq!(delete(provider, route).await.error, None);
    }
    assert_eq!(table(&mut aws).await, expected[1..3]);
}

#[tokio::test]
async fn a_batch_takes_two_calls_for_each_new_node_and_none_afterwards() {
    let mut aws = Aws::start().await;
    // A size that nothing was made for, for which AWS's bucket is large enough.
    let count = 20 + usize::from(std::process::id() as u8) % 25;
    let machines: Vec<Instance> = aws.tell(&format!("launch us-east-1a {count}")).await;
    let cidrs: Vec<_> = (0..count).map(|at| format!("10.244.{at}.0/24")).collect();
    let wanted: Vec<_> =
        cidrs.iter().map(String::as_str).zip(machines.iter().map(Instance::new_node)).collect();
    let native = aws.native(&[]).await;

    let before = aws.calls().await;
    for result in ensure(&native, &wanted).await {
        assert!(result.route.is_some(), "{result:?}");
    }
    // Two more are those of the instances and of the table.
    assert_eq!(aws.calls().await - before, 2 * count as u32 + 2);
    assert!(table(&mut aws).await.iter().all(|route| !route.drops && route.state == "active"));

    for _ in 0..2 {
        let before = aws.calls().await;
        assert_eq!(listed(&native).await.len(), count);
        assert_eq!(aws.calls().await - before, 1, "the instances are asked about once");
    }
    let before = aws.calls().await;
    ensure(&native, &wanted).await;
    assert_eq!(aws.calls().await - before, 2);
}

#[tokio::test]
async fn a_blackhole_is_replaced_in_one_call() {
    let mut aws = Aws::start().await;
    let machines: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&[]).await;
    let cidr = "10.244.0.0/24";
    ensure(&native, &[(cidr, machines[0].node())]).await;
    let former = try_list(&native).await.unwrap().remove(0);
    aws.tell::<serde_json::Value>(&format!("terminate {}", machines[0].id)).await;
    assert_eq!(listed(&native).await[cidr], (None, RouteState::Blackhole));
    assert_eq!(refused(&native, cidr, machines[0].node()).await, ErrorReason::InstanceNotFound);

    let before = aws.tell("calls").await;
    ensure(&native, &[(cidr, machines[1].node())]).await;
    let changes = aws.changes_since(&before).await;
    let expected = ["ec2:ModifyInstanceAttribute", "ec2:ReplaceRoute"].map(|action| (action.to_owned(), 1));
    assert_eq!(changes, BTreeMap::from(expected), "no moment without a route");
    assert_eq!(table(&mut aws).await, [leads(cidr, &machines[1])]);
    // What was listed before is another route.
    assert_eq!(delete(&native, &former).await.error.unwrap().reason(), ErrorReason::RouteChanged);
    assert_eq!(table(&mut aws).await, [leads(cidr, &machines[1])]);
}

#[tokio::test]
async fn what_is_somebody_elses_is_neither_listed_nor_changed() {
    let mut aws = Aws::start().await;
    let ours: Instance = aws.tell("launch us-east-1a").await;
    let shapes: Vec<Instance> = aws.tell("shapes").await;
    let theirs = shapes.iter().find(|shape| shape.name == "of another cluster").unwrap();
    let native = aws.native(&[]).await;
    aws.leave_out(&["KubernetesClusterID"]);
    aws.configure("KubernetesClusterID = another");
    let another = aws.native(&[]).await;
    ensure(&another, &[("10.244.9.0/24", theirs.node())]).await;
    let expected = [leads("10.244.9.0/24", theirs)];
    assert_eq!(table(&mut aws).await, expected);

    assert_eq!(
        listed(&native).await,
        BTreeMap::new(),
        "a route of another cluster, and that to the internet"
    );
    for destination in ["10.244.9.0/24", "0.0.0.0/0"] {
        let reason = refused(&native, destination, ours.node()).await;
        assert_eq!(reason, ErrorReason::OwnedByOtherCluster, "{destination}");
    }
    assert_eq!(refused(&native, "10.244.1.0/24", theirs.node()).await, ErrorReason::InstanceNotFound);
    assert_eq!(table(&mut aws).await, expected);
}

#[tokio::test]
async fn a_call_that_fails_or_whose_answer_is_lost_is_made_good() {
    let mut aws = Aws::start().await;
    let machines: Vec<Instance> = aws.tell("launch us-east-1a 2").await;
    let native = aws.native(&[]).await;
    let mut failed = 0;
    for fault in [r#""code":"InternalError","status":500"#, r#""lost":true"#] {
        for action in ["ModifyInstanceAttribute", "CreateRoute", "ReplaceRoute", "DeleteRoute"] {
            let rule = format!(r#"rules {{"action":"ec2:{action}","times":1,{fault}}}"#);
            aws.tell::<serde_json::Value>(&rule).await;
            let cidr = "10.244.0.0/24";
            for machine in &machines {
                // The check is on again, as for a node that is new.
                aws.tell::<serde_json::Value>(&format!("check {}", machine.id)).await;
                while ensure(&native, &[(cidr, machine.node())]).await.remove(0).error.is_some() {
                    failed += 1;
                }
                assert_eq!(table(&mut aws).await, [leads(cidr, machine)], "{action} {fault}");
            }
            let route = try_list(&native).await.unwrap().remove(0);
            while delete(&native, &route).await.error.is_some() {
                failed += 1;
            }
            assert_eq!(table(&mut aws).await, [], "{action} {fault}");
        }
    }
    assert_eq!(failed, 8, "each fault was met");
}

#[tokio::test]
async fn what_cannot_be_is_named_and_the_rest_goes_on() {
    let mut aws = Aws::start().await;
    let machines: Vec<Instance> = aws.tell("launch us-east-1a 3").await;
    let native = aws.native(&[]).await;
    aws.tell::<serde_json::Value>(&format!("hide {}", machines[0].id)).await;
    let young = NodeRef { creation_time: Some(std::time::SystemTime::now().into()), ..machines[0].node() };
    let stranger = NodeRef { provider_id: "gce:///us-east-1a/i-01234567".to_owned(), ..machines[0].node() };
    let results = ensure(
        &native,
        &[
            ("10.244.0.0/24", young),
            ("10.244.1.0/24", machines[0].node()),
            ("10.244.2.0/24", stranger),
            ("10.244.3.0/24", machines[1].node()),
            ("fd00:10:244::/64", machines[2].node()),
        ],
    )
    .await;
    let reasons: Vec<_> = results.iter().map(|one| one.error.as_ref().map(|error| error.reason())).collect();
    let gone = Some(ErrorReason::InstanceNotFound);
    assert_eq!(reasons, [Some(ErrorReason::RetryLater), gone, gone, None, None]);
    let expected = [leads("10.244.3.0/24", &machines[1]), leads("fd00:10:244::/64", &machines[2])];
    assert_eq!(table(&mut aws).await, expected);
    let ours = listed(&native).await;
    assert_eq!(ours["fd00:10:244::/64"], (Some(machines[2].provider_id()), RouteState::Active));

    aws.tell::<serde_json::Value>(r#"rules {"action":"ec2:CreateRoute","code":"RouteLimitExceeded"}"#).await;
    assert_eq!(refused(&native, "10.244.4.0/24", machines[1].node()).await, ErrorReason::RouteTableFull);
    assert_eq!(ensure(&native, &[("10.244.3.0/24", machines[1].node())]).await[0].error, None);
}

#[tokio::test]
async fn the_table_is_the_one_of_the_config_or_of_the_clusters_tag() {
    let mut aws = Aws::start().await;
    let machine: Instance = aws.tell("launch us-east-1a").await;
    aws.leave_out(&["RouteTableID"]);
    let by_tag = aws.native(&[]).await;
    ensure(&by_tag, &[("10.244.0.0/24", machine.node())]).await;
    assert_eq!(table(&mut aws).await, [leads("10.244.0.0/24", &machine)]);

    aws.leave_out(&["KubernetesClusterID"]);
    aws.configure("KubernetesClusterID = another");
    let without = try_list(&aws.native(&[]).await).await.unwrap_err();
    assert!(without.message().contains("kubernetes.io/cluster/another"), "{without:?}");
    aws.configure("RouteTableID = rtb-0123456789abcdef0");
    let wrong = try_list(&aws.native(&[]).await).await.unwrap_err();
    assert!(wrong.message().contains("\"rtb-0123456789abcdef0\""), "{wrong:?}");
    let refused = try_ensure(&aws.native(&[]).await, &[("10.244.1.0/24", machine.node())]).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(table(&mut aws).await.len(), 1);
}
