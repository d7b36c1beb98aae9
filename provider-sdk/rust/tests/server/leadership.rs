//! Leaders: whose mutations are run, and until when; and what is done only while somebody leads.

use std::sync::Arc;
use std::time::Duration;

use cloudprovider_sdk::proto::cloud_provider_client::CloudProviderClient;
use cloudprovider_sdk::proto::*;
use tokio::sync::watch;

use crate::cloud::Cloud;
use crate::fixture::{PATIENCE, Served, reason, serve, within};
use crate::requests::{cluster, ensure, fencing};

pub(crate) async fn lead(
    served: &Served,
    epoch: u64,
    valid_for: Option<Duration>,
) -> Result<(), tonic::Status> {
    lead_until(served, epoch, valid_for, None).await.map(drop)
}

/// The provider's clock when it read the call.
async fn lead_until(
    served: &Served,
    epoch: u64,
    valid_for: Option<Duration>,
    valid_until: Option<Duration>,
) -> Result<Duration, tonic::Status> {
    let duration = |time: Option<Duration>| time.and_then(|time| time.try_into().ok());
    let (valid_for, valid_until) = (duration(valid_for), duration(valid_until));
    let request = LeadRequest { cluster: cluster(), fencing: fencing(epoch), valid_for, valid_until };
    let answer = CloudProviderClient::new(served.channel().await).lead(request).await?;
    Ok(answer.into_inner().heard_at.unwrap().try_into().unwrap())
}

/// [R:lead-ends]: a call that is read late, as by a process that stood still, does not count from then.
#[tokio::test]
async fn leadership_ends_by_the_providers_clock() {
    let cloud = Cloud::new();
    cloud.go.add_permits(9);
    let served = serve(cloud.provider()).await;
    let long = Some(Duration::from_secs(600));
    let clock = lead_until(&served, 1, long, None).await.unwrap();
    let mut client = served.load_balancers().await;
    let mut change = async || {
        let request = EnsureLoadBalancerRequest { fencing: fencing(1), ..ensure("a") };
        client.ensure_load_balancer(request).await.map(drop)
    };
    change().await.unwrap();
    let later = lead_until(&served, 1, long, Some(clock + Duration::from_secs(600))).await.unwrap();
    assert!(later >= clock);
    change().await.unwrap();
    lead_until(&served, 1, long, Some(later)).await.unwrap();
    assert_eq!(reason(&change().await.unwrap_err()), ErrorReason::StaleLeader);
}

/// [R:cluster-uid-required]: without it nobody can say who leads.
#[tokio::test]
async fn a_cluster_without_a_uid_is_a_wrong_shape_whoever_leads() {
    let served = serve(Cloud::new().provider()).await;
    let cluster = Some(ClusterRef { name: "prod".to_owned(), ..ClusterRef::default() });
    let request = EnsureLoadBalancerRequest { cluster, fencing: fencing(1), ..ensure("a") };
    let refused = served.load_balancers().await.ensure_load_balancer(request).await.unwrap_err();
    assert_eq!(reason(&refused), ErrorReason::InvalidArgumentShape);
}

/// [R:lead-ends]: however leadership ends.
#[tokio::test]
async fn a_mutation_is_given_up_when_leadership_ends() {
    let long = Duration::from_secs(600);
    for (how, mut first, then) in [
        ("time", Duration::from_millis(300), None),
        ("stepping down", long, Some((1, Some(Duration::ZERO)))),
        ("a new leader", long, Some((2, Some(long)))),
    ] {
        let cloud = Cloud::new();
        let served = serve(cloud.provider()).await;
        let client = served.load_balancers().await;
        let mut began = cloud.began.subscribe();
        let call = loop {
            lead(&served, 1, Some(first)).await.unwrap();
            let mut client = client.clone();
            let request = EnsureLoadBalancerRequest { fencing: fencing(1), ..ensure("a") };
            let mut call = tokio::spawn(async move { client.ensure_load_balancer(request).await });
            tokio::select! {
                biased;
                found = within(began.wait_for(|count| *count == 1)) => {
                    found.unwrap();
                    break call;
                }
                // A busy machine let the term end first.
                ended = &mut call => assert!(first < PATIENCE, "{how}: {ended:?}"),
            }
            first *= 4;
        };

        if let Some((epoch, valid_for)) = then {
            lead(&served, epoch, valid_for).await.unwrap();
        }

        let status = within(call).await.unwrap().unwrap_err();
        assert_eq!(reason(&status), ErrorReason::StaleLeader, "{how}");
        cloud.go.add_permits(1);
        assert_eq!(*cloud.finished.borrow(), 0, "{how}: no further call of the cloud");
    }
}

