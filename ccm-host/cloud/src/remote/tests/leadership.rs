//! What the host tells a provider about leadership.

use cloudprovider_proto::v1alpha1 as pb;

use super::*;
use ccm_kube::election::Fencing;

/// The epoch, and the validity in seconds.
type Word = (u64, Option<i64>);

/// Records every `Lead` call.
fn heard(script: &Script) -> Arc<parking_lot::Mutex<Vec<Word>>> {
    let heard = Arc::<parking_lot::Mutex<Vec<Word>>>::default();
    let told = Arc::clone(&heard);
    script.can(pb::Capability::Leadership);
    *script.lead.lock() = Box::new(move |request| {
        let epoch = request.fencing.unwrap_or_default().epoch;
        told.lock().push((epoch, request.valid_for.map(|time| time.seconds)));
        Box::pin(async { Ok(pb::LeadResponse::default()) })
    });
    heard
}

impl Host {
    pub(super) fn leads(&self, epoch: u64, valid_for: Duration) {
        let fencing = Fencing { scope: "lease".into(), epoch };
        let end = tokio::time::Instant::now() + valid_for;
        self.leading.send_replace(Leading::Until { fencing, end });
    }
}

#[tokio::test(start_paused = true)]
async fn without_election_a_provider_is_told_once_a_connection() {
    let script = Script::new("e1");
    let heard = heard(&script);
    let host = piped_host(&script).await;
    host.serving().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(*heard.lock(), [(0, None)]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_says_nothing_and_changes_nothing() {
    let script = Script::new("e1");
    let heard = heard(&script);
    let host = Host::over(piped(&script));
    host.leading.send_replace(Leading::No);
    host.serving().await;
    host.ask("n").await.expect("reads need no leader");
    let error = host.provider.ensure_load_balancer(balancers::wanted(&host, "web", 1)).await.unwrap_err();
    assert!(error.is(ErrorReason::StaleLeader), "{error}");
    assert_eq!((heard.lock().len(), script.count("EnsureLoadBalancer")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_leader_says_so_with_each_renewal_and_steps_down() {
    let script = Script::new("e1");
    let heard = heard(&script);
    let host = piped_host(&script).await;
    heard.lock().clear();
    for _ in 0..2 {
        host.leads(4, Duration::from_secs(10));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    host.leading.send_replace(Leading::No);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*heard.lock(), [(4, Some(10)), (4, Some(10)), (4, Some(0))]);
}

/// Core L10: a provider that stands still for a while reads late, and would count from then. Its clock shows any number.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_is_told_by_the_providers_own_clock() {
    let script = Script::new("e1");
    script.can(pb::Capability::Leadership);
    let zero = tokio::time::Instant::now();
    let shows = move || Duration::from_secs(1_000) + zero.elapsed();
    let told = Arc::<parking_lot::Mutex<Vec<Option<Duration>>>>::default();
    let heard = Arc::clone(&told);
    *script.lead.lock() = Box::new(move |request| {
        heard.lock().push(request.valid_until.map(|until| until.try_into().unwrap()));
        Box::pin(async move {
            let heard_at = shows().try_into().ok();
            // The answer is on its way for a while: the provider's clock then shows more than was read.
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(pb::LeadResponse { heard_at })
        })
    });
    let host = piped_host(&script).await;
    host.leading.send_replace(Leading::No);
    tokio::time::sleep(Duration::from_secs(2)).await;
    told.lock().clear();
    let mut ends = Vec::new();
    for _ in 0..3 {
        host.leads(4, Duration::from_secs(10));
        ends.push(shows() + Duration::from_secs(10));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let told = told.lock();
    assert_eq!(told.len(), 3);
    for (told, end) in told.iter().zip(&ends) {
        let told = told.expect("it has shown its clock");
        assert!(told <= *end && *end - told <= Duration::from_millis(201), "{told:?}, not {end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_word_of_a_leader_is_that_it_steps_down() {
    let script = Script::new("e1");
    let heard = heard(&script);
    let host = piped_host(&script).await;
    host.leads(4, Duration::from_secs(10));
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(host);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(heard.lock().last(), Some(&(4, Some(0))));
}

/// Nobody may take the Lease before the provider has ended what it does for this process.
#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_hear_the_last_word_keeps_its_belief_until_the_term_ends() {
    for (hears, stops_after, believed) in [(true, 1, false), (false, 1, true), (false, 11, false)] {
        let script = Script::new("e1");
        drop(heard(&script));
        let host = piped_host(&script).await;
        let leadership = host.leadership.clone();
        host.leads(4, Duration::from_secs(10));
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !hears {
            *script.lead.lock() =
                Box::new(|_| Box::pin(async { Err(tonic::Status::unavailable("it stops")) }));
        }
        tokio::time::sleep(Duration::from_secs(stops_after)).await;
        drop(host);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(leadership.is_believed(), believed, "hears: {hears}, after {stops_after} s");
    }
}

/// Another host led for a while, by another Lease or without one, and does so no longer.
#[tokio::test(start_paused = true)]
async fn who_was_refused_as_stale_tries_again() {
    for serves_lead in [true, false] {
        let script = Script::new("e1");
        if serves_lead {
            drop(heard(&script));
        }
        let host = piped_host(&script).await;
        balancers::on_ensure(&script, |_| Err(refusal(Code::FailedPrecondition, "STALE_LEADER")));
        let wanted = || balancers::wanted(&host, "web", 1);
        let error = host.provider.ensure_load_balancer(wanted()).await.unwrap_err();
        assert!(error.is(ErrorReason::StaleLeader), "{error}");
        balancers::on_ensure(&script, |request| Ok(balancers::ensured(&request)));
        tokio::time::sleep(Duration::from_secs(15)).await;
        host.provider.ensure_load_balancer(wanted()).await.expect("nobody else leads by now");
    }
}

/// A leader that was paused past its end wakes up with calls under way.
#[tokio::test(start_paused = true)]
async fn a_leader_past_its_end_changes_nothing() {
    let script = Script::new("e1");
    let host = piped_host(&script).await;
    host.leads(4, Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(11)).await;
    let error = host.provider.ensure_load_balancer(balancers::wanted(&host, "web", 1)).await.unwrap_err();
    assert!(error.is(ErrorReason::StaleLeader), "{error}");
    assert_eq!(script.count("EnsureLoadBalancer"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_was_lost_is_said_again() {
    let script = Script::new("e1");
    let heard = heard(&script);
    let host = piped_host(&script).await;
    let first = std::mem::replace(
        &mut *script.lead.lock(),
        Box::new(|_| Box::pin(async { Err(tonic::Status::unavailable("a moment")) })),
    );
    heard.lock().clear();
    host.leads(4, Duration::from_secs(10));
    tokio::time::sleep(Duration::from_millis(500)).await;
    *script.lead.lock() = first;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(heard.lock().first().map(|(epoch, _)| *epoch), Some(4));
}

/// Every mutation becomes a read, or is held back.
#[tokio::test(start_paused = true)]
async fn in_shadow_mode_nothing_but_reads_reaches_the_provider() {
    let script = Script::new("e1");
    let heard = heard(&script);
    let settings = ccm_kube::shadow::ShadowSettings { shadow: true, shadow_grace: Duration::from_secs(120) };
    let shadow = ccm_kube::shadow::Shadow::new(&settings, ccm_kube::shadow::ShadowMetrics::default());
    let host = Host::configured(Endpoint::Unix("/run/p.sock".into()), |config| {
        config.dialer = Some(piped(&script));
        config.leadership = Leadership::shadow();
        config.shadow = Some(shadow.clone());
    });
    host.serving().await;
    host.ask("n").await.expect("reads are answered");
    let provider = &host.provider;
    let error = provider.add_ssh_key("user", "ssh-ed25519 AAAA").await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(60)), "{error}");
    let _absent = provider.ensure_load_balancer(balancers::wanted(&host, "web", 1)).await;
    let update = balancers::wanted(&host, "web", 1);
    let (service, backends) = (update.service, update.backends);
    let desired_digest = update.desired_digest;
    let _told = provider
        .update_load_balancer(UpdateLoadBalancer {
            service,
            backends,
            desired_digest,
            revision: 1,
            had_it_before: false,
        })
        .await;
    let destination = "10.1.0.0/24".parse().unwrap();
    let _held = provider.ensure_route(EnsureRoute { destination, node: Arc::new(node("n")) }).await;
    let mutations = [
        "Lead",
        "EnsureLoadBalancer",
        "BatchUpdateLoadBalancers",
        "DeleteLoadBalancer",
        "BatchEnsureRoutes",
        "BatchDeleteRoutes",
        "AddSshKeyToAllInstances",
    ];
    let made: Vec<_> = mutations.into_iter().filter(|method| script.count(method) > 0).collect();
    assert_eq!((made, heard.lock().len()), (vec![], 0));
    assert!(host.metrics().contains("method=\"GetLoadBalancer\""), "an Ensure became a read");
}
