use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::cloud::Settings;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

fn cloud() -> State {
    State::new(Settings::default())
}

#[test]
fn machines_get_ids_names_zones_in_turn_and_addresses_of_their_own() {
    let mut cloud = cloud();
    let made = cloud.create_instances(&NewInstances::many(4), at(0)).unwrap();
    let seen: Vec<_> =
        made.iter().map(|machine| (machine.name.as_str(), machine.provider_id.as_str())).collect();
    assert_eq!(
        seen,
        [
            ("node-0", "mock://mock-1a/i-00000001"),
            ("node-1", "mock://mock-1b/i-00000002"),
            ("node-2", "mock://mock-1c/i-00000003"),
            ("node-3", "mock://mock-1a/i-00000004"),
        ]
    );
    let distinct: BTreeSet<_> = made.iter().flat_map(|machine| machine.addresses.iter().cloned()).collect();
    assert_eq!(distinct.len(), 16);
}

#[test]
fn wishes_that_make_no_sense_are_refused_with_the_value() {
    let cases = [
        (NewInstances { count: Some(0), ..NewInstances::default() }, "count 0"),
        (NewInstances { count: Some(2), ..NewInstances::named("a") }, "excludes count"),
        (NewInstances { name_pattern: Some("x".into()), ..NewInstances::many(2) }, "needs a {}"),
        (NewInstances { addresses: Some(vec![]), ..NewInstances::many(2) }, "one by one"),
        (NewInstances::named(""), "1 to 253 bytes"),
    ];
    for (wish, wanted) in cases {
        let error = cloud().create_instances(&wish, at(0)).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_name_is_taken_unless_a_second_one_is_wished_for() {
    let mut cloud = cloud();
    cloud.create_instances(&NewInstances::named("a"), at(0)).unwrap();
    let again = cloud.create_instances(&NewInstances::named("a"), at(0));
    assert_eq!(again.unwrap_err().to_string(), "instance a exists already");
    let twin = NewInstances { allow_duplicate_name: true, ..NewInstances::named("a") };
    assert_eq!(cloud.create_instances(&twin, at(0)).unwrap().len(), 1);
    assert_eq!(cloud.instances().count(), 2);
}

#[test]
fn states_pass_by_themselves_when_they_are_due_and_are_journalled() {
    let mut cloud = cloud();
    let wish = NewInstances { boot_ms: Some(1000), ..NewInstances::named("a") };
    cloud.create_instances(&wish, at(0)).unwrap();
    let state = |cloud: &State| cloud.instance("a").map(|machine| machine.state);
    cloud.tick(at(999));
    assert_eq!(state(&cloud), Some(InstanceState::Pending));
    assert_eq!(cloud.next_due(), Some(at(1000)));
    cloud.tick(at(1000));
    assert_eq!(state(&cloud), Some(InstanceState::Running));
    cloud.set_running("a", false).unwrap();
    assert_eq!(state(&cloud), Some(InstanceState::Stopped));
    cloud.set_running("a", true).unwrap();
    cloud.terminate_instance("a", None, at(2000)).unwrap();
    assert_eq!(state(&cloud), Some(InstanceState::Terminating));
    cloud.tick(at(4000));
    assert_eq!(state(&cloud), None);
    assert_eq!(cloud.next_due(), None);
    assert_eq!(cloud.journal.head(), 6);
}

#[test]
fn a_lingering_of_nothing_is_gone_at_once() {
    let mut cloud = cloud();
    cloud.create_instances(&NewInstances::named("a"), at(0)).unwrap();
    cloud.terminate_instance("a", Some(Duration::ZERO), at(1)).unwrap();
    assert_eq!(cloud.instance("a"), None);
    assert!(matches!(cloud.delete_instance("a"), Err(CloudError::NotFound(_))));
}

#[test]
fn a_patch_changes_what_it_names_and_never_the_provider_id() {
    let mut cloud = cloud();
    let before = cloud.create_instances(&NewInstances::named("a"), at(0)).unwrap().remove(0);
    let after = cloud.patch_instance("a", &json!({"zone": "elsewhere", "labels": {"k": "v"}})).unwrap();
    assert_eq!(after.provider_id, before.provider_id);
    assert_eq!((after.zone.as_str(), &after.addresses), ("elsewhere", &before.addresses));
    let after = cloud.patch_instance("a", &json!({"labels": {"k": null, "users": null}})).unwrap();
    assert!(after.labels.is_empty());
    for (patch, wanted) in [
        (
            json!({"id": "i-9"}),
            "\"id\" cannot be patched; use addresses, annotations, cluster_uid, instance_type, labels, ",
        ),
        (json!({"zone": 1}), "the patch does not fit: invalid type: integer `1`"),
        (json!([]), "a patch is a JSON object"),
    ] {
        let refused = cloud.patch_instance("a", &patch).unwrap_err().to_string();
        assert!(refused.starts_with(wanted), "{refused}");
    }
}

#[test]
fn a_restored_cloud_finds_everything_again() {
    let mut cloud = cloud();
    let wish = NewInstances { boot_ms: Some(50), ..NewInstances::named("a") };
    let made = cloud.create_instances(&wish, at(0)).unwrap().remove(0);
    let text = serde_json::to_string(&cloud).unwrap();
    let mut back = serde_json::from_str::<State>(&text).unwrap().restored(Settings::default());
    assert_eq!(back.instance(&made.provider_id), Some(&made));
    assert_eq!(back.next_due(), made.due);
    let next = back.create_instances(&NewInstances::named("b"), at(1)).unwrap().remove(0);
    assert_eq!(next.id, "i-00000002", "ids go on where they stopped");
}
