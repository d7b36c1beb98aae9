use super::*;
use ccm_kube::fixtures::node;

const ZONE_GA: &str = ZONE[0];
const ZONE_BETA: &str = ZONE[1];

fn kept() -> KeySet {
    KeySet::keys(keys().chain(["example.com/kept", "example.com/same"]))
}

fn instance() -> Instance {
    Instance { provider_id: "fake://1".to_owned(), ..Instance::default() }
}

fn in_zone(zone: &str) -> Instance {
    Instance { zone: Some(zone.to_owned()), ..instance() }
}

fn labelled(labels: &[(&str, &str)]) -> Instance {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Instance { labels, ..instance() }
}

fn with_labels(labels: &[(&str, &str)]) -> Node {
    labels.iter().fold(node("n"), |node, (key, value)| node.with_label(key, value))
}

fn owned(node: Node, record: &str) -> Node {
    node.with_annotation(OWNED_LABELS, record)
}

/// `a=1` is set, `-a` is removed, `record: …` is the new record.
fn words(change: &NodeChange) -> String {
    let (set, removed): (Vec<_>, Vec<_>) = change.labels.iter().partition(|(_, value)| value.is_some());
    let mut words: Vec<String> =
        set.into_iter().map(|(key, value)| format!("{key}={}", value.as_ref().unwrap())).collect();
    words.extend(removed.into_iter().map(|(key, _)| format!("-{key}")));
    if let Some(record) = change.annotations.get(OWNED_LABELS) {
        words.push(format!("record: {}", record.as_deref().unwrap_or("none")));
    }
    words.join(" ")
}

#[test]
fn at_initialisation_the_cloud_decides_the_well_known_and_users_the_rest() {
    let six =
        Instance { instance_type: Some("large".to_owned()), region: Some("r".to_owned()), ..in_zone("a") };
    let rows = [
        (
            "NODE-15 all six",
            node("n"),
            six,
            "beta.kubernetes.io/instance-type=large failure-domain.beta.kubernetes.io/region=r \
             failure-domain.beta.kubernetes.io/zone=a node.kubernetes.io/instance-type=large \
             topology.kubernetes.io/region=r topology.kubernetes.io/zone=a record: \
             node.kubernetes.io/instance-type=large,topology.kubernetes.io/region=r,topology.kubernetes.io/zone=a",
        ),
        (
            "a user's zone is overwritten",
            with_labels(&[(ZONE_GA, "x"), (ZONE_BETA, "y")]),
            in_zone("a"),
            "failure-domain.beta.kubernetes.io/zone=a topology.kubernetes.io/zone=a record: topology.kubernetes.io/zone=a",
        ),
        (
            "the right zone is not written again",
            with_labels(&[(ZONE_GA, "a"), (ZONE_BETA, "a")]),
            in_zone("a"),
            "record: topology.kubernetes.io/zone=a",
        ),
        (
            "NODE-18 additional labels",
            node("n"),
            labelled(&[("my.custom.label/foo", "1"), ("topology.k8s.cp/zone-id", "2")]),
            "my.custom.label/foo=1 topology.k8s.cp/zone-id=2 record: my.custom.label/foo=1,topology.k8s.cp/zone-id=2",
        ),
        (
            "NODE-19 a user's value wins, and stays the user's when it is the same",
            with_labels(&[("example.com/kept", "user"), ("example.com/same", "1")]),
            labelled(&[
                ("example.com/kept", "cloud"),
                ("example.com/same", "1"),
                ("app.k8snio/bar", "1"),
                ("k8snio/bar", "1"),
            ]),
            "app.k8snio/bar=1 k8snio/bar=1 record: app.k8snio/bar=1,k8snio/bar=1",
        ),
        ("nothing to say", node("n"), instance(), ""),
        (
            "a label that vanished before it was ours",
            with_labels(&[("example.com/kept", "1")]),
            instance(),
            "",
        ),
    ];
    for (id, node, instance, want) in rows {
        let mut change = NodeChange::default();
        initialise(&VisibleLabels::cached(&node, &kept()), &instance, &mut change);
        assert_eq!(words(&change), want, "{id}");
    }
}

