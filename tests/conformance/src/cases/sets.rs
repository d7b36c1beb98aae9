//! Backend sets that are sent once, and then referred to by their digests.

use cloudprovider_proto::v1alpha1::{
    BackendSet, BatchUpdateLoadBalancersRequest, Capability, EnsureLoadBalancerResponse, ErrorReason,
    LoadBalancerState, UpdateOutcome,
};
use tonic::{Response, Status};

use super::updates;
use crate::{
    case::{Case, Outcome, Profile::LoadBalancers, Stop},
    trial::{INSPECT, Machine, Trial, Wanted, expect, good, refused, same},
};

const BY_DIGEST: Capability = Capability::BackendSetsByDigest;
const UNKNOWN: ErrorReason = ErrorReason::UnknownBackendSet;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "SET-01",
        LoadBalancers,
        "the last four sets are known by their digests",
        &["set-by-digest"],
        &known,
    )
    .capability(BY_DIGEST)
    .hooks(&[INSPECT, "create-instance", "terminate-instance"]),
    Case::new(
        "SET-02",
        LoadBalancers,
        "an unknown digest is refused before anything is changed",
        &["set-unknown"],
        &unknown,
    )
    .words(&["| the backend set's digest is unknown | FAILED_PRECONDITION | UNKNOWN_BACKEND_SET"])
    .capability(BY_DIGEST),
    Case::new(
        "SET-03",
        LoadBalancers,
        "a digest says nothing in another cluster",
        &["set-per-cluster"],
        &other_cluster,
    )
    .capability(BY_DIGEST),
    Case::new(
        "SET-04",
        LoadBalancers,
        "a restart forgets sets without harm",
        &["set-unknown"],
        &after_restart,
    )
    .capability(BY_DIGEST)
    .hooks(&["restart-provider"])
    .extended(),
    Case::new("SET-05", LoadBalancers, "a set that is named has its digest, and nothing else", &[], &shape)
        .words(&["nodes_omitted, otherwise INVALID_ARGUMENT_SHAPE."])
        .capability(BY_DIGEST),
    Case::new(
        "SET-06",
        LoadBalancers,
        "who keeps no sets refuses a digest",
        &["set-needs-capability"],
        &without,
    ),
];

fn named(wanted: &Wanted) -> BackendSet {
    BackendSet { nodes: Vec::new(), nodes_omitted: true, ..wanted.backends() }
}

/// One Ensure with this set.
async fn ensure(
    t: &Trial,
    wanted: &Wanted,
    set: BackendSet,
) -> Result<Response<EnsureLoadBalancerResponse>, Status> {
    let mut request = t.ensure_request(wanted);
    request.backends = Some(set);
    t.load_balancers().ensure_load_balancer(t.ask(request)).await
}

/// Repeats an Ensure by the digest of the set until it is done.
async fn ensure_named(t: &Trial, wanted: &Wanted) -> Outcome {
    t.to_its_end("EnsureLoadBalancer by digest", async || {
        let answer = good("EnsureLoadBalancer by digest", ensure(t, wanted, named(wanted)).await)?;
        Ok(answer.in_progress.map_or(Ok(()), Err))
    })
    .await
}

fn update(t: &Trial, wanted: &Wanted, set: BackendSet) -> BatchUpdateLoadBalancersRequest {
    BatchUpdateLoadBalancersRequest { backends: Some(set), ..updates::request(t, &[wanted]) }
}

async fn update_named(t: &Trial, wanted: &Wanted) -> Outcome {
    t.to_its_end("BatchUpdateLoadBalancers by digest", async || {
        let request = t.ask(update(t, wanted, named(wanted)));
        let answer = t.load_balancers().batch_update_load_balancers(request).await;
        let results = good("BatchUpdateLoadBalancers by digest", answer)?.results;
        if let Some(progress) = results.iter().find_map(|result| result.in_progress.clone()) {
            return Ok(Err(progress));
        }
        let is_done = matches!(&results[..], [one] if one.outcome() == UpdateOutcome::Updated);
        expect(is_done, "UPDATED", results).map(Ok)
    })
    .await
}

