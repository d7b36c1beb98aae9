use aws_sdk_elasticloadbalancingv2::types::ProtocolEnum;
use cloudprovider_sdk::proto::ErrorReason;

use super::super::network::Health;
use super::*;

fn group(port: i32, protocol: ProtocolEnum, health_port: &str) -> TargetGroup {
    let health = Health {
        protocol: ProtocolEnum::Tcp,
        port: health_port.to_owned(),
        path: String::new(),
        interval: 30,
        healthy: 3,
        unhealthy: 3,
    };
    TargetGroup { name: String::new(), port, protocol, health }
}

fn told(rules: &Rules) -> Vec<String> {
    let of = |rule: &Rule| {
        let kind = rule.description.trim_start_matches("kubernetes.io/rule/nlb/");
        format!("{} {}-{} {} {kind}", rule.protocol, rule.from, rule.to, rule.range)
    };
    rules.iter().map(of).collect()
}

fn rules(groups: &[TargetGroup], clients: &[&str]) -> Rules {
    let clients: Vec<_> = clients.iter().map(|one| (*one).to_owned()).collect();
    wanted("lb", &groups.iter().collect::<Vec<_>>(), &clients, &["10.0.0.0/18".to_owned()])
}

#[test]
fn health_checks_need_rules_of_their_own_unless_clients_have_them() {
    let tcp = || group(30080, ProtocolEnum::Tcp, TRAFFIC_PORT);
    assert_eq!(told(&rules(&[tcp()], &[EVERYWHERE])), ["tcp 30080-30080 0.0.0.0/0 client=lb"]);
    assert_eq!(
        told(&rules(&[tcp()], &["192.0.2.0/24"])),
        ["tcp 30080-30080 10.0.0.0/18 health=lb", "tcp 30080-30080 192.0.2.0/24 client=lb"]
    );
    assert_eq!(
        told(&rules(&[group(30080, ProtocolEnum::Tcp, "32000")], &[EVERYWHERE])),
        ["tcp 30080-30080 0.0.0.0/0 client=lb", "tcp 32000-32000 10.0.0.0/18 health=lb"]
    );
    assert_eq!(
        told(&rules(&[group(30053, ProtocolEnum::TcpUdp, TRAFFIC_PORT)], &[EVERYWHERE])),
        ["tcp 30053-30053 0.0.0.0/0 client=lb", "udp 30053-30053 0.0.0.0/0 client=lb"]
    );
    assert_eq!(
        told(&rules(&[group(30053, ProtocolEnum::Udp, TRAFFIC_PORT)], &[EVERYWHERE])),
        ["tcp 30053-30053 10.0.0.0/18 health=lb", "udp 30053-30053 0.0.0.0/0 client=lb"]
    );
    // Clients that are the balancer's own subnet: AWS refuses a rule that is twice in a call.
    assert_eq!(told(&rules(&[tcp()], &["10.0.0.0/18"])), ["tcp 30080-30080 10.0.0.0/18 client=lb"]);
}

/// One Service gave its node port up, and another took it before the first was looked at.
#[test]
fn a_node_port_that_changed_hands_is_open_in_the_name_of_its_new_balancer() {
    let of = |name: &str| {
        wanted(name, &[&group(30080, ProtocolEnum::Tcp, TRAFFIC_PORT)], &[EVERYWHERE.to_owned()], &[])
    };
    let there = of("former");
    let new = Claim { takes: true, ..claim("new", of("new")) };
    assert_eq!(new.taken(&there, true), there);
    assert!(new.taken(&there, false).is_empty(), "not on a group that it does not want");
    assert!(new.taken(&of("new"), true).is_empty());
    assert!(claim("new", of("new")).taken(&there, true).is_empty(), "an update takes nothing");
}

fn claim(name: &str, wanted: Rules) -> Claim {
    Claim { name: name.to_owned(), wanted, ..Claim::default() }
}

