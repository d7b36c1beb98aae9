use aws_sdk_ec2::types::{
    InstanceIpv6Address, InstanceNetworkInterfaceAttachment as Attachment, InstancePrivateIpAddress,
    InstanceState as State, Placement,
};
use cloudprovider_sdk::proto::ErrorReason;

use super::*;

fn card(
    index: Option<i32>,
    status: NetworkInterfaceStatus,
    v4: &[&str],
    v6: &[&str],
) -> InstanceNetworkInterface {
    let v4 = v4.iter().map(|at| InstancePrivateIpAddress::builder().private_ip_address(*at).build());
    let v6 = v6.iter().map(|at| InstanceIpv6Address::builder().ipv6_address(*at).build());
    InstanceNetworkInterface::builder()
        .status(status)
        .set_attachment(index.map(|index| Attachment::builder().device_index(index).build()))
        .set_private_ip_addresses(Some(v4.collect()))
        .set_ipv6_addresses(Some(v6.collect()))
        .build()
}

fn instance(cards: Vec<InstanceNetworkInterface>) -> Instance {
    Instance::builder()
        .instance_id("i-01234567")
        .placement(Placement::builder().availability_zone("us-east-1a").build())
        .private_dns_name("ip-10-0-0-1.ec2.internal")
        .public_dns_name("ec2-192-0-2-1.compute-1.amazonaws.com")
        .public_ip_address("192.0.2.1")
        .set_network_interfaces(Some(cards))
        .build()
}

fn told(instance: &Instance, families: &[Family]) -> Vec<String> {
    let all = describe(instance, "us-east-1", families).unwrap().addresses;
    all.iter().map(|one| format!("{:?} {}", one.r#type(), one.address)).collect()
}

#[test]
fn addresses_come_in_the_order_of_cards_and_families() {
    use NetworkInterfaceStatus::{Available, InUse};
    let cards = vec![
        card(None, InUse, &["10.0.0.9"], &[]),
        card(Some(1), InUse, &["10.0.0.3"], &["fd00:0::3"]),
        card(Some(0), InUse, &["10.0.0.1", "10.0.0.2"], &["fd00::1", "fd00::2"]),
        card(Some(2), Available, &["10.0.0.4"], &["fd00::4"]),
    ];
    let of_v4 = [
        "InternalIp 10.0.0.1",
        "InternalIp 10.0.0.2",
        "InternalIp 10.0.0.3",
        "InternalIp 10.0.0.9",
        "ExternalIp 192.0.2.1",
        "InternalDns ip-10-0-0-1.ec2.internal",
        "Hostname ip-10-0-0-1.ec2.internal",
        "ExternalDns ec2-192-0-2-1.compute-1.amazonaws.com",
    ];
    let of_v6 = ["InternalIp fd00::1", "InternalIp fd00::3"];
    let instance = instance(cards);
    assert_eq!(told(&instance, &[Family::V4]), of_v4);
    assert_eq!(told(&instance, &[Family::V6]), of_v6);
    assert_eq!(told(&instance, &[Family::V6, Family::V4]), [&of_v6[..], &of_v4[..]].concat());
    assert_eq!(told(&instance, &[Family::V4, Family::V4]), of_v4, "no address twice");
}

#[test]
fn what_ec2_does_not_know_yet_is_not_ready() {
    let bare = Instance::builder().instance_id("i-01234567").build();
    assert_eq!(
        describe(&bare, "us-east-1", &[Family::V4]).unwrap_err().reason(),
        ErrorReason::MetadataNotReady
    );
    let elsewhere = HashMap::from([("us-east-1b".to_owned(), "use1-az2".to_owned())]);
    let error = labels(&instance(Vec::new()), &elsewhere, &[]).unwrap_err();
    assert_eq!(error.reason(), ErrorReason::MetadataNotReady);
}

#[test]
fn labels_name_the_zone_and_the_layers_from_the_top() {
    let zones = HashMap::from([("us-east-1a".to_owned(), "use1-az1".to_owned())]);
    let found = labels(&instance(Vec::new()), &zones, &["nn-1".to_owned(), "nn-2".to_owned()]).unwrap();
    let expected = [
        ("topology.k8s.aws/zone-id", "use1-az1"),
        ("topology.k8s.aws/network-node-layer-1", "nn-1"),
        ("topology.k8s.aws/network-node-layer-2", "nn-2"),
    ];
    assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}

#[test]
fn states_are_those_of_the_contract() {
    use InstanceStateName as Ec2;
    for (name, state) in [
        (Ec2::Pending, Some(InstanceState::Pending)),
        (Ec2::Running, Some(InstanceState::Running)),
        (Ec2::Stopping, Some(InstanceState::Stopped)),
        (Ec2::Stopped, Some(InstanceState::Stopped)),
        (Ec2::ShuttingDown, Some(InstanceState::Terminating)),
        (Ec2::Terminated, Some(InstanceState::Absent)),
        (Ec2::from("rebooting"), None),
    ] {
        let instance = Instance::builder().state(State::builder().name(name.clone()).build()).build();
        assert_eq!(state_of(&instance), state, "{name:?}");
    }
    assert_eq!(state_of(&Instance::builder().build()), None);
}
