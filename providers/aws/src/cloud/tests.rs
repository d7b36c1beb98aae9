use super::*;

fn tags(all: &[(&str, &str)]) -> Vec<Tag> {
    all.iter().map(|(key, value)| Tag::builder().key(*key).value(*value).build()).collect()
}

#[test]
fn the_cluster_is_that_of_the_instance_of_this_process() {
    let blue = Cluster { id: "blue".to_owned(), legacy: false };
    let legacy = Cluster { id: "blue".to_owned(), legacy: true };
    for (all, expected) in [
        (&[("Name", "a"), ("kubernetes.io/cluster/blue", "owned")][..], Ok(blue)),
        (&[("KubernetesCluster", "blue"), ("kubernetes.io/cluster/blue", "owned")], Ok(legacy)),
        (&[("Name", "a")], Err("has no tag kubernetes.io/cluster/NAME")),
        (
            &[("kubernetes.io/cluster/blue", "owned"), ("kubernetes.io/cluster/red", "shared")],
            Err("tags of several clusters, [\"blue\", \"red\"]"),
        ),
    ] {
        match (Cluster::of_tags(&tags(all)), expected) {
            (Ok(cluster), Ok(expected)) => assert_eq!(cluster, expected),
            (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{error}"),
            (found, expected) => panic!("{all:?}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn an_instance_belongs_to_the_clusters_of_its_tags() {
    let blue = Cluster { id: "blue".to_owned(), legacy: false };
    for (all, owner) in [
        (&[("kubernetes.io/cluster/blue", "owned")][..], Owner::Us),
        (&[("KubernetesCluster", "blue")], Owner::Us),
        (&[("kubernetes.io/cluster/red", "owned"), ("kubernetes.io/cluster/blue", "shared")], Owner::Us),
        (&[("kubernetes.io/cluster/red", "owned")], Owner::AnotherCluster),
        (&[("KubernetesCluster", "red")], Owner::AnotherCluster),
        (&[("Name", "blue")], Owner::Nobody),
    ] {
        assert_eq!(blue.owner(&tags(all)), owner, "{all:?}");
    }
}

#[test]
fn a_role_needs_an_account() {
    let shared = SdkConfig::builder().behavior_version(BehaviorVersion::latest()).build();
    let config =
        |arn: &str| Config { role_arn: arn.to_owned(), source_arn: "arn:x".to_owned(), ..Config::default() };
    let role = Role::new(&config("arn:aws:iam::123456789012:role/ccm"), &shared).unwrap();
    let headers = [("x-amz-source-account", "123456789012"), ("x-amz-source-arn", "arn:x")];
    assert_eq!(role.headers, headers.map(|(name, value)| (name, value.to_owned())));
    assert!(
        Role::new(&config("ccm"), &shared).unwrap_err().to_string().contains("RoleARN = \"ccm\" is no ARN")
    );
}
