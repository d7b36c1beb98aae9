use super::super::*;

#[test]
fn an_affinity_is_only_ever_added() {
    let before = PersistentVolume { uid: "u".into(), ..PersistentVolume::default() };
    let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let affinity = VolumeNodeAffinity::default();
    let body = |before: &PersistentVolume| {
        let patch = volume_topology(before, &labels, Some(&affinity)).unwrap();
        assert_eq!(patch.target, Target::Main);
        let Body::Json(body) = patch.body else { panic!("{patch:?}") };
        body
    };
    let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
    let labelling = [
        json!({"op": "test", "path": "/metadata/labels", "value": null}),
        json!({"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}),
    ];
    let [none, add] = labelling;
    let binding = [
        json!({"op": "test", "path": "/spec/nodeAffinity", "value": null}),
        json!({"op": "add", "path": "/spec/nodeAffinity", "value": {}}),
    ];
    let [unset, set] = binding;
    assert_eq!(body(&before), json!([uid, none, add, unset, set]));
    let bound = PersistentVolume { affinity_keys: Some(Vec::new()), ..before };
    assert_eq!(body(&bound), json!([uid, none, add]));
    let labelled = PersistentVolume { labels: [("a", "1")].into_iter().collect(), ..bound };
    assert_eq!(volume_topology(&labelled, &labels, Some(&affinity)), None);
}

#[test]
fn a_decision_is_for_one_version_of_one_request() {
    let open = CertificateRequest {
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        ..CertificateRequest::default()
    };
    for (decision, type_) in [(Decision::Approved, "Approved"), (Decision::Denied, "Denied")] {
        let patch = certificate_decision(&open, decision, "R", "m").unwrap();
        let condition = json!([{"type": type_, "status": "True", "reason": "R", "message": "m"}]);
        let body = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "test", "path": "/status/conditions", "value": null},
            {"op": "add", "path": "/status/conditions", "value": condition},
        ]);
        assert_eq!((patch.target, patch.body), (Target::Approval, Body::Json(body)));
    }
    for taken in [
        CertificateRequest { is_decided: true, ..open.clone() },
        CertificateRequest { is_issued: true, ..open.clone() },
        CertificateRequest { has_conditions: true, ..open },
    ] {
        assert_eq!(certificate_decision(&taken, Decision::Approved, "R", "m"), None, "{taken:?}");
    }
}
