//! Balancers over a socket.

use std::sync::atomic::{AtomicUsize, Ordering};

use cloudprovider_proto::v1alpha1 as pb;
use futures::future::join_all;

use super::*;
use crate::Question;
use ccm_kube::fixtures::service;

pub(super) fn wanted(host: &Host, name: &str, nodes: usize) -> EnsureLoadBalancer {
    let service = Arc::new(service(name).load_balancer().with_port("http", 80));
    let nodes = (0..nodes).map(|i| Arc::new(node(&format!("node-{i}")))).collect();
    let backends = host.provider.backend_set(nodes);
    let desired_digest = host.provider.desired_digest(&service, &backends);
    EnsureLoadBalancer { service, backends, desired_digest, revision: 7, adopt: false }
}

pub(super) fn update(wanted: EnsureLoadBalancer) -> UpdateLoadBalancer {
    let EnsureLoadBalancer { service, backends, desired_digest, revision, .. } = wanted;
    UpdateLoadBalancer { service, backends, desired_digest, revision, had_it_before: false }
}

pub(super) fn ensured(request: &pb::EnsureLoadBalancerRequest) -> pb::EnsureLoadBalancerResponse {
    pb::EnsureLoadBalancerResponse {
        load_balancer: Some(pb::LoadBalancer {
            service: request.service.as_ref().and_then(|service| service.r#ref.clone()),
            state: pb::LoadBalancerState::Active.into(),
            ingress: vec![pb::LoadBalancerIngress { ip: "192.0.2.1".into(), ..Default::default() }],
            applied_digest: request.desired_digest.clone(),
            ownership: pb::Ownership::ByUid.into(),
            ..Default::default()
        }),
        service: Some(pb::ServiceWrites {
            annotations: [("x.example/id", "1"), ("other/id", "2")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn on_ensure(
    script: &Script,
    handler: impl Fn(pb::EnsureLoadBalancerRequest) -> Result<pb::EnsureLoadBalancerResponse, tonic::Status>
    + Send
    + Sync
    + 'static,
) {
    *script.ensure.lock() = Box::new(move |request| Box::pin(std::future::ready(handler(request))));
}

fn on_list(
    script: &Script,
    handler: impl Fn(pb::ListLoadBalancersRequest) -> Result<pb::ListLoadBalancersResponse, tonic::Status>
    + Send
    + Sync
    + 'static,
) {
    *script.list.lock() = Box::new(move |request| Box::pin(std::future::ready(handler(request))));
}

fn page(uids: &[&str], next: &str) -> pb::ListLoadBalancersResponse {
    let balancer = |uid: &&str| pb::LoadBalancer {
        service: Some(pb::ServiceRef { namespace: "ns".into(), name: (*uid).into(), uid: (*uid).into() }),
        state: pb::LoadBalancerState::Active.into(),
        ownership: pb::Ownership::ByUid.into(),
        ..Default::default()
    };
    pb::ListLoadBalancersResponse {
        load_balancers: uids.iter().map(balancer).collect(),
        next_page_token: next.into(),
        unreachable: Vec::new(),
    }
}

fn uids(list: &Listed<LoadBalancer>) -> Vec<&str> {
    list.items.iter().map(|balancer| balancer.service_uid.as_str()).collect()
}

#[tokio::test]
async fn ensure_carries_the_whole_wish_and_its_answer_is_checked() {
    let script = Script::new("e1");
    script.capabilities.lock().wants =
        Some(pb::Wants { service_annotation_writes: vec!["x.example/".into()], ..Default::default() });
    let (host, _running, _dir) = served(&script).await;
    let seen = Arc::new(parking_lot::Mutex::new(None));
    on_ensure(&script, {
        let seen = Arc::clone(&seen);
        move |request| {
            let answer = ensured(&request);
            *seen.lock() = Some(request);
            Ok(answer)
        }
    });
    host.leads(4, Duration::from_secs(60));
    let asked = wanted(&host, "web", 3);
    let answer = host.provider.ensure_load_balancer(asked.clone()).await.unwrap();
    assert_eq!(answer.load_balancer.applied_digest.as_ref(), Some(&asked.desired_digest));
    assert_eq!(answer.load_balancer.ingress[0].ip_mode.as_deref(), Some("VIP"));
    assert_eq!(answer.effects.annotations.keys().collect::<Vec<_>>(), ["x.example/id"]);
    assert_eq!(answer.load_balancer.rejected.len(), 1, "{:?}", answer.load_balancer.rejected);

    let request: pb::EnsureLoadBalancerRequest = seen.lock().take().unwrap();
    assert_eq!(request.fencing.unwrap(), pb::Fencing { scope: "lease".into(), epoch: 4 });
    assert_eq!(request.backends.unwrap().nodes.len(), 3);
    assert_eq!((request.revision, request.adoption), (7, pb::Adoption::Refuse.into()));
}

#[tokio::test]
async fn a_set_that_fits_into_no_message_is_never_sent() {
    let script = Script::new("e1");
    script.limits(|limits| limits.max_message_bytes = 4 << 20);
    let (host, _running, _dir) = served(&script).await;
    on_ensure(&script, |request| Ok(ensured(&request)));
    let error = host.provider.ensure_load_balancer(wanted(&host, "large", 200_000)).await.unwrap_err();
    assert!(error.is_too_large(), "{error}");
    assert!(error.message.contains("200000 nodes"), "{error}");
    let error =
        host.provider.update_load_balancer(update(wanted(&host, "large", 200_000))).await.unwrap_err();
    assert!(error.is_too_large(), "{error}");
    assert_eq!(script.count("EnsureLoadBalancer") + script.count("BatchUpdateLoadBalancers"), 0);
}

#[tokio::test]
async fn a_hundred_updates_with_one_set_are_one_call() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let sets = Arc::new(AtomicUsize::new(0));
    {
        let sets = Arc::clone(&sets);
        let before = std::mem::replace(&mut *script.update.lock(), Box::new(|_| unreachable!()));
        *script.update.lock() = Box::new(move |request| {
            sets.fetch_add(usize::from(request.backends.is_some()), Ordering::SeqCst);
            before(request)
        });
    }
    let wanted: Vec<_> = (0..100).map(|i| update(wanted(&host, &format!("s{i}"), 20))).collect();
    let answers = join_all(wanted.into_iter().map(|wanted| host.provider.update_load_balancer(wanted))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(script.count("BatchUpdateLoadBalancers"), 1);
    assert_eq!(sets.load(Ordering::SeqCst), 1);
}

/// F16: the caches may not hold yet what a new process wants to know, so nothing is sent that was made for the former one.
#[tokio::test]
async fn what_was_made_for_a_former_process_is_not_sent_to_one_that_wants_more() {
    let script = Script::new("e1");
    on_ensure(&script, |request| Ok(ensured(&request)));
    let (dir, path) = folder();
    let mut running = Running::at(&path, &script);
    let host = Host::at(&path);
    host.serving().await;
    let (before, then) = (wanted(&host, "web", 1), host.provider.link.wants());
    let read = || {
        let lane = ReadLane { view: InstanceView::All, freshness: Freshness::ReadThrough };
        host.provider.reads.answer(lane, (Arc::new(node("n1")), Arc::clone(&then)))
    };
    let route = || {
        let wish = EnsureRoute { destination: "10.0.0.0/24".parse().unwrap(), node: Arc::new(node("n1")) };
        host.provider.route_ensures.answer((), (wish, Arc::clone(&then)))
    };
    let mut replaced = async |epoch: &str| {
        script.info.lock().process_epoch = epoch.into();
        running = Running::at(&path, &script);
        eventually(epoch, || host.provider.info().is_some_and(|info| info.epoch == epoch)).await;
        host.serving().await;
    };
    replaced("e2").await;
    host.provider.ensure_load_balancer(before.clone()).await.expect("it wants the same");
    read().await.expect("it wants the same");

    let service = pb::ServiceFields { annotations: vec!["x.example/internal".into()], ..Default::default() };
    script.capabilities.lock().wants = Some(pb::Wants { service: Some(service), ..Default::default() });
    replaced("e3").await;
    let refused = host.provider.ensure_load_balancer(before.clone()).await.unwrap_err();
    assert!(refused.message.contains("wants to know more"), "{refused}");
    let refused = [
        host.provider.update_load_balancer(update(before)).await.unwrap_err(),
        read().await.unwrap_err(),
        route().await.unwrap_err(),
    ];
    assert!(refused.iter().all(|one| one.message.contains("wants to know more")), "{refused:?}");
    assert_eq!((script.count("EnsureLoadBalancer"), script.count("BatchUpdateLoadBalancers")), (1, 0));
    assert_eq!((script.count("BatchGetInstances"), script.count("BatchEnsureRoutes")), (1, 0));
    host.provider.ensure_load_balancer(wanted(&host, "web", 1)).await.unwrap();
    drop(dir);
}

/// F18.
#[tokio::test(start_paused = true)]
async fn batches_that_are_late_together_share_the_lists_of_what_is_done() {
    let script = Script::new("e1");
    script.limits(|limits| limits.max_batch_load_balancers = 100);
    *script.update.lock() = Box::new(|request| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(40)).await;
            Ok(all_updated(&request))
        })
    });
    let host = piped_host(&script).await;
    let wanted: Vec<_> = (0..400).map(|i| update(wanted(&host, &format!("s{i}"), 1))).collect();
    let answers = join_all(wanted.into_iter().map(|wanted| host.provider.update_load_balancer(wanted))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(script.count("BatchUpdateLoadBalancers"), 4);
    assert_eq!(script.count("ListLoadBalancers"), 2, "after 10 and after 30 seconds");
}

/// D28.
#[tokio::test]
async fn a_stale_leader_mutates_no_more_until_it_leads_anew() {
    let script = Script::new("e1");
    on_ensure(&script, |request| match request.fencing.clone().unwrap_or_default().epoch {
        2.. => Ok(ensured(&request)),
        _ => Err(refusal(Code::FailedPrecondition, "STALE_LEADER")),
    });
    script.can(pb::Capability::Leadership);
    let (host, _running, _dir) = served(&script).await;
    host.leads(1, Duration::from_secs(60));
    for _ in 0..3 {
        let error = host.provider.ensure_load_balancer(wanted(&host, "web", 1)).await.unwrap_err();
        assert!(error.is(ErrorReason::StaleLeader));
    }
    assert_eq!(script.count("EnsureLoadBalancer"), 1, "the others never left");
    host.frozen("former leader").await;
    host.ask("n").await.expect("reads go on");
    host.leads(2, Duration::from_secs(60));
    host.serving().await;
    host.provider.ensure_load_balancer(wanted(&host, "web", 1)).await.unwrap();
}

#[tokio::test]
async fn a_list_is_walked_to_its_end() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_list(&script, |request| {
        Ok(match request.page_token.as_str() {
            "" => page(&["a", "b"], "2"),
            "2" => page(&["c"], "3"),
            _ => page(&["d"], ""),
        })
    });
    let list = host.provider.list_load_balancers().await.unwrap();
    assert_eq!(uids(&list), ["a", "b", "c", "d"]);
    assert!(list.complete);
}

/// It belongs to no Service of ours, so nothing is missing, and the provider could not say more.
#[tokio::test]
async fn a_former_controllers_balancer_without_a_uid_makes_no_list_incomplete() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_list(&script, |_| {
        let mut page = page(&["a", ""], "");
        page.load_balancers[1].ownership = pb::Ownership::ByLegacyName.into();
        Ok(page)
    });
    let list = host.provider.list_load_balancers().await.unwrap();
    assert_eq!((uids(&list), list.complete), (vec!["a"], true));
    assert!(!host.metrics().contains("rule=\"service-ref\""));
}

/// Rule 7: an incomplete list says so.
#[tokio::test]
async fn a_list_is_complete_only_if_nothing_was_in_its_way() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let list = async || host.provider.list_load_balancers().await.unwrap();

    on_list(&script, |_| {
        let mut part = page(&["a"], "");
        part.unreachable = vec![pb::UnreachableLocation { location: "eu-1".into(), error: None }];
        Ok(part)
    });
    let unreachable = list().await;
    assert!(!unreachable.complete);
    assert_eq!(unreachable.unreachable[0].0, "eu-1");

    let first = AtomicUsize::new(0);
    on_list(&script, move |request| {
        match (request.page_token.as_str(), first.fetch_add(1, Ordering::SeqCst)) {
            ("", _) => Ok(page(&["a"], "2")),
            (_, 1) => Err(refusal(Code::InvalidArgument, "INVALID_TOKEN")),
            _ => Ok(page(&["b"], "")),
        }
    });
    let restarted = list().await;
    assert_eq!((uids(&restarted), restarted.complete), (vec!["a", "b"], false), "a token was restarted");

    on_list(&script, |_| Ok(page(&[], "same")));
    assert!(!list().await.complete, "a walk that does not end");

    on_list(&script, |_| {
        let mut unowned = page(&["a", "b"], "");
        let owner = unowned.load_balancers[1].service.as_mut().unwrap();
        owner.uid.clear();
        Ok(unowned)
    });
    assert!(!list().await.complete, "one does not say whose it is");

    on_list(&script, |_| Ok(page(&["a", "a"], "")));
    assert!(!list().await.complete, "one is there twice");
    let ends = "cloudprovider_contract_violations_total{provider=\"p\",rule=\"page-walk-ends\"}";
    assert_eq!(host.metric(ends), 1.0);
}

