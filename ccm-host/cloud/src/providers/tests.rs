use super::*;
use crate::fake::FakeProvider;
use ccm_kube::{
    KubeMetrics,
    fixtures::{node, service},
};

fn provider(name: &str, prefixes: &[&str]) -> Arc<FakeProvider> {
    let fake = FakeProvider::new(name);
    let prefixes = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
    fake.change_info(|info| info.provider_id_prefixes = prefixes);
    fake
}

fn registry(providers: &[&Arc<FakeProvider>]) -> Providers {
    Providers::new(providers.iter().map(|&provider| Arc::clone(provider) as Arc<dyn Provider>).collect())
}

fn word(owner: &NodeOwner) -> String {
    match owner {
        NodeOwner::Provider(provider) => provider.name().to_owned(),
        NodeOwner::Candidates(all) => {
            all.iter().map(|provider| provider.name()).collect::<Vec<_>>().join("|")
        }
        NodeOwner::Undecided => "undecided".to_owned(),
        NodeOwner::Nobody => "nobody".to_owned(),
    }
}

fn pinned(registry: Providers, prefixes: &[(&str, &str)]) -> Providers {
    let prefixes = prefixes.iter().map(|&(name, prefix)| (prefix.to_owned(), name.to_owned())).collect();
    registry.divided(Division { prefixes, ..Division::default() })
}

/// D35, M3: a prefix that another provider's equals or begins is nobody's, until the command line says whose it is.
#[test]
fn nodes_go_to_the_only_provider_that_claims_their_id() {
    let (a, b) = (provider("a", &["cloud://"]), provider("b", &["cloud://b/", "other://"]));
    let both = registry(&[&a, &b]);
    let one = registry(&[&a]);
    let nested = pinned(registry(&[&a, &b]), &[("a", "cloud://"), ("b", "cloud://b/")]);
    let held = pinned(registry(&[&a, &b]), &[("a", "cloud://")]);
    let rows = [
        (&both, Some("cloud://x"), "a"),
        (&both, Some("cloud://b/x"), "undecided"),
        (&both, Some("other://x"), "b"),
        (&both, Some("foreign://x"), "nobody"),
        (&both, None, "a|b"),
        (&one, None, "a"),
        (&one, Some("foreign://x"), "nobody"),
        (&nested, Some("cloud://x"), "a"),
        (&nested, Some("cloud://b/x"), "b"),
        (&nested, Some("other://x"), "b"),
        (&held, Some("cloud://b/x"), "a"),
        (&held, Some("other://x"), "b"),
    ];
    for (registry, id, want) in rows {
        let node = match id {
            Some(id) => node("n").with_provider_id(id),
            None => node("n"),
        };
        assert_eq!(word(&registry.for_node(&node)), want, "{id:?}");
    }
    let contested =
        ContestedPrefix { prefix: "cloud://b/".to_owned(), providers: vec!["a".to_owned(), "b".to_owned()] };
    assert_eq!(both.contest(&node("n").with_provider_id("cloud://b/x")), Some(contested.clone()));
    assert_eq!(both.contest(&node("n").with_provider_id("cloud://x")), None);
    assert_eq!(both.contested_prefixes(), [contested]);
    for settled in [&one, &nested, &held] {
        assert_eq!(settled.contested_prefixes(), []);
        assert_eq!(settled.contest(&node("n").with_provider_id("cloud://b/x")), None);
    }
}

/// M3: a provider that is taken over, or misconfigured, takes nobody's nodes.
#[test]
fn a_longer_prefix_takes_no_nodes() {
    let (a, b) = (provider("aws", &["aws:///"]), provider("edge", &["edge://"]));
    let (both, of_zone) = (registry(&[&a, &b]), node("n").with_provider_id("aws:///us-east-1a/i-1"));
    assert_eq!(word(&both.for_node(&of_zone)), "aws");
    for claimed in ["aws:///us-east-1a/i-", "aws:///"] {
        b.change_info(|info| info.provider_id_prefixes = vec![claimed.to_owned()]);
        assert_eq!(word(&both.for_node(&of_zone)), "undecided");
        let told = both.contested_prefixes().into_iter().map(|one| one.to_string()).collect::<Vec<_>>();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("aws and edge") && told[0].contains(&format!("{claimed:?}")), "{told:?}");
    }
    b.change_info(|info| info.instances = false);
    assert_eq!(word(&both.for_node(&of_zone)), "aws", "it has no nodes at all");
}