/// AWS has one rule for a protocol, ports and range, and refuses all of a call in which one is there.
#[test]
fn the_users_own_rule_for_the_size_of_packets_is_enough() {
    let there: Rules = [Rule::of_packets("192.0.2.0/24", "path MTU")].into();
    let mine = rules(&[group(30080, ProtocolEnum::Tcp, TRAFFIC_PORT)], &["192.0.2.0/24"]);
    let (grants, revokes) = claim("lb", mine).difference(&there, true);
    assert_eq!(
        told(&grants),
        ["tcp 30080-30080 10.0.0.0/18 health=lb", "tcp 30080-30080 192.0.2.0/24 client=lb"]
    );
    assert!(revokes.is_empty());
    let (_, revokes) = claim("lb", Rules::new()).difference(&there.union(&grants).cloned().collect(), true);
    assert_eq!(revokes, grants, "the user's stays");
}

#[test]
fn rules_of_others_stay_and_the_shared_one_goes_with_its_last_range() {
    let mine = rules(&[group(30080, ProtocolEnum::Tcp, TRAFFIC_PORT)], &["192.0.2.0/24"]);
    let (grants, revokes) = claim("lb", mine).difference(&Rules::new(), true);
    assert_eq!(
        told(&grants),
        [
            "icmp 3-4 192.0.2.0/24 mtu",
            "tcp 30080-30080 10.0.0.0/18 health=lb",
            "tcp 30080-30080 192.0.2.0/24 client=lb"
        ]
    );
    assert!(revokes.is_empty());
    // Another balancer has the same clients, and somebody has a rule of another kind.
    let mut there = grants;
    let groups = [group(30090, ProtocolEnum::Tcp, TRAFFIC_PORT)];
    there.extend(wanted("other", &[&groups[0]], &["192.0.2.0/24".to_owned()], &[]));
    there.insert(Rule {
        protocol: TCP.to_owned(),
        from: 22,
        to: 22,
        range: EVERYWHERE.to_owned(),
        description: "ssh".to_owned(),
    });
    let (grants, revokes) = claim("lb", Rules::new()).difference(&there, true);
    assert!(grants.is_empty());
    assert_eq!(
        told(&revokes),
        ["tcp 30080-30080 10.0.0.0/18 health=lb", "tcp 30080-30080 192.0.2.0/24 client=lb"]
    );
    there.retain(|rule| !revokes.contains(rule));
    let (_, revokes) = claim("other", Rules::new()).difference(&there, true);
    assert_eq!(told(&revokes), ["icmp 3-4 192.0.2.0/24 mtu", "tcp 30090-30090 192.0.2.0/24 client=other"]);
}

/// With a port of all nodes for health checks, all balancers need one and the same rule.
#[test]
fn a_rule_of_several_balancers_goes_with_the_last_of_them() {
    let of = |name: &str, port| {
        let group = group(port, ProtocolEnum::Tcp, "10256");
        wanted(name, &[&group], &[EVERYWHERE.to_owned()], &["10.0.0.0/18".to_owned()])
    };
    let checked = BTreeSet::from([10256]);
    let (there, _) = claim("first", of("first", 30080)).difference(&Rules::new(), true);
    let second = claim("second", of("second", 30081));
    let (grants, _) = second.difference(&there, true);
    assert_eq!(told(&grants), ["tcp 30081-30081 0.0.0.0/0 client=second"]);
    let mut there: Rules = there.union(&grants).cloned().collect();

    let leaves = Claim {
        checked: checked.clone(),
        checked_by_others: checked.clone(),
        ..claim("first", Rules::new())
    };
    let (_, mut revokes) = leaves.difference(&there, true);
    revokes.retain(|rule| !leaves.is_others(rule));
    assert_eq!(told(&revokes), ["tcp 30080-30080 0.0.0.0/0 client=first"]);
    there.retain(|rule| !revokes.contains(rule));

    let (_, revokes) = Claim { checked, ..claim("second", Rules::new()) }.difference(&there, true);
    assert_eq!(revokes, there, "nothing stays");
}

/// Others may be checked by them, which the claim may not know.
#[test]
fn rules_for_checks_make_no_room() {
    let one = claim("one", Rules::new());
    let rule = |kind: &str| Rule::new(TCP, (30_000, 30_000), "10.0.0.0/24", &format!("{kind}=one"));
    assert_eq!([CLIENT, HEALTH].map(|kind| one.is_idle(&rule(kind))), [true, false]);
}