/// M2: what a provider makes the host keep has bounds; a list that goes beyond them proves nothing about what it lacks.
#[tokio::test]
async fn a_list_of_things_that_nobody_has_is_incomplete_and_small() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    let list = async || host.provider.list_load_balancers().await.unwrap();
    on_list(&script, |_| Ok(page(&["a"], &"t".repeat(8193))));
    let long_token = list().await;
    assert_eq!((uids(&long_token), long_token.complete), (vec!["a"], false));
    assert_eq!(script.count("ListLoadBalancers"), 1, "it is not sent back");

    on_list(&script, |_| {
        let mut page = page(&["a"], "");
        page.unreachable = vec![pb::UnreachableLocation::default(); 100_000];
        Ok(page)
    });
    let unreachable = list().await;
    assert_eq!((unreachable.unreachable.len(), unreachable.complete), (1_000, false));

    on_list(&script, |_| Ok(page(&["a", &"u".repeat(254)], "")));
    let long_uid = list().await;
    assert_eq!((uids(&long_uid), long_uid.complete), (vec!["a"], false));

    let before = script.count("ListLoadBalancers");
    on_list(&script, |request| {
        let mut page = page(&[], &format!("{}1", request.page_token));
        page.unreachable = vec![pb::UnreachableLocation::default(); 200_000];
        Ok(page)
    });
    assert!(!list().await.complete);
    let pages = script.count("ListLoadBalancers") - before;
    assert!(pages < 20, "{pages} pages of 400 kB, each of which takes 20 MB once decoded");
}