/// F17.
#[test]
fn nobody_is_certain_before_all_have_introduced_themselves() {
    let (a, b) = (provider("a", &["cloud://"]), provider("b", &["cloud://b/"]));
    b.forget_info();
    let both = registry(&[&a, &b]);
    for id in ["cloud://1", "cloud://b/1", "foreign://1"] {
        assert_eq!(word(&both.for_node(&node("n").with_provider_id(id))), "undecided", "{id}");
    }
    assert_eq!(word(&both.for_node(&node("n"))), "undecided");
    let nested = pinned(both, &[("a", "cloud://"), ("b", "cloud://b/")]);
    assert_eq!(
        word(&nested.for_node(&node("n").with_provider_id("cloud://1"))),
        "a",
        "the command line knows"
    );
    assert_eq!(word(&nested.for_node(&node("n").with_provider_id("cloud://b/1"))), "undecided");
}

#[test]
fn services_go_by_class() {
    let (a, b) = (provider("a", &["a://"]), provider("b", &["b://"]));
    b.change_info(|info| {
        info.default_load_balancer_class = false;
        info.load_balancer_classes = vec!["example/b".to_owned()];
    });
    let both = registry(&[&b, &a]);
    let name = |class| of(&both, class);
    assert_eq!(name(None), "a");
    assert_eq!(name(Some("example/b")), "b");
    assert_eq!(name(Some("example/c")), "nobody");
    a.change_info(|info| info.load_balancers = false);
    assert_eq!(name(None), "nobody");
}

fn of(registry: &Providers, class: Option<&str>) -> String {
    owner(registry.for_class(class))
}

fn owner(owner: ServiceOwner) -> String {
    match owner {
        ServiceOwner::Provider(provider) => provider.name().to_owned(),
        ServiceOwner::Undecided => "undecided".to_owned(),
        ServiceOwner::Misnamed(why) => why,
        ServiceOwner::Nobody => "nobody".to_owned(),
    }
}

/// S1: a later provider on the command line gets nothing that an earlier one may own.
#[test]
fn services_are_undecided_while_an_earlier_provider_is_unknown() {
    let (a, b) = (provider("a", &["a://"]), provider("b", &["b://"]));
    b.change_info(|info| info.load_balancer_classes = vec!["example/b".to_owned()]);
    let both = registry(&[&a, &b]);
    a.forget_info();
    assert_eq!([of(&both, None), of(&both, Some("example/b"))], ["undecided"; 2]);
    a.change_info(|info| info.load_balancers = true);
    assert_eq!(
        [of(&both, None), of(&both, Some("example/b"))],
        ["b"; 2],
        "the earlier one looks after neither"
    );
}

fn divided(registry: Providers, nodes: &[(&str, &str)], services: Option<&str>) -> Providers {
    let nodes = nodes.iter().map(|&(name, selector)| (name.to_owned(), selector.parse().unwrap())).collect();
    registry.divided(Division { nodes, services: services.map(str::to_owned), ..Division::default() })
}

