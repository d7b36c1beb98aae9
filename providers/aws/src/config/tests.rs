use super::*;

#[test]
fn every_setting_of_the_published_provider_is_known() {
    let text = "
[Global]
zone = us-east-1a
REGION = us-east-1
VPC = vpc-1
SubnetID = subnet-1
RouteTableID = rtb-1
RoleARN = arn:aws:iam::1:role/a
SourceARN = arn:aws:eks:us-east-1:1:cluster/a
KubernetesClusterTag = blue
KubernetesClusterID = blue
DisableSecurityGroupIngress
ElbSecurityGroup = sg-1
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 10256
ClusterServiceSharedLoadBalancerHealthProbePath = /healthz
SupportedTopologyInstanceTypePattern = ^p5
NLBSecurityGroupMode = Managed
[ServiceOverride \"1\"]
Service = EC2
Region = us-east-1
URL = http://127.0.0.1:1
SigningRegion = us-east-1
SigningMethod = v4
SigningName = ec2
";
    let config = Config::read(text).unwrap();
    assert_eq!((config.zone.as_str(), config.region.as_str()), ("us-east-1a", "us-east-1"));
    assert_eq!(config.node_families, [Family::V6, Family::V4]);
    assert_eq!(config.override_of("EC2", "us-east-1").unwrap().url, "http://127.0.0.1:1");
    assert_eq!(config.override_of("EC2", "eu-west-1"), None);
}

#[test]
fn what_means_nothing_is_an_error_that_names_it() {
    let signed = "[ServiceOverride \"1\"]\nService = EC2\nRegion = r\nURL = u\nSigningRegion = r\n";
    let twice = signed.replace("\"1\"", "\"2\"");
    for (text, says) in [
        ("[Global]\nZoen = a", "line 2: [Global] has no setting \"Zoen\""),
        ("[Gobal]\nZone = a", "section \"Gobal\" is unknown"),
        ("[ServiceOverride \"1\"]\nname = a", "has no setting \"name\""),
        ("[Global]\nNodeIPFamilies = ipv5", "NodeIPFamilies = \"ipv5\": use ipv4 or ipv6"),
        ("[Global]\nKubernetesClusterTag = a\nKubernetesClusterID = b", "name two clusters"),
        ("[Global]\nSupportedTopologyInstanceTypePattern = (", "no regular expression"),
        ("[ServiceOverride \"7\"]\nService = EC2", "[ServiceOverride \"7\"] has no Region"),
        (&*format!("{signed}{twice}"), "are both of EC2 in r"),
    ] {
        let error = Config::read(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text:?}: {error}");
    }
}

#[test]
fn a_zone_names_its_region() {
    for (zone, region) in [
        ("us-east-1a", Some("us-east-1")),
        ("us-west-2-lax-1a", Some("us-west-2")),
        ("us-gov-east-1b", Some("us-gov-east-1")),
        ("ap-southeast-12", Some("ap-southeast-12")),
        ("us-east", None),
        ("1a", None),
        ("", None),
        ("us--1a", None),
    ] {
        assert_eq!(region_of(zone), region, "{zone:?}");
    }
}