/// Core L7: there are 16 places for reads.
#[tokio::test]
async fn what_people_ask_takes_no_places_from_controllers() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    *script.list.lock() = Box::new(|_| Box::pin(std::future::pending()));
    let asked: Vec<_> = (0..40)
        .map(|_| {
            let provider = Arc::clone(&host.provider);
            tokio::spawn(async move { provider.inventory(&Question::LoadBalancers).await })
        })
        .collect();
    eventually("lists are under way", || script.count("ListLoadBalancers") == 2).await;
    let answer = tokio::time::timeout(PATIENCE, host.ask("n")).await;
    answer.expect("it does not wait for the lists").unwrap();
    assert_eq!(script.count("ListLoadBalancers"), 2);
    asked.into_iter().for_each(|question| question.abort());
}

#[tokio::test]
async fn pages_that_are_too_large_get_smaller() {
    let script = Script::new("e1");
    let (host, _running, _dir) = served(&script).await;
    on_list(&script, |request| {
        if request.page_size > 100 {
            return Err(tonic::Status::resource_exhausted(
                "grpc: received message larger than max (5 vs. 4)",
            ));
        }
        Ok(page(&["a"], ""))
    });
    let list = host.provider.list_load_balancers().await.unwrap();
    assert!(list.complete);
    assert_eq!(script.count("ListLoadBalancers"), 4);
}