/// NW-11.
#[test]
fn later_only_what_is_ours_follows_the_cloud() {
    let both = |zone: &str| with_labels(&[(ZONE_GA, zone), (ZONE_BETA, zone)]);
    let rows = [
        ("nothing differs", owned(both("a"), "topology.kubernetes.io/zone=a"), in_zone("a"), ""),
        (
            "the machine moved",
            owned(both("a"), "topology.kubernetes.io/zone=a"),
            in_zone("b"),
            "failure-domain.beta.kubernetes.io/zone=b topology.kubernetes.io/zone=b record: topology.kubernetes.io/zone=b",
        ),
        (
            "a user moved it: it is theirs",
            owned(both("x"), "topology.kubernetes.io/zone=a"),
            in_zone("b"),
            "record: none",
        ),
        (
            "it was lost",
            owned(node("n"), "topology.kubernetes.io/zone=a"),
            in_zone("a"),
            "failure-domain.beta.kubernetes.io/zone=a topology.kubernetes.io/zone=a",
        ),
        (
            "the cloud says nothing any more",
            owned(both("a"), "topology.kubernetes.io/zone=a"),
            instance(),
            "",
        ),
        (
            "only the beta name was lost",
            owned(with_labels(&[(ZONE_GA, "a")]), "topology.kubernetes.io/zone=a"),
            in_zone("a"),
            "failure-domain.beta.kubernetes.io/zone=a",
        ),
        (
            "a user's label is never taken over",
            owned(with_labels(&[("example.com/kept", "1")]), "x=1"),
            labelled(&[("example.com/kept", "1"), ("x", "1")]),
            "",
        ),
        (
            "ours changes",
            owned(with_labels(&[("example.com/kept", "1")]), "example.com/kept=1"),
            labelled(&[("example.com/kept", "2")]),
            "example.com/kept=2 record: example.com/kept=2",
        ),
        (
            "ours goes",
            owned(with_labels(&[("example.com/kept", "1")]), "example.com/kept=1"),
            instance(),
            "-example.com/kept record: none",
        ),
        (
            "a user's does not go",
            owned(with_labels(&[("example.com/kept", "2")]), "example.com/kept=1"),
            instance(),
            "record: none",
        ),
        ("what was never ours does not go", with_labels(&[("example.com/kept", "1")]), instance(), ""),
        ("another one instead", owned(node("n"), "x=1"), labelled(&[("y", "1")]), "y=1 -x record: y=1"),
        (
            "what a node's own record claims of others",
            owned(
                with_labels(&[("node-restriction.kubernetes.io/tenant", "a"), ("example.com/kept", "1")]),
                "example.com/kept=2,node-restriction.kubernetes.io/tenant=a",
            ),
            instance(),
            "record: node-restriction.kubernetes.io/tenant=a",
        ),
    ];
    for (id, node, instance, want) in rows {
        let mut change = NodeChange::default();
        refresh(&VisibleLabels::cached(&node, &kept()), &instance, &mut change);
        assert_eq!(words(&change), want, "{id}");
    }
}

/// A node that another controller initialised has no record.
#[test]
fn labels_of_a_former_controller_are_taken_over_where_they_agree() {
    let rows = [
        (
            "agree",
            with_labels(&[(ZONE_GA, "a"), (ZONE_BETA, "a"), ("example.com/kept", "1")]),
            Instance { zone: Some("a".to_owned()), ..labelled(&[("example.com/kept", "1")]) },
            "record: example.com/kept=1,topology.kubernetes.io/zone=a",
        ),
        ("differ", with_labels(&[(ZONE_GA, "x"), (ZONE_BETA, "x")]), in_zone("a"), ""),
        (
            "only the beta name",
            with_labels(&[(ZONE_BETA, "a")]),
            in_zone("a"),
            "topology.kubernetes.io/zone=a record: topology.kubernetes.io/zone=a",
        ),
    ];
    for (id, node, instance, want) in rows {
        let mut change = NodeChange::default();
        refresh(&VisibleLabels::cached(&node, &kept()), &instance, &mut change);
        assert_eq!(words(&change), want, "{id}");
    }
}

/// The cache keeps only labels that someone reads: a provider's own are known from the record, or from a live read.
#[test]
fn labels_that_the_cache_does_not_keep() {
    let kept = kept();
    let refreshed = |seen: &VisibleLabels<'_>, instance: &Instance| {
        let mut change = NodeChange::default();
        refresh(seen, instance, &mut change);
        words(&change)
    };
    let ours = owned(node("n"), "x=1");
    assert_eq!(
        refreshed(&VisibleLabels::cached(&ours, &kept), &labelled(&[("x", "1")])),
        "",
        "as we wrote it"
    );
    assert_eq!(refreshed(&VisibleLabels::cached(&ours, &kept), &labelled(&[("x", "2")])), "x=2 record: x=2");
    assert_eq!(refreshed(&VisibleLabels::cached(&ours, &kept), &instance()), "-x record: none");

    let both = labelled(&[("x", "1"), ("y", "1")]);
    let unknown = owned(node("n"), "y=1");
    assert_eq!(refreshed(&VisibleLabels::cached(&unknown, &kept), &both), "x=1 record: x=1,y=1");
    let users = owned(node("n").with_label("x", "user").with_label("y", "1"), "y=1");
    assert_eq!(refreshed(&VisibleLabels::live(&users, &kept), &both), "record: !x,y=1");
    let conceded = owned(node("n"), "!x,y=1");
    assert_eq!(refreshed(&VisibleLabels::cached(&conceded, &kept), &both), "", "not tried again");
    assert_eq!(
        refreshed(&VisibleLabels::cached(&conceded, &kept), &instance()),
        "-y record: none",
        "nobody's any more"
    );
    let withdrawn = owned(node("n").with_label("y", "1"), "!x,y=1");
    assert_eq!(refreshed(&VisibleLabels::live(&withdrawn, &kept), &both), "x=1 record: x=1,y=1");
}