#[test]
fn nodes_without_id_go_by_their_labels() {
    let (a, b, c) = (provider("a", &["a://"]), provider("b", &["b://"]), provider("c", &["c://"]));
    let all = || registry(&[&a, &b, &c]);
    let (one, two) = (vec![("b", "cloud=b")], vec![("b", "cloud=b"), ("c", "cloud")]);
    let rows = [
        (&one, None, None, "a|c"),
        (&one, Some("b"), None, "b"),
        (&one, Some("x"), None, "a|c"),
        (&two, Some("b"), None, "b|c"),
        (&two, Some("c"), None, "c"),
        (&two, None, None, "a"),
        (&two, Some("b"), Some("a://1"), "a"),
    ];
    for (selectors, label, id, want) in rows {
        let mut node = node("n");
        if let Some(label) = label {
            node = node.with_label("cloud", label);
        }
        if let Some(id) = id {
            node = node.with_provider_id(id);
        }
        let all = divided(all(), selectors, None);
        assert_eq!(word(&all.for_node(&node)), want, "{selectors:?} {label:?} {id:?}");
        assert!(all.keep_of_nodes().labels.contains("cloud"));
    }
    // A selector makes a node certain, whoever else is away; without one, each may have it.
    c.forget_info();
    let all = divided(all(), &one, None);
    assert_eq!(word(&all.for_node(&node("n").with_label("cloud", "b"))), "b");
    assert_eq!(word(&all.for_node(&node("n"))), "undecided");
}

#[test]
fn balancers_get_the_nodes_of_their_own_provider() {
    let (a, b) = (provider("a", &["a://"]), provider("b", &["b://"]));
    let id = |id: &str| node("n").with_provider_id(id);
    let rows = [(id("a://1"), true), (id("b://1"), false), (id("foreign://1"), false), (node("n"), false)];
    for (node, want) in rows {
        assert_eq!(registry(&[&a, &b]).may_back(a.as_ref(), &node), want, "{node:?}");
        assert!(registry(&[&a]).may_back(a.as_ref(), &node), "as upstream: {node:?}");
    }
    let c = provider("c", &["a://c/", "c://"]);
    let all = registry(&[&a, &b, &c]);
    assert!(all.may_back(a.as_ref(), &id("a://1")));
    assert!(
        all.may_back(a.as_ref(), &id("a://c/1")) && all.may_back(c.as_ref(), &id("a://c/1")),
        "contested: what serves goes on"
    );
    c.forget_info();
    let rows = [(id("a://1"), true), (id("a://c/1"), true), (id("b://1"), false), (node("n"), false)];
    for (node, want) in rows {
        assert_eq!(all.may_back(a.as_ref(), &node), want, "c is away: {node:?}");
    }
    let pinned = Division { prefixes: [("a://c/".to_owned(), "c".to_owned())].into(), ..Division::default() };
    assert!(!all.divided(pinned).may_back(a.as_ref(), &id("a://c/1")));
    a.change_info(|info| info.instances = false);
    assert!(registry(&[&a, &b]).may_back(a.as_ref(), &id("b://1")), "it only makes balancers");
}

#[test]
fn a_provider_whose_ids_are_all_given_to_another_has_no_nodes_and_balancers_for_all() {
    let (a, b) = (provider("a", &["a://"]), provider("b", &["a://"]));
    let all = || registry(&[&a, &b]);
    assert_eq!(word(&all().for_node(&node("n"))), "a|b");
    let all = pinned(all(), &[("a", "a://")]);
    assert_eq!(word(&all.for_node(&node("n"))), "a");
    for node in [node("n"), node("n").with_provider_id("a://1"), node("n").with_provider_id("foreign://1")] {
        assert!(all.may_back(b.as_ref(), &node), "{node:?}");
    }
    assert!(!all.may_back(a.as_ref(), &node("n").with_provider_id("foreign://1")));
    b.change_info(|info| info.provider_id_prefixes = vec!["a://".to_owned(), "b://".to_owned()]);
    assert_eq!(word(&all.for_node(&node("n"))), "a|b");
    assert!(!all.may_back(b.as_ref(), &node("n").with_provider_id("a://1")));
    b.forget_info();
    assert_eq!(word(&all.for_node(&node("n"))), "undecided", "it may claim others when it is back");
}

