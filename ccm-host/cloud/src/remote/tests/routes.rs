//! Routes over a socket.

use std::sync::atomic::{AtomicUsize, Ordering};

use cloudprovider_proto::v1alpha1 as pb;
use futures::future::join_all;
use ipnet::IpNet;

use super::*;
use crate::{RouteState, RouteTarget};

fn net(i: usize) -> IpNet {
    format!("10.{}.{}.0/24", 100 + i / 256, i % 256).parse().unwrap()
}

fn wish(i: usize) -> EnsureRoute {
    let name = format!("node-{i}");
    EnsureRoute {
        destination: net(i),
        node: Arc::new(node(&name).with_provider_id(&format!("test://{name}"))),
    }
}

fn listed(id: &str, cidr: &str) -> pb::Route {
    pb::Route {
        id: id.into(),
        destination_cidr: cidr.into(),
        target: Some(pb::NodeRef { name: "n".into(), ..Default::default() }),
        state: pb::RouteState::Active.into(),
        ..Default::default()
    }
}

fn on_list(
    script: &Script,
    handler: impl Fn(pb::ListRoutesRequest) -> Result<pb::ListRoutesResponse, tonic::Status>
    + Send
    + Sync
    + 'static,
) {
    *script.list_routes.lock() = Box::new(move |request| Box::pin(std::future::ready(handler(request))));
}

fn on_ensure(
    script: &Script,
    handler: impl Fn(pb::BatchEnsureRoutesRequest) -> Result<pb::BatchEnsureRoutesResponse, tonic::Status>
    + Send
    + Sync
    + 'static,
) {
    *script.ensure_routes.lock() = Box::new(move |request| Box::pin(std::future::ready(handler(request))));
}

async fn ensure_all(host: &Host, count: usize) -> Vec<Result<EnsuredRoute, CloudError>> {
    join_all((0..count).map(|i| host.provider.ensure_route(wish(i)))).await
}

#[tokio::test]
async fn two_thousand_new_routes_are_four_calls() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let answers = ensure_all(&host, 2000).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(script.count("BatchEnsureRoutes"), 4);
    let route = answers[7].as_ref().unwrap().route.clone().unwrap();
    assert_eq!((route.destination, route.state), (net(7), RouteState::Active));
    assert_eq!(route.target.unwrap().name, "node-7");
}

#[tokio::test]
async fn two_thousand_deletions_are_four_calls_that_say_what_was_listed() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    {
        let seen = Arc::clone(&seen);
        let before = std::mem::replace(&mut *script.delete_routes.lock(), Box::new(|_| unreachable!()));
        *script.delete_routes.lock() = Box::new(move |request| {
            seen.lock().extend(request.items.clone());
            before(request)
        });
    }
    let target = RouteTarget { name: "n".into(), provider_id: "test://n".into(), ..RouteTarget::default() };
    let route = |i: usize| Route {
        id: format!("rt-{i}"),
        destination: net(i),
        target: Some(target.clone()),
        state: RouteState::Blackhole,
        ours: true,
    };
    let answers = join_all((0..2000).map(|i| host.provider.delete_route(route(i)))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_none()));
    assert_eq!(script.count("BatchDeleteRoutes"), 4);
    let sent = seen.lock().iter().find(|item| item.key == "rt-3").cloned().unwrap().route.unwrap();
    assert_eq!((sent.id.as_str(), sent.destination_cidr.as_str()), ("rt-3", "10.100.3.0/24"));
    assert_eq!(sent.target.unwrap().provider_id, "test://n");
}

#[tokio::test]
async fn routes_that_are_too_many_for_a_call_are_split_and_the_provider_is_remembered_as_small() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_ensure(&script, |request| {
        if request.items.len() > 100 {
            return Err(refusal(Code::InvalidArgument, "BATCH_TOO_LARGE"));
        }
        Ok(all_routed(request))
    });
    let answers = ensure_all(&host, 400).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let first = script.count("BatchEnsureRoutes");
    assert_eq!(first, 7, "400, 200, 100, 100, 200, 100, 100");
    ensure_all(&host, 100).await;
    assert_eq!(script.count("BatchEnsureRoutes"), first + 1);
}

#[tokio::test]
async fn the_advertised_limit_of_routes_is_kept() {
    let script = Script::new("e1");
    script.limits(|limits| limits.max_batch_routes = 50);
    let (host, _running, _dir) = served(&script).await;
    let largest = Arc::new(AtomicUsize::new(0));
    on_ensure(&script, {
        let largest = Arc::clone(&largest);
        move |request| {
            largest.fetch_max(request.items.len(), Ordering::SeqCst);
            Ok(all_routed(request))
        }
    });
    let answers = ensure_all(&host, 200).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert!(largest.load(Ordering::SeqCst) <= 50);
}

