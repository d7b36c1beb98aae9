//! Random histories: in the end the routes are as after a fresh start.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use ccm_cloud::{
    ErrorReason as R, ProviderStatus,
    fake::{error, method},
};

/// A step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// Adds a node, or changes its pod CIDR; 0 means none.
    Node(u8, u8),
    /// Removes a node.
    NodeGoes(u8),
    /// Someone else points a destination elsewhere.
    Repoint(u8, u8),
    /// Someone else makes a blackhole.
    Blackhole(u8),
    /// Someone else removes a route.
    Drop(u8),
    /// The next calls fail.
    Fail(u8),
    /// The provider is unhealthy for a while.
    Freeze(bool),
    /// The next list is incomplete.
    Half(bool),
    /// Another process takes over.
    Restart,
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..4u8, 0..5u8).prop_map(|(node, cidr)| Step::Node(node, cidr)),
        2 => (0..4u8).prop_map(Step::NodeGoes),
        2 => (1..5u8, 0..6u8).prop_map(|(cidr, node)| Step::Repoint(cidr, node)),
        1 => (1..7u8).prop_map(Step::Blackhole),
        2 => (1..5u8).prop_map(Step::Drop),
        2 => (0..3u8).prop_map(Step::Fail),
        1 => any::<bool>().prop_map(Step::Freeze),
        1 => any::<bool>().prop_map(Step::Half),
        1 => Just(Step::Restart),
        4 => (0..4u8).prop_map(Step::Wait),
    ]
}

fn cidr(index: u8) -> String {
    format!("10.120.{index}.0/24")
}

fn name(index: u8) -> String {
    format!("n{index}")
}

/// A node whose number determines its age, so that the holders are known.
fn numbered(index: u8, wants: u8) -> Node {
    let cidr = cidr(wants);
    let cidrs: Vec<&str> = if wants == 0 { vec![] } else { vec![&cidr] };
    let made = jiff::Timestamp::from_second(i64::from(index)).unwrap();
    wanting(&name(index), &cidrs).created_at(made)
}

async fn play(steps: Vec<Step>) {
    let fake = FakeProvider::new("fake");
    let server = NodeServer::new([]);
    let mut wants: BTreeMap<u8, u8> = BTreeMap::new();
    let start = async || Scene::at(server.clone(), Arc::clone(&fake), vec![]).await;
    let mut scene = start().await;
    for step in steps {
        match step {
            Step::Node(node, cidr) => {
                wants.insert(node, cidr);
                server.put(&numbered(node, cidr));
            }
            Step::NodeGoes(node) => {
                wants.remove(&node);
                server.delete(&name(node));
            }
            Step::Repoint(destination, node) => {
                let wanted = net(&cidr(destination));
                let known = fake.routes().into_iter().find(|route| route.destination == wanted);
                let id = known.map_or_else(|| format!("outside-{destination}"), |route| route.id);
                fake.set_route(route(&id, &cidr(destination), &name(node)));
            }
            Step::Blackhole(destination) => {
                fake.set_route(blackhole(&format!("hole-{destination}"), &cidr(destination), ""));
            }
            Step::Drop(destination) => {
                let wanted = net(&cidr(destination));
                for route in fake.routes().into_iter().filter(|route| route.destination == wanted) {
                    fake.drop_route(&route.id);
                }
            }
            Step::Fail(which) => {
                let methods = [method::ENSURE_ROUTE, method::DELETE_ROUTE, method::LIST_ROUTES];
                let method = methods[usize::from(which)];
                fake.fail_next(method, error(method, Some(R::InternalError)));
            }
            Step::Freeze(frozen) => fake.set_status(match frozen {
                true => ProviderStatus::Frozen("sick".into()),
                false => ProviderStatus::Serving,
            }),
            Step::Half(half) => {
                let part = ("eu-1".to_owned(), error(method::LIST_ROUTES, Some(R::LocationUnreachable)));
                fake.set_unreachable(if half { vec![part] } else { vec![] });
            }
            Step::Restart => {
                scene.stop().await;
                scene = start().await;
            }
            Step::Wait(much) => sleep(Duration::from_secs([0, 1, 20, 400][usize::from(much)])).await,
        }
    }
    fake.set_status(ProviderStatus::Serving);
    fake.set_unreachable(vec![]);
    sleep(PERIOD * 6).await;

    // The lowest number that wants a destination is the oldest node, and holds it.
    let mut held: BTreeMap<u8, u8> = BTreeMap::new();
    for (node, wanted) in wants.iter().filter(|(_, wanted)| **wanted != 0) {
        held.entry(*wanted).or_insert(*node);
    }
    let want: Vec<String> =
        held.iter().map(|(wanted, node)| format!("{} {}", cidr(*wanted), name(*node))).collect();
    // A second correct route does no harm, and stays.
    let mut routes = scene.routes();
    routes.dedup();
    assert_eq!(routes, want);
    for (node, wanted) in wants.iter().filter(|(_, wanted)| **wanted != 0) {
        let holds = held.get(wanted) == Some(node);
        let condition = if holds { "False RouteCreated" } else { "True NoRouteCreated" };
        assert_eq!(scene.condition(&name(*node)), condition, "{}", name(*node));
    }
    fake.take_calls();
    server.take_calls();
    sleep(PERIOD * 3).await;
    assert!(scene.calls().iter().all(|call| call == "list"), "and nothing is left to do");
    assert_eq!(server.take_lines(), [""; 0]);
    scene.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_ends_as_a_fresh_start_would(steps in proptest::collection::vec(step(), 0..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(steps));
    }
}
