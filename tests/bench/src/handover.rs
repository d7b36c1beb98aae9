//! How long nobody serves after the leader ends, with Leases at their defaults: two processes run, one leads, and a
//! Service is made at the moment in which the leader has ended.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use test_cluster::{services, wait};

use crate::{report::Phase, subject::Subject};

const TIMES: usize = 3;
/// Longer than a Lease and its retries.
const LIMIT: Duration = Duration::from_secs(60);

/// How a leader ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Term,
    Kill,
    Stop,
}

/// Ends each leader in one of three ways.
pub(crate) async fn measure(subject: &Subject) -> Result<Phase> {
    let mut leader = subject.start_contender("contender-first").await?;
    serves(subject, "service-first").await?;
    let mut phase = Phase::new("the leader ends: seconds until a Service made then has its address");
    for (end, name) in [(End::Term, "SIGTERM"), (End::Kill, "SIGKILL"), (End::Stop, "SIGSTOP")] {
        let mut took = Vec::new();
        for time in 0..TIMES {
            let of = format!("{}-{time}", name.to_lowercase());
            let next = subject.start_contender(&format!("contender-{of}")).await?;
            subject.stands_by(&next).await?;
            let begun = Instant::now();
            match end {
                End::Term => drop(leader.terminate().await?),
                End::Kill => leader.kill()?,
                End::Stop => leader.pause()?,
            }
            serves(subject, &format!("service-{of}")).await.with_context(|| next.tail())?;
            took.push(begun.elapsed().as_secs_f64());
            // The former one, if it is stopped, is killed by this.
            leader = next;
        }
        phase.value(format!("{name}, mean of {TIMES}"), took.iter().sum::<f64>() / TIMES as f64, 1);
        phase.value(format!("{name}, longest"), took.iter().copied().fold(0.0, f64::max), 1);
    }
    Ok(phase)
}

/// Makes a Service and waits until it has an address.
async fn serves(subject: &Subject, name: &str) -> Result<()> {
    let client = &subject.cluster.client;
    services::create(client, services::load_balancer(name)).await?;
    let api = Api::<Service>::namespaced(client.clone(), "default");
    wait::until_within(LIMIT, &format!("{name} has an address"), async || {
        Ok((!services::ingress(&api.get(name).await?).is_empty()).then_some(()))
    })
    .await
}