#[tokio::test]
async fn two_nodes_for_one_destination_are_two_requests() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_ensure(&script, |request| {
        let cidrs: std::collections::HashSet<_> =
            request.items.iter().map(|item| item.destination_cidr.clone()).collect();
        assert_eq!(cidrs.len(), request.items.len(), "a destination is there twice");
        Ok(all_routed(request))
    });
    let (one, other) = (wish(1), EnsureRoute { destination: net(1), ..wish(2) });
    let answers = tokio::join!(host.provider.ensure_route(one), host.provider.ensure_route(other));
    assert!(answers.0.is_ok() && answers.1.is_ok(), "{answers:?}");
    assert_eq!(script.count("BatchEnsureRoutes"), 2);
}

/// What is sent again, after a batch failed, is what somebody still waits for.
#[tokio::test(start_paused = true)]
async fn an_item_that_was_given_up_is_not_sent_again() {
    let script = Script::new("e1");
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    *script.ensure_routes.lock() = Box::new({
        let seen = Arc::clone(&seen);
        move |request: pb::BatchEnsureRoutesRequest| {
            seen.lock().push(request.items.len());
            let whole = request.items.len() == 3;
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                if whole { Err(refusal(Code::Internal, "INTERNAL_ERROR")) } else { Ok(all_routed(request)) }
            })
        }
    });
    let host = piped_host(&script).await;
    let given_up = tokio::time::timeout(Duration::from_secs(5), host.provider.ensure_route(wish(0)));
    let (given_up, one, two) =
        tokio::join!(given_up, host.provider.ensure_route(wish(1)), host.provider.ensure_route(wish(2)));
    assert!(given_up.is_err() && one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    assert_eq!(*seen.lock(), [3, 1, 1]);
}

/// Rule 10: the target is echoed; an answer about another node is not a success.
#[tokio::test]
async fn a_route_to_another_node_is_no_success_and_counted() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_ensure(&script, |mut request| {
        for item in &mut request.items {
            item.target.as_mut().unwrap().name = "other".into();
        }
        Ok(all_routed(request))
    });
    let error = host.provider.ensure_route(wish(1)).await.unwrap_err();
    assert!(error.is(ErrorReason::InternalError), "{error}");
    let echo = "cloudprovider_contract_violations_total{provider=\"p\",rule=\"route-echo-target\"}";
    assert_eq!(host.metric(echo), 1.0);
}

/// E4: if routes cannot record an owner, all routes in the cluster's tables are its own.
#[tokio::test]
async fn whose_a_route_is_comes_from_the_provider_or_from_its_place() {
    use pb::Ownership::{ByLegacyName, ByUid, Unspecified};
    for (tags, want, asked) in [(true, [false, true, false], ByUid), (false, [true; 3], Unspecified)] {
        let script = Script::new("e1");
        if tags {
            script.can(pb::Capability::RouteOwnership);
        }
        let (host, _running, _dir) = served(&script).await;
        on_list(&script, |_| {
            let routes = [Unspecified, ByUid, ByLegacyName].into_iter().enumerate();
            let routes = routes.map(|(i, ownership)| pb::Route {
                ownership: ownership.into(),
                ..listed(&format!("rt-{i}"), &net(i).to_string())
            });
            Ok(pb::ListRoutesResponse { routes: routes.collect(), ..Default::default() })
        });
        let listed = host.provider.list_routes(&[]).await.unwrap().items;
        assert_eq!(listed.iter().map(|route| route.ours).collect::<Vec<_>>(), want);
        let seen = Arc::new(parking_lot::Mutex::new(None));
        {
            let (seen, before) = (
                Arc::clone(&seen),
                std::mem::replace(&mut *script.delete_routes.lock(), Box::new(|_| unreachable!())),
            );
            *script.delete_routes.lock() = Box::new(move |request| {
                *seen.lock() = request.items[0].route.clone();
                before(request)
            });
        }
        host.provider.delete_route(listed[1].clone()).await.unwrap();
        assert_eq!(seen.lock().take().unwrap().ownership(), asked, "as it was listed");
        let broken = "cloudprovider_contract_violations_total{provider=\"p\",rule=\"route-ownership\"}";
        if tags {
            assert_eq!(host.metric(broken), 1.0);
        }
    }
}

#[tokio::test]
async fn each_item_has_its_own_error() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_ensure(&script, |request| {
        let mut answer = all_routed(request);
        for result in answer.results.iter_mut().filter(|result| result.key == "10.100.1.0/24") {
            let reason = ErrorReason::RouteTableFull.into();
            result.error = Some(pb::ItemError { reason, ..Default::default() });
        }
        answer.results.retain(|result| result.key != "10.100.2.0/24");
        Ok(answer)
    });
    let answers = ensure_all(&host, 3).await;
    assert!(answers[0].is_ok());
    assert!(answers[1].as_ref().unwrap_err().is(ErrorReason::RouteTableFull));
    assert!(answers[2].as_ref().unwrap_err().is(ErrorReason::InternalError), "it was not answered");
}