fn host(groups: &[&str]) -> HashMap<String, Host> {
    let groups = groups.iter().map(|id| (*id).to_owned()).collect();
    [("i-1".to_owned(), Host::running(groups))].into()
}

fn tagged(is_tagged: bool) -> Of {
    let owner = if is_tagged { Owner::Us } else { Owner::Nobody };
    let (rules, peers, named) = (Rules::new(), BTreeMap::new(), BTreeSet::new());
    Of { name: String::new(), owner, is_of_nodes: is_tagged, rules, peers, named }
}

#[test]
fn the_cluster_s_group_of_a_node_has_the_rules_or_its_only_one() {
    let all = [("sg-c", true), ("sg-d", true), ("sg-x", false), ("sg-y", false)];
    let groups = Groups(all.map(|(id, is_tagged)| (id.to_owned(), tagged(is_tagged))).into());
    let chosen = |hosts: HashMap<String, Host>| {
        let (chosen, unclear) = groups.of_nodes(&hosts);
        (chosen.into_iter().collect::<Vec<_>>(), unclear)
    };
    let clear = |ids: &[&str]| {
        let (chosen, unclear) = chosen(host(ids));
        unclear.map(|()| chosen).unwrap()
    };
    assert_eq!(clear(&["sg-x", "sg-c", "sg-y"]), ["sg-c"]);
    assert_eq!(clear(&["sg-x"]), ["sg-x"]);
    assert!(clear(&[]).is_empty());
    for several in [&["sg-c", "sg-d"], &["sg-x", "sg-y"]] {
        let mut hosts = host(several);
        hosts.insert("i-2".to_owned(), Host::running(vec!["sg-x".to_owned()]));
        let (others, unclear) = chosen(hosts);
        assert_eq!(others, ["sg-x"], "the others are served");
        let error = unclear.unwrap_err();
        assert_eq!(error.reason(), ErrorReason::RetryLater, "nothing else is held up");
        assert!(error.to_string().contains("i-1") && error.to_string().contains(several[0]), "{error}");
    }
}

#[test]
fn nodes_let_in_the_clusters_group_of_a_balancer_or_its_first() {
    let all = [("sg-c", true), ("sg-x", false)];
    let groups = Groups(all.map(|(id, is_tagged)| (id.to_owned(), tagged(is_tagged))).into());
    let chosen = |ids: &[&str]| {
        let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
        groups.let_in_by_nodes(&ids).cloned()
    };
    assert_eq!(chosen(&["sg-x", "sg-c"]).as_deref(), Some("sg-c"));
    assert_eq!(chosen(&["sg-x", "sg-y"]).as_deref(), Some("sg-x"));
    assert_eq!(chosen(&[]), None);
}

#[test]
fn a_balancers_own_group_lets_its_clients_in() {
    let told = |protocol: ProtocolEnum, clients: &[&str], dual_stack| {
        let clients: Vec<_> = clients.iter().map(|one| (*one).to_owned()).collect();
        told(&of_clients([(53, protocols(&protocol))].into_iter(), &clients, dual_stack))
    };
    assert_eq!(
        told(ProtocolEnum::TcpUdp, &["192.0.2.0/24"], false),
        ["icmp 3-4 192.0.2.0/24 ", "tcp 53-53 192.0.2.0/24 ", "udp 53-53 192.0.2.0/24 "]
    );
    assert_eq!(
        told(ProtocolEnum::Tls, &[EVERYWHERE], true),
        ["icmp 3-4 0.0.0.0/0 ", "tcp 53-53 0.0.0.0/0 ", "tcp 53-53 ::/0 "]
    );
}