/// The same balancer with other instances behind it.
fn with(wanted: &Wanted, machines: &[Machine]) -> Wanted {
    Wanted {
        nodes: machines.iter().map(Machine::node).collect(),
        digest: format!("{}-{}", wanted.digest, machines.len()),
        revision: wanted.revision + 1,
        ..wanted.clone()
    }
}

async fn known(t: &Trial) -> Outcome {
    let machines = t.machines(2).await?;
    let sets = [&machines[..], &machines[..1], &machines[1..], &[]];
    let mut told = t.wanted().await?;
    for set in sets {
        told = with(&told, set);
        t.ensure(&told).await?;
    }
    let mut asked = t.wanted().await?;
    for set in sets {
        asked = with(&asked, set);
        ensure_named(t, &asked).await?;
        t.stands(&asked).await?;
    }
    for set in sets {
        asked = with(&asked, set);
        update_named(t, &asked).await?;
        t.stands(&asked).await?;
    }
    Ok(())
}

/// A set that nobody sent.
fn never_sent(t: &Trial) -> BackendSet {
    BackendSet { digest: format!("never-{}", t.uid()), nodes: Vec::new(), nodes_omitted: true }
}

async fn unknown(t: &Trial) -> Outcome {
    let wanted = t.unmade().await?;
    let told = refused("Ensure by a digest", ensure(t, &wanted, never_sent(t)).await, UNKNOWN)?;
    let digest = told.info.and_then(|info| info.metadata.get("digest").cloned());
    expect(digest.is_some_and(|digest| digest.starts_with("never-")), "metadata \"digest\"", told.status)?;
    let state = t.get(&wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT: nothing was made", state)?;

    t.ensure(&wanted).await?;
    let next = with(&wanted, &[]);
    let batch = update(t, &next, never_sent(t));
    let answer = t.load_balancers().batch_update_load_balancers(t.ask(batch)).await;
    refused("BatchUpdate by a digest", answer, UNKNOWN)?;
    same("applied_digest", &t.get(&wanted).await?.applied_digest, &wanted.digest)?;
    // The nodes are then sent at once, with the same revision.
    t.ensure(&next).await.map(drop)
}

async fn other_cluster(t: &Trial) -> Outcome {
    let ours = t.unmade().await?;
    t.ensure(&ours).await?;
    let theirs = t.wanted_by(t.other_cluster()).await?;
    refused("another cluster's digest", ensure(t, &theirs, named(&ours)).await, UNKNOWN)?;
    let state = t.get(&theirs).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT: nothing was made", state)
}

async fn after_restart(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    t.ensure(&wanted).await?;
    t.restart("restart-provider").await?;
    let answer = ensure(t, &wanted, named(&wanted)).await;
    if answer.is_err() {
        refused("the digest after a restart", answer, UNKNOWN)?;
    }
    t.ensure(&wanted).await?;
    ensure_named(t, &wanted).await
}

async fn shape(t: &Trial) -> Outcome {
    let wanted = t.wanted().await?;
    let nameless = BackendSet { digest: String::new(), ..never_sent(t) };
    let doubtful = BackendSet { nodes: vec![t.stranger()], ..never_sent(t) };
    for (what, set) in [("no digest", nameless), ("nodes that are left out", doubtful)] {
        refused(what, ensure(t, &wanted, set.clone()).await, ErrorReason::InvalidArgumentShape)?;
        let answer = t.load_balancers().batch_update_load_balancers(t.ask(update(t, &wanted, set))).await;
        refused(what, answer, ErrorReason::InvalidArgumentShape)?;
    }
    Ok(())
}

async fn without(t: &Trial) -> Outcome {
    if t.provider().can(BY_DIGEST) {
        return Err(Stop::NotAdvertised("it keeps sets".to_owned()));
    }
    let wanted = t.unmade().await?;
    let answer = ensure(t, &wanted, never_sent(t)).await;
    refused("Ensure by a digest", answer, ErrorReason::InvalidArgumentShape)?;
    let state = t.get(&wanted).await?.state();
    expect(state == LoadBalancerState::Absent, "state ABSENT: nothing was made", state)
}
