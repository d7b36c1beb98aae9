use super::*;
use crate::manager::flags::{Request, parse};

fn names(list: &str) -> Vec<&'static str> {
    let items: Vec<String> = list.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect();
    enabled(&items).unwrap().into_iter().map(|controller| controller.short_name).collect()
}

/// manager.md 2.2.
#[test]
fn first_item_that_names_a_controller_wins() {
    let rows: [(&str, &[&str]); 17] = [
        ("*", &["cloud-node", "cloud-node-lifecycle", "service", "route"]),
        ("*,-service", &["cloud-node", "cloud-node-lifecycle", "route"]),
        ("-service,*", &["cloud-node", "cloud-node-lifecycle", "route"]),
        ("*,-service,service", &["cloud-node", "cloud-node-lifecycle", "route"]),
        ("*,service,-service", &["cloud-node", "cloud-node-lifecycle", "service", "route"]),
        ("*,-service-lb-controller", &["cloud-node", "cloud-node-lifecycle", "route"]),
        ("*,-route,-service-controller", &["cloud-node", "cloud-node-lifecycle"]),
        ("*,-node-route-controller", &["cloud-node", "cloud-node-lifecycle", "service"]),
        ("*,-node-ipam-controller", &["cloud-node", "cloud-node-lifecycle", "service", "route"]),
        ("nodeipam", &["nodeipam"]),
        ("-service,service-lb-controller", &[]),
        ("service-controller,route-controller", &["service", "route"]),
        ("cloud-node-controller,cloud-node", &["cloud-node"]),
        ("cloud-node-lifecycle", &["cloud-node-lifecycle"]),
        ("cloud-node,-service", &["cloud-node"]),
        ("-service", &[]),
        ("", &[]),
    ];
    for (list, expected) in rows {
        assert_eq!(names(list), expected, "{list:?}");
    }
}

#[test]
fn a_controller_that_is_off_by_default_runs_only_when_named() {
    assert_eq!(names("*,nodeipam"), ["cloud-node", "cloud-node-lifecycle", "service", "nodeipam", "route"]);
    assert_eq!(names("*,-nodeipam,nodeipam"), ["cloud-node", "cloud-node-lifecycle", "service", "route"]);
}

#[test]
fn unknown_names_are_all_reported() {
    let list = ["*", "-tagging", "service", "", "nodes"].map(str::to_owned);
    assert_eq!(enabled(&list), Err(vec!["-tagging".to_owned(), String::new(), "nodes".to_owned()]));
}

#[test]
fn webhooks_are_those_of_controllers_that_run() {
    let served = |flags: &[&str]| -> Vec<&str> {
        let words = [&["--provider=mock=/run/mock.sock"], flags].concat();
        let Ok(Request::Run(settings)) = parse(words) else { panic!("{flags:?}") };
        settings.admitting.iter().map(|controller| controller.short_name).collect()
    };
    let (on, ours) = ("--controllers=*,persistent-volume-label", "persistent-volume-label");
    let rows: [(&[&str], &[&str]); 7] = [
        (&[on], &[]),
        (&[on, "--webhooks=persistent-volume-label"], &[ours]),
        (&[on, "--webhooks=persistent-volume-label-controller"], &[ours]),
        (&[on, "--webhooks=*"], &[ours]),
        (&[on, "--webhooks=-persistent-volume-label,*"], &[]),
        (&[on, "--webhooks=*", "--webhook-secure-port=0"], &[]),
        (&["--webhooks=*"], &[]),
    ];
    for (flags, want) in rows {
        assert_eq!(served(flags), want, "{flags:?}");
    }
}