/// A group without the cluster's tag is known by its rules once its nodes are gone.
#[test]
fn rules_are_found_again_without_a_tag_and_without_nodes() {
    let open = rules(&[group(30080, ProtocolEnum::Tcp, TRAFFIC_PORT)], &[EVERYWHERE]);
    let all = [("sg-open", open), ("sg-other", Rules::new())];
    let groups = Groups(all.map(|(id, rules)| (id.to_owned(), Of { rules, ..tagged(false) })).into());
    assert_eq!(groups.open_to("lb").collect::<Vec<_>>(), ["sg-open"]);
    let found = |name: &str| {
        let claim = claim(name, Rules::new());
        let its = groups.0.iter().filter(|(id, group)| claim.may_close(id, group));
        its.map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found("lb"), ["sg-open"]);
    assert!(found("another").is_empty());
}

/// In the network may be nodes of another cluster, whose balancers are checked on the same port.
#[test]
fn checks_on_a_group_of_another_cluster_are_its_own() {
    let checks: Rules = [Rule::new(TCP, (10256, 10256), "10.0.0.0/18", &format!("{HEALTH}=gone"))].into();
    let leaves = Claim { checked: [10256].into(), ..claim("lb", Rules::new()) };
    let may_close = |owner| leaves.may_close("sg", &Of { owner, rules: checks.clone(), ..tagged(false) });
    assert_eq!([Owner::Nobody, Owner::AnotherCluster].map(may_close), [true, false]);
}

/// AWS deletes a group only once no rule of another one names it.
#[test]
fn who_names_a_balancers_own_group_is_told() {
    let of = |name: &str, is_tagged, named: &[&str]| {
        let named = named.iter().map(|id| (*id).to_owned()).collect();
        Of { name: name.to_owned(), named, ..tagged(is_tagged) }
    };
    let peers = ["sg-common", "sg-own"].map(|id| (id.to_owned(), ALL_IN.to_owned())).into();
    let groups = Groups(
        [
            ("sg-own".to_owned(), of("own", true, &["sg-own"])),
            ("sg-free".to_owned(), of("free", true, &[])),
            ("sg-user".to_owned(), of("", false, &["sg-own"])),
            ("sg-common".to_owned(), of("common", true, &[])),
            ("sg-nodes".to_owned(), Of { peers, ..tagged(true) }),
        ]
        .into(),
    );
    let (id, naming) = groups.naming("own").unwrap();
    assert_eq!((&**id, naming), ("sg-own", vec![&"sg-user".to_owned()]));
    assert!(groups.naming("free").is_none() && groups.naming("missing").is_none());
    assert!(groups.naming("common").is_none(), "that rule is nobody's to remove");
}

/// Others may be checked by it.
#[test]
fn for_an_update_no_rule_for_checks_makes_room() {
    let of = |clients: &str| rules(&[group(30080, ProtocolEnum::Tcp, TRAFFIC_PORT)], &[clients]);
    let update = claim("lb", of("198.51.100.0/24"));
    let makes_room =
        |claim: &Claim| of("192.0.2.0/24").iter().map(|rule| claim.may_make_room(rule)).collect::<Vec<_>>();
    assert_eq!(makes_room(&update), [false, true], "checks are by the first");
    assert_eq!(makes_room(&Claim { takes: true, ..update }), [true, true]);
}

/// Each Ensure would look for them.
#[test]
fn who_else_is_checked_matters_only_where_a_balancer_is_no_longer_checked() {
    let of = |port: &str| rules(&[group(30080, ProtocolEnum::Tcp, port)], &[EVERYWHERE]);
    let others = || BTreeSet::from([10256]);
    let [before, wanted] = [of("10256"), of("32000")];
    let shared = before.iter().find(|rule| rule.is_check()).unwrap();
    let moves = Claim { checked: [10256].into(), checked_by_others: others(), ..claim("lb", wanted) };
    assert!(moves.may_end(shared) && moves.needs_checks(&others()));
    let moved = Claim { checked: [32000].into(), ..moves };
    assert!(!moved.may_end(shared) && !moved.needs_checks(&moved.checked));
    assert!(Claim { checked_by_others: BTreeSet::new(), ..moved }.may_end(shared), "the last one");
    let elsewhere = Rule { range: "10.1.0.0/18".to_owned(), ..shared.clone() };
    let stays = Claim { checked: others(), checked_by_others: others(), ..claim("lb", before.clone()) };
    assert!(!stays.may_end(&elsewhere), "both are still checked there");
}