#[test]
fn services_go_to_whom_they_name() {
    let (a, b, c) = (provider("a", &["a://"]), provider("b", &["b://"]), provider("c", &["c://"]));
    b.change_info(|info| {
        info.default_load_balancer_class = false;
        info.load_balancer_classes = vec!["example/b".to_owned()];
    });
    c.change_info(|info| info.load_balancers = false);
    let all = registry(&[&a, &b, &c]);
    let of = |name: &str, class: Option<&str>| {
        let named = service("web").load_balancer().with_annotation(PROVIDER_ANNOTATION, name);
        owner(all.for_service(&class.map_or(named.clone(), |class| named.with_class(class))))
    };
    assert_eq!([of("a", None), of("b", None), of("b", Some("example/b"))], ["a", "b", "b"]);
    assert_eq!(of("b", Some("foreign/x")), "nobody", "the class is another implementation's");
    let refusals = [
        (of("x", None), "\"x\" is not a provider of this host: remove it, or name one of: a, b"),
        (of("c", None), "\"c\" makes no load balancers: remove it, or name one of: a, b"),
        (of("a", Some("example/b")), "\"a\" does not serve load balancer class \"example/b\""),
    ];
    for (said, want) in refusals {
        assert!(said.contains(want), "{said}");
    }
    let long = of(&"x".repeat(250 << 10), None);
    assert!(long.len() < 1024 && long.ends_with("name one of: a, b"), "M6: {} bytes", long.len());
    b.forget_info();
    assert_eq!([of("a", None), of("b", None)], ["a", "undecided"]);
}

/// S1: nobody else gets what belongs to the provider of all others, and it waits for nobody.
#[test]
fn services_without_a_class_go_to_the_one_for_all_others() {
    let (a, b) = (provider("a", &["a://"]), provider("b", &["b://"]));
    let both = divided(registry(&[&a, &b]), &[], Some("b"));
    b.change_info(|info| info.default_load_balancer_class = false);
    assert_eq!(of(&both, None), "b");
    assert!(both.contested_classes(b.as_ref()).is_empty());
    a.forget_info();
    assert_eq!(of(&both, None), "b");
    b.forget_info();
    assert_eq!(of(&both, None), "undecided");
}

/// S1: overlapping claims are reported, each class with its owner.
#[test]
fn overlapping_claims_are_found() {
    let (a, b, c) = (provider("a", &["a://"]), provider("b", &["b://"]), provider("c", &["c://"]));
    b.change_info(|info| info.load_balancer_classes = vec!["example/b".to_owned()]);
    c.change_info(|info| {
        info.default_load_balancer_class = false;
        info.load_balancer_classes = vec!["example/b".to_owned(), "example/c".to_owned()];
    });
    let all = registry(&[&a, &b, &c]);
    let contested = |class: Option<&str>, owner: &str, other: &str| ContestedClass {
        class: class.map(str::to_owned),
        owner: owner.to_owned(),
        others: vec![other.to_owned()],
    };
    assert_eq!(all.contested_classes(a.as_ref()), [contested(None, "a", "b")]);
    let of_b = [contested(Some("example/b"), "b", "c"), contested(None, "a", "b")];
    assert_eq!(all.contested_classes(b.as_ref()), of_b);
    assert_eq!(all.contested_classes(c.as_ref()), [contested(Some("example/b"), "b", "c")]);
}

#[test]
fn what_each_handshake_asks_for_reaches_both_caches() {
    let metrics = KubeMetrics::default();
    let nodes = Cache::new(Keep::default(), &metrics.cache);
    let services = Cache::new(Keep::default(), &metrics.cache);
    let provider = FakeProvider::new("cloud");
    provider.forget_info();
    let providers = Providers::new(vec![Arc::clone(&provider) as Arc<dyn Provider>]);
    providers.hand_on(&nodes, &services);
    assert_eq!(*nodes.keep(), Keep::default(), "nobody has said anything");

    provider.change_info(|info| info.keep_of_nodes.labels = KeySet::keys(["pool"]));
    providers.hand_on(&nodes, &services);
    assert!(nodes.keep().labels.contains("pool"));
    provider.change_info(|info| info.keep_of_services.annotations = KeySet::patterns(&["lb/"]));
    providers.hand_on(&nodes, &services);
    assert!(services.keep().annotations.contains("lb/internal") && nodes.keep().labels.contains("pool"));
}
