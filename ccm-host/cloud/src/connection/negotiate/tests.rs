use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn cp(version: &str, service: &str) -> String {
    format!("{PACKAGE}{version}.{service}")
}

/// D5.
#[test]
fn the_highest_common_version_of_each_service_wins() {
    let theirs = [
        cp("v1alpha1", "CloudProvider"),
        cp("v1beta1", "CloudProvider"),
        cp("v1", "CloudProvider"),
        cp("v1alpha1", "Instances"),
        cp("v9", "LoadBalancers"),
        "grpc.health.v1.Health".to_owned(),
    ];
    let served = negotiate_with(&theirs, &["v1alpha1", "v1beta1"]).unwrap();
    assert_eq!(served.versions, [("CloudProvider", "v1beta1"), ("Instances", "v1alpha1")]);
    assert_eq!(
        served.unusable[0].1,
        "it speaks only newer versions of LoadBalancers (v9; this host speaks v1alpha1): upgrade the host"
    );
}

#[test]
fn each_way_to_have_nothing_in_common_is_told_apart() {
    let rows = [
        (vec![], "it serves no service of ccm.cloudprovider.*: it names []"),
        (
            names(&["grpc.health.v1.Health"]),
            "it serves no service of ccm.cloudprovider.*: it names [\"grpc.health.v1.Health\"]",
        ),
        (
            vec![cp("v1alpha1", "Instances")],
            "it serves [\"ccm.cloudprovider.v1alpha1.Instances\"], but not CloudProvider, which every provider must serve",
        ),
        (
            vec![cp("v1beta1", "CloudProvider"), cp("v2", "CloudProvider")],
            "it speaks only newer versions of CloudProvider (v1beta1, v2; this host speaks v1alpha1): upgrade the host",
        ),
        (
            vec![cp("v0alpha1", "CloudProvider"), cp("v2", "CloudProvider")],
            "it speaks no common version of CloudProvider (v0alpha1, v2; this host speaks v1alpha1): upgrade the provider",
        ),
    ];
    for (theirs, want) in rows {
        assert_eq!(negotiate(&theirs).unwrap_err(), want, "{theirs:?}");
    }
}

#[test]
fn versions_are_ordered_as_in_kubernetes() {
    let ordered = ["v1alpha1", "v1alpha2", "v1beta1", "v1", "v2alpha1", "v2", "v10"];
    assert!(ordered.windows(2).all(|pair| rank(pair[0]).unwrap() < rank(pair[1]).unwrap()));
    assert_eq!(["1", "v", "vx", "v1gamma1", "v1alpha"].map(rank), [None; 5]);
}

#[test]
fn the_host_names_what_it_calls() {
    assert_eq!(host_services()[0], "ccm.cloudprovider.v1alpha1.CloudProvider");
    assert_eq!(negotiate(&host_services()).unwrap().versions.len(), 6);
}
