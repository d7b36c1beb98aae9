//! The tables. IDs are those of upstream's behaviour; where ours differs, the row says how.

use k8s_openapi::api::core::v1::VolumeNodeAffinity;
use serde_json::{Value, json};

use super::*;
use ccm_cloud::{
    ErrorReason,
    fake::{error, method, volume as answer},
};
use ccm_kube::keep::Pairs;

const FORMER_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const FORMER_REGION: &str = "failure-domain.beta.kubernetes.io/region";

type Given<'a> = &'a [(&'a str, &'a str)];

fn labelled(labels: Given<'_>) -> PersistentVolume {
    PersistentVolume {
        name: "pv".to_owned(),
        uid: "u".to_owned(),
        disk: Some(Disk { plugin: "kubernetes.io/gce-pd", id: "disk".to_owned() }),
        labels: labels.iter().copied().collect::<Pairs>(),
        ..PersistentVolume::default()
    }
}

fn bound_by(keys: &[&str]) -> Option<Vec<String>> {
    Some(keys.iter().map(|key| (*key).to_owned()).collect())
}

fn labels(pairs: Given<'_>) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn asks(volume: &PersistentVolume) -> bool {
    matches!(basis(volume), Basis::Ask(_))
}

/// Requirements in short: `key in a,b`.
fn short(plan: &Plan) -> Vec<String> {
    let requirements = plan.requirements.iter();
    let values = |values: &Option<Vec<String>>| values.clone().unwrap_or_default().join(",");
    requirements.map(|one| format!("{} in {}", one.key, values(&one.values))).collect()
}

#[test]
fn who_is_asked() {
    let pair: Given<'_> = &[(ZONE, "a"), (REGION, "r")];
    let former: Given<'_> = &[(FORMER_ZONE, "a"), (FORMER_REGION, "r")];
    let provisioned = |labels| PersistentVolume { is_provisioned: true, ..labelled(labels) };
    let trusted = |volume: &PersistentVolume| basis(volume) == Basis::Trusted(labels(pair));
    assert!(trusted(&provisioned(pair)), "PV-5");
    assert!(trusted(&provisioned(former)), "PV-4, under the current names");
    assert!(asks(&provisioned(&[(ZONE, "a")])), "PV-11");
    assert!(asks(&labelled(pair)), "PV-6: nobody vouches for these");

    let with_id = |id: &str| {
        let disk = Some(Disk { plugin: "kubernetes.io/aws-ebs", id: id.to_owned() });
        basis(&PersistentVolume { disk, ..labelled(&[]) })
    };
    assert_eq!(with_id(PLACEHOLDER), Basis::Nothing);
    assert_eq!(with_id(""), Basis::Nothing);
    assert_eq!(with_id(&"x".repeat(LONGEST_ID + 1)), Basis::Nothing);
    assert_ne!(with_id(&"x".repeat(LONGEST_ID)), Basis::Nothing);
    let other = PersistentVolume { disk: None, ..labelled(&[]) };
    assert_eq!(basis(&other), Basis::Nothing, "PV-1, PV-12");
    let deleting = PersistentVolume { is_deleting: true, ..labelled(&[]) };
    assert_eq!(basis(&deleting), Basis::Nothing);

    let done = PersistentVolume { affinity_keys: bound_by(&[REGION, ZONE]), ..labelled(pair) };
    assert_eq!(basis(&done), Basis::Nothing, "nothing is left to write");
    let half = PersistentVolume { affinity_keys: bound_by(&[ZONE]), ..labelled(pair) };
    assert!(asks(&half));
}

#[test]
fn the_question_says_what_is_known() {
    let Basis::Ask(query) = basis(&labelled(&[(ZONE, "a")])) else { panic!() };
    let want = VolumeQuery {
        name: "pv".to_owned(),
        uid: "u".to_owned(),
        plugin: "kubernetes.io/gce-pd",
        volume_id: "disk".to_owned(),
        labels: labels(&[(ZONE, "a")]),
    };
    assert_eq!(query, want);
}