/// [R:lead-ends]: as what goes on after an answer with `in_progress`.
#[tokio::test]
async fn what_a_mutation_left_behind_is_told_when_leadership_ends() {
    let cloud = Cloud::new();
    let served = serve(cloud.provider()).await;
    lead(&served, 1, Some(Duration::from_secs(600))).await.unwrap();
    cloud.go.add_permits(1);
    let request = EnsureLoadBalancerRequest { fencing: fencing(1), ..ensure("a") };
    served.load_balancers().await.ensure_load_balancer(request).await.unwrap();
    let told = cloud.calls.lock()[0].cancellation().clone();
    assert!(!told.is_cancelled(), "its leader leads");
    lead(&served, 1, Some(Duration::ZERO)).await.unwrap();
    within(told.cancelled()).await;
}

#[tokio::test]
async fn background_work_runs_while_somebody_leads() {
    struct Running(Arc<watch::Sender<i32>>);
    impl Drop for Running {
        fn drop(&mut self) {
            self.0.send_modify(|count| *count -= 1);
        }
    }
    let running = Arc::new(watch::Sender::new(0));
    let begun = Arc::new(watch::Sender::new(0));
    let (count, starts) = (Arc::clone(&running), Arc::clone(&begun));
    let provider = Cloud::new().builder().while_leading(move |of| {
        assert_eq!(Some(of), cluster());
        let (count, starts) = (Arc::clone(&count), Arc::clone(&starts));
        async move {
            count.send_modify(|count| *count += 1);
            starts.send_modify(|starts| *starts += 1);
            let _running = Running(count);
            std::future::pending::<()>().await;
        }
    });
    let served = serve(provider.build().unwrap()).await;
    let mut seen = running.subscribe();
    for (epoch, valid_for, wanted) in [
        (1, Some(Duration::from_secs(600)), 1),
        (1, Some(Duration::from_secs(600)), 1),
        (2, None, 1),
        (2, Some(Duration::ZERO), 0),
    ] {
        lead(&served, epoch, valid_for).await.unwrap();
        within(seen.wait_for(|count| *count == wanted)).await.unwrap();
    }
    let (before, mut now) = (*begun.borrow(), begun.subscribe());
    // On a busy machine the first may end before the work begins.
    for millis in [200, 2_000, 10_000] {
        lead(&served, 2, Some(Duration::from_millis(millis))).await.unwrap();
        let began = now.wait_for(|now| *now > before);
        if tokio::time::timeout(Duration::from_millis(millis), began).await.is_ok() {
            break;
        }
    }
    assert!(*begun.borrow() > before);
    within(seen.wait_for(|count| *count == 0)).await.unwrap();
}

#[tokio::test]
async fn background_work_that_panics_runs_again_within_its_term() {
    let began = Arc::new(watch::Sender::new(0));
    let count = Arc::clone(&began);
    let provider = Cloud::new().builder().while_leading(move |_| {
        count.send_modify(|count| *count += 1);
        let first = *count.borrow() == 1;
        async move { assert!(!first, "it fails once") }
    });
    let served = serve(provider.build().unwrap()).await;
    lead(&served, 1, Some(Duration::from_secs(600))).await.unwrap();
    within(began.subscribe().wait_for(|count| *count == 2)).await.unwrap();
}

/// A term ends while the work is busy between two awaits: that of the next one, which writes to the same cloud, waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn background_work_of_two_terms_does_not_overlap() {
    let log = watch::Sender::new(Vec::new());
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(parking_lot::Mutex::new(held));
    let seen = log.clone();
    let provider = Cloud::new().builder().while_leading(move |_| {
        let (log, held) = (seen.clone(), Arc::clone(&held));
        async move {
            log.send_modify(|log| log.push("begins"));
            let _released = held.lock().recv();
            log.send_modify(|log| log.push("ends"));
            std::future::pending::<()>().await;
        }
    });
    let served = serve(provider.build().unwrap()).await;
    lead(&served, 1, Some(Duration::from_secs(600))).await.unwrap();
    within(log.subscribe().wait_for(|log| log.len() == 1)).await.unwrap();
    lead(&served, 2, Some(Duration::from_secs(600))).await.unwrap();
    // As long as a second run would take to begin.
    let mut second = log.subscribe();
    let began = tokio::time::timeout(Duration::from_millis(300), second.wait_for(|log| log.len() > 1)).await;
    assert!(began.is_err(), "two at once");
    release.send(()).unwrap();
    release.send(()).unwrap();
    within(log.subscribe().wait_for(|log| log.len() == 4)).await.unwrap();
    assert_eq!(*log.borrow(), ["begins", "ends", "begins", "ends"]);
}