#[tokio::test]
async fn node_addresses_travel_only_where_routes_hold_them() {
    for (holds, wants) in [(true, 1), (false, 0)] {
        let script = Script::new("e1");
        if holds {
            script.can(pb::Capability::RouteNodeAddresses);
        }
        let (host, _running, _dir) = served(&script).await;
        let seen = Arc::new(AtomicUsize::new(0));
        on_ensure(&script, {
            let seen = Arc::clone(&seen);
            move |request| {
                seen.store(request.items[0].target.as_ref().unwrap().addresses.len(), Ordering::SeqCst);
                Ok(all_routed(request))
            }
        });
        let node = Arc::new(node("n").with_address("InternalIP", "10.0.0.1"));
        let answer = host.provider.ensure_route(EnsureRoute { destination: net(1), node }).await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), wants);
        assert_eq!(answer.route.unwrap().target.unwrap().addresses.len(), wants);
        assert_eq!(host.provider.info().unwrap().route_node_addresses, holds);
    }
}

/// Rule 7: invalid routes are dropped, counted and named, and an incomplete list says so.
#[tokio::test]
async fn a_list_of_routes_says_what_it_lacks() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let list = async || host.provider.list_routes(&["10.0.0.0/8".parse().unwrap()]).await.unwrap();

    on_list(&script, |request| {
        assert_eq!(request.within, ["10.0.0.0/8"]);
        Ok(match request.page_token.as_str() {
            "" => pb::ListRoutesResponse {
                routes: vec![listed("rt-1", "10.1.0.0/24")],
                next_page_token: "2".into(),
                ..Default::default()
            },
            _ => pb::ListRoutesResponse { routes: vec![listed("rt-2", "10.1.1.7/24")], ..Default::default() },
        })
    });
    let whole = list().await;
    let found: Vec<_> =
        whole.items.iter().map(|route| (route.id.as_str(), route.destination.to_string())).collect();
    assert_eq!(found, [("rt-1", "10.1.0.0/24".into()), ("rt-2", "10.1.1.0/24".into())]);
    assert!(whole.complete, "a text that was put right is not missing");
    assert!(whole.rejected[0].contains("10.1.1.7/24"), "{:?}", whole.rejected);

    let with = |routes: Vec<pb::Route>, unreachable: &[&str]| pb::ListRoutesResponse {
        routes,
        unreachable: unreachable
            .iter()
            .map(|place| pb::UnreachableLocation { location: (*place).into(), error: None })
            .collect(),
        ..Default::default()
    };
    let rows = [
        ("no CIDR", with(vec![listed("rt-1", "junk")], &[])),
        ("no id", with(vec![listed("", "10.1.0.0/24")], &[])),
        ("one id twice", with(vec![listed("a", "10.1.0.0/24"), listed("a", "10.1.1.0/24")], &[])),
        ("a part that could not be queried", with(vec![], &["eu-1"])),
    ];
    for (name, page) in rows {
        on_list(&script, move |_| Ok(page.clone()));
        assert!(!list().await.complete, "{name}");
    }

    let first = AtomicUsize::new(0);
    on_list(&script, move |request| {
        match (request.page_token.as_str(), first.fetch_add(1, Ordering::SeqCst)) {
            ("", _) => Ok(pb::ListRoutesResponse {
                routes: vec![listed("a", "10.1.0.0/24")],
                next_page_token: "2".into(),
                ..Default::default()
            }),
            (_, 1) => Err(refusal(Code::InvalidArgument, "INVALID_TOKEN")),
            _ => Ok(pb::ListRoutesResponse::default()),
        }
    });
    let restarted = list().await;
    assert_eq!((restarted.items.len(), restarted.complete), (1, false), "a token was restarted");
}

/// Two routes to one destination stay two routes: what to do with them is not decided here.
#[tokio::test]
async fn several_routes_to_one_destination_are_all_listed() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_list(&script, |_| {
        let routes = vec![listed("a", "10.1.0.0/24"), listed("b", "10.1.0.0/24")];
        Ok(pb::ListRoutesResponse { routes, ..Default::default() })
    });
    let list = host.provider.list_routes(&[]).await.unwrap();
    assert_eq!((list.items.len(), list.complete), (2, true));
}

#[tokio::test]
async fn a_provider_without_routes_says_so() {
    let script = Script::new("e1");
    script.info.lock().services.retain(|name| !name.ends_with("Routes"));
    let (host, _running, _dir) = served(&script).await;
    assert!(!host.provider.info().unwrap().routes);
    let error = host.provider.list_routes(&[]).await.unwrap_err();
    assert!(error.is(ErrorReason::MethodNotSupported), "{error}");
}