#[test]
fn what_the_answers_come_to() {
    let Basis::Ask(query) = basis(&labelled(&[])) else { panic!() };
    let present = || ("p", Ok(answer(VolumeState::Present, &[(ZONE, "a")])));
    let absent = || ("q", Ok(answer(VolumeState::Absent, &[])));
    let foreign = || ("r", Ok(answer(VolumeState::NotOwned, &[])));
    let unknown = || ("s", Ok(answer(VolumeState::Unspecified, &[])));
    let broken = || ("t", Err(error(method::VOLUME_LABELS, Some(ErrorReason::CloudApiUnavailable))));
    let verdict = |answers: Vec<(&str, _)>| {
        let answers = answers.into_iter().map(|(name, answer)| (name.to_owned(), answer)).collect();
        match verdict(&query, answers) {
            Ok((labels, _)) => format!("{labels:?}"),
            Err(reports) => reports.iter().map(|one| format!("{} {:?}", one.reason, one.retry)).collect(),
        }
    };
    let labelled = format!("{:?}", labels(&[(ZONE, "a")]));
    let slowly = format!("SeveralProviders {:?}", Retry::After(SLOW_RETRY));
    let rows = [
        (vec![present()], labelled.as_str()),
        (vec![absent(), foreign(), present()], &labelled),
        (vec![present(), broken()], "ProviderFailed Backoff"),
        (vec![present(), present()], &slowly),
        (vec![absent(), foreign()], "DiskNotFound Backoff"),
        (vec![foreign()], ""),
        (vec![], ""),
        (vec![absent(), broken()], "ProviderFailed Backoff"),
        (vec![foreign(), unknown()], "ProviderFailed Backoff"),
    ];
    for (number, (answers, want)) in rows.into_iter().enumerate() {
        assert_eq!(verdict(answers), want, "row {number}");
    }
}

#[test]
fn an_answer_without_success_says_when_to_ask_again() {
    let Basis::Ask(query) = basis(&labelled(&[])) else { panic!() };
    let after = Some(Duration::from_secs(7));
    let limited =
        CloudError { retry_after: after, ..error(method::VOLUME_LABELS, Some(ErrorReason::RateLimited)) };
    let unknown = VolumeAnswer { error: Some(limited), ..answer(VolumeState::Unspecified, &[]) };
    let reports = verdict(&query, vec![("p".to_owned(), Ok(unknown))]).unwrap_err();
    assert_eq!(
        reports[0].retry,
        Retry::After(Duration::from_secs(7)),
        "PV-2: told and asked again, never refused"
    );
}

#[test]
fn what_a_volume_lacks() {
    let affinity = |keys: &[&str], own| PersistentVolume { affinity_keys: bound_by(keys), ..labelled(own) };
    let none = || labelled(&[]);
    type Row<'a> = (&'a str, PersistentVolume, Given<'a>, Given<'a>, &'a [&'a str]);
    let zones = "topology.kubernetes.io/zone in 1,2,3";
    let rows: [Row<'_>; 12] = [
        ("PV-3, PV-12", none(), &[], &[], &[]),
        (
            "PV-7",
            none(),
            &[("a", "1"), ("b", "2"), (ZONE, "1__2__3")],
            &[("a", "1"), ("b", "2"), (ZONE, "1__2__3")],
            &["a in 1", "b in 2", zones],
        ),
        ("PV-8, under the current name", none(), &[(FORMER_ZONE, "1__2__3")], &[(ZONE, "1__2__3")], &[zones]),
        (
            "both names",
            none(),
            &[(FORMER_ZONE, "9"), (ZONE, "1")],
            &[(ZONE, "1")],
            &["topology.kubernetes.io/zone in 1"],
        ),
        (
            "PV-9",
            affinity(&["a", "b", "c"], &[]),
            &[("d", "4"), ("e", "5"), ("f", "6")],
            &[("d", "4"), ("e", "5"), ("f", "6")],
            &["d in 4", "e in 5", "f in 6"],
        ),
        ("PV-10", affinity(&["a"], &[]), &[("a", "1")], &[("a", "1")], &[]),
        ("PV-13, PV-19", none(), &[("a", "1"), ("b", "2")], &[("a", "1"), ("b", "2")], &["a in 1", "b in 2"]),
        (
            "PV-15, each key for itself",
            affinity(&["c"], &[]),
            &[("a", "1"), ("c", "3")],
            &[("a", "1"), ("c", "3")],
            &["a in 1"],
        ),
        ("PV-16", none(), &[(ZONE, "1")], &[(ZONE, "1")], &["topology.kubernetes.io/zone in 1"]),
        ("PV-17, sorted", none(), &[(ZONE, "3__ 1__2__1")], &[(ZONE, "1__2__3")], &[zones]),
        (
            "a region is one value",
            none(),
            &[(REGION, "a__b")],
            &[(REGION, "a__b")],
            &["topology.kubernetes.io/region in a__b"],
        ),
        ("an affinity of old", affinity(&[FORMER_ZONE], &[]), &[(ZONE, "1")], &[(ZONE, "1")], &[]),
    ];
    for (row, volume, cloud, set, requirements) in rows {
        let plan = plan(&volume, labels(cloud)).unwrap();
        assert_eq!(plan.labels, labels(set), "{row}");
        assert_eq!(short(&plan), requirements, "{row}");
        assert_eq!(plan.differing, [""; 0], "{row}");
    }
}