/// The guard of a write that relies on the record: it tests the value that we assume.
#[test]
fn an_unseen_label_of_ours_is_tested_before_it_is_changed() {
    let node = owned(node("n"), "x=1");
    let kept = kept();
    let seen = VisibleLabels::cached(&node, &kept);
    let mut change = NodeChange::default();
    refresh(&seen, &labelled(&[("x", "2")]), &mut change);
    let patch = ccm_kube::patch::node_main(&seen.node, &change).unwrap();
    let operations = patch.body.value().to_string();
    assert!(operations.contains(r#"{"op":"test","path":"/metadata/labels/x","value":"1"}"#), "{operations}");
}

#[test]
fn both_names_agree_and_the_ga_name_leads() {
    let all = [
        (ZONE[0], "a"),
        (ZONE[1], "a"),
        (REGION[0], "r"),
        (REGION[1], "r"),
        (INSTANCE_TYPE[0], "t"),
        (INSTANCE_TYPE[1], "t"),
    ];
    let only =
        |name: usize| with_labels(&[(ZONE[name], "a"), (REGION[name], "r"), (INSTANCE_TYPE[name], "t")]);
    let rows = [
        (
            "LBL-1 only beta: GA is filled from it",
            only(1),
            "node.kubernetes.io/instance-type=t topology.kubernetes.io/region=r topology.kubernetes.io/zone=a",
        ),
        ("LBL-2 consistent", with_labels(&all), ""),
        (
            "LBL-3, NW-12 they differ: GA leads",
            with_labels(&[(ZONE_GA, "new"), (ZONE_BETA, "old")]),
            "failure-domain.beta.kubernetes.io/zone=new",
        ),
        (
            "LBL-4 only GA: beta is filled from it",
            only(0),
            "beta.kubernetes.io/instance-type=t failure-domain.beta.kubernetes.io/region=r failure-domain.beta.kubernetes.io/zone=a",
        ),
        ("LBL-5 no labels", node("n"), ""),
    ];
    for (id, node, want) in rows {
        let mut change = NodeChange::default();
        mirror(&node, &mut change);
        assert_eq!(words(&change), want, "{id}");
    }
}

fn record(text: &str) -> OwnedLabels {
    OwnedLabels::of(&node("n").with_annotation(OWNED_LABELS, text)).unwrap()
}

#[test]
fn reads_what_it_writes() {
    let mut owned = OwnedLabels::default();
    owned.claim("topology.kubernetes.io/zone", "a");
    owned.claim("example.com/empty", "");
    owned.concede("example.com/pool");
    let text = owned.text().unwrap();
    assert_eq!(text, "example.com/empty=,!example.com/pool,topology.kubernetes.io/zone=a");
    assert_eq!(record(&text), owned);
    assert_eq!(owned.value("example.com/empty"), Some(""));
    assert!(owned.is_users("example.com/pool") && !owned.is_users("topology.kubernetes.io/zone"));
    owned.forget("example.com/empty");
    owned.forget("example.com/pool");
    owned.forget("topology.kubernetes.io/zone");
    assert_eq!(owned.text(), None);
    assert_eq!(OwnedLabels::of(&node("n")), None);
}

#[test]
fn what_makes_no_sense_owns_nothing() {
    for text in ["", ",", "x", "=v", "!", "{\"a\":\"b\"}"] {
        assert_eq!(record(text), OwnedLabels::default(), "{text:?}");
    }
    assert_eq!(record("x,a=1").value("a"), Some("1"));
}

#[test]
fn knows_what_the_cache_does_not() {
    let owned = record("a=1,b=2,!c");
    assert_eq!(owned.unseen(&KeySet::keys(["a"])).collect::<Vec<_>>(), [("b", "2")]);
}