/// PV-6, where upstream overwrites.
#[test]
fn labels_of_the_user_win() {
    let cloud: Given<'_> = &[(REGION, "r"), (ZONE, "a__b")];
    type Row<'a> = (Given<'a>, Given<'a>, &'a [&'a str], &'a [&'a str]);
    let both: &[&str] = &["topology.kubernetes.io/region in r", "topology.kubernetes.io/zone in a,b"];
    let rows: [Row<'_>; 6] = [
        (&[(ZONE, "a__b"), (REGION, "r")], &[], both, &[]),
        (&[(ZONE, "b__a")], &[(REGION, "r")], both, &[]),
        (&[(FORMER_ZONE, "a__b")], cloud, both, &[]),
        (
            &[(ZONE, "c")],
            &[(REGION, "r")],
            &both[..1],
            &["topology.kubernetes.io/zone is \"c\" and not \"a__b\""],
        ),
        (
            &[(FORMER_ZONE, "a")],
            &[(REGION, "r")],
            &both[..1],
            &["topology.kubernetes.io/zone is \"a\" and not \"a__b\""],
        ),
        (
            &[(ZONE, ""), (REGION, "s")],
            &[],
            &[],
            &[
                "topology.kubernetes.io/region is \"s\" and not \"r\"",
                "topology.kubernetes.io/zone is \"\" and not \"a__b\"",
            ],
        ),
    ];
    for (own, set, requirements, differing) in rows {
        let plan = plan(&labelled(own), labels(cloud)).unwrap();
        assert_eq!((plan.labels.clone(), short(&plan)), (labels(set), to_vec(requirements)), "{own:?}");
        assert_eq!(plan.differing, differing, "{own:?}");
    }
}

fn to_vec(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// PV-22.
#[test]
fn a_zone_with_an_empty_part_is_an_error() {
    for zone in ["1____3", "__1", "1__", "", " "] {
        assert!(plan(&labelled(&[]), labels(&[(ZONE, zone)])).is_err(), "{zone:?}");
    }
}

#[test]
fn every_term_gets_every_requirement() {
    let plan = plan(&labelled(&[]), labels(&[("a", "1"), (ZONE, "y__x")])).unwrap();
    let after = |terms: Value| -> Value {
        let before: VolumeNodeAffinity =
            serde_json::from_value(json!({"required": {"nodeSelectorTerms": terms}})).unwrap();
        json!(plan.affinity(Some(before)))["required"]["nodeSelectorTerms"].take()
    };
    let a = json!({"key": "a", "operator": "In", "values": ["1"]});
    let zone = json!({"key": ZONE, "operator": "In", "values": ["x", "y"]});
    let other = |key: &str| json!({"key": key, "operator": "Exists"});
    let alone = json!([{"matchExpressions": [a, zone]}]);
    assert_eq!(json!(plan.affinity(None))["required"]["nodeSelectorTerms"], alone, "PV-13, PV-16");
    assert_eq!(
        json!(plan.affinity(Some(VolumeNodeAffinity::default()))),
        json!({"required": {"nodeSelectorTerms": alone}})
    );
    assert_eq!(after(json!([])), alone);
    assert_eq!(
        after(json!([{"matchExpressions": [other("b")]}, {"matchExpressions": [other("c")]}])),
        json!([{"matchExpressions": [other("b"), a, zone]}, {"matchExpressions": [other("c"), a, zone]}]),
        "PV-9, PV-14, PV-16, PV-17"
    );
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    assert_eq!(
        after(json!([{"matchFields": [field]}, {}])),
        json!([{"matchFields": [field], "matchExpressions": [a, zone]}]),
        "a term without conditions selects no node, and is not made to"
    );
    assert_eq!(after(json!([{}])), Value::Null, "nor is there any other: the affinity stays");
    assert_eq!(Plan::default().affinity(None), None);
}
