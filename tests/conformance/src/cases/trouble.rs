//! Answers when the cloud, part of it, or a permission is missing: never that something is absent.

use cloudprovider_proto::{
    method,
    v1alpha1::{ErrorReason, GetLoadBalancerRequest, InstanceState, LoadBalancerState, ServiceRef},
};

use super::{
    built::{behind, next, stands},
    deadlines::is_of_deadline,
    updates::request,
};
use crate::{
    case::{
        Case, Outcome,
        Profile::{Instances, LoadBalancers},
        Stop,
    },
    scenario::Variables,
    trial::{INSPECT, Machine, Trial, Wanted, examine, expect, tcp},
};

const CLOUD: &[&str] = &["create-instance", "terminate-instance", "cut-cloud", "restore-cloud"];
const LOCATION: &[&str] = &["create-instance", "terminate-instance", "cut-location", "restore-location"];
const RIGHTS: &[&str] = &["create-instance", "terminate-instance", "deny-rights", "restore-rights"];
const CREDENTIALS: &[&str] =
    &["create-instance", "terminate-instance", "break-credentials", "restore-credentials"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "TRBL-01",
        Instances,
        "while the cloud is down no instance is absent",
        &["absent-means-looked"],
        &cloud_down,
    )
    .hooks(CLOUD),
    Case::new(
        "TRBL-02",
        Instances,
        "while its location is down no instance is absent",
        &["absent-means-looked"],
        &location_down,
    )
    .words(&["| its location is unreachable | OK, item UNSPECIFIED | LOCATION_UNREACHABLE"])
    .hooks(LOCATION)
    .extended(),
    Case::new(
        "TRBL-03",
        Instances,
        "missing rights win over absence",
        &["error-order", "absent-means-looked"],
        &rights,
    )
    .hooks(RIGHTS)
    .extended(),
    Case::new(
        "TRBL-04",
        Instances,
        "bad credentials win over absence",
        &["error-order", "absent-means-looked"],
        &credentials,
    )
    .hooks(CREDENTIALS)
    .extended(),
    Case::new(
        "TRBL-05",
        LoadBalancers,
        "missing rights win over the absence of a balancer",
        &["error-order"],
        &balancer_rights,
    )
    .hooks(&["deny-rights", "restore-rights"])
    .extended(),
    Case::new(
        "TRBL-06",
        LoadBalancers,
        "while a location is down its instances stay behind their balancers",
        &["built-as-asked"],
        &backends_of_a_location_that_is_down,
    )
    .hooks(&["create-instance", "terminate-instance", "cut-location", "restore-location", INSPECT])
    .extended(),
];

/// Neither the instance nor an unknown one may be reported absent now. Returns the reason of the error, if there is
/// one.
async fn nothing_is_absent(t: &Trial, machine: &Machine) -> Result<Option<ErrorReason>, crate::case::Stop> {
    let nodes = vec![machine.node(), machine.new_node(), t.stranger()];
    let begun = tokio::time::Instant::now();
    let answer = t.instances().batch_get_instances(t.ask(t.batch(nodes))).await;
    match answer {
        // A cloud that is silent makes the deadline pass, which has no reason.
        Err(status) if is_of_deadline(t, &method::BATCH_GET_INSTANCES, begun, &status) => Ok(None),
        Err(status) => {
            examine(t, &status)?;
            Ok(crate::trial::reason_of(&status))
        }
        Ok(answer) => {
            let results = answer.into_inner().results;
            let absent = results.iter().any(|result| result.state() == InstanceState::Absent);
            expect(!absent, "an error, or items of state UNSPECIFIED: nothing is ABSENT", &results)?;
            Ok(results.into_iter().find_map(|result| result.error).map(|error| error.reason()))
        }
    }
}

async fn cloud_down(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer("cut-cloud", Variables::new()).await?;
    nothing_is_absent(t, &machine).await?;
    t.restore("cut-cloud").await?;
    t.eventually("an instance that runs, once the cloud is back", async || look_again(t, &machine).await)
        .await
}

async fn look_again(t: &Trial, machine: &Machine) -> Result<Result<(), String>, crate::case::Stop> {
    let answer = t.instances().batch_get_instances(t.ask(t.batch(vec![machine.node()]))).await;
    let results = answer.map(|answer| answer.into_inner().results).unwrap_or_default();
    let runs = results.iter().any(|result| result.state() == InstanceState::Running);
    Ok(if runs { Ok(()) } else { Err(format!("{results:?}")) })
}

async fn location_down(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer_machine("cut-location", &machine).await?;
    let result = t.look(machine.node()).await?;
    let unknown = result.state() == InstanceState::Unspecified
        && result.error.as_ref().is_some_and(|error| error.reason() == ErrorReason::LocationUnreachable);
    no_excuse(t, result.error.as_ref().map(|error| error.reason()));
    expect(unknown, "UNSPECIFIED with LOCATION_UNREACHABLE", result)?;
    // Judging by their names, these may be exactly where nobody can look.
    for nameless in [machine.new_node(), t.stranger()] {
        let result = t.look(nameless).await?;
        let evident = result.state() == InstanceState::Absent && result.authoritative;
        expect(!evident, "no absence with authority while a location cannot be asked", result)?;
    }
    Ok(())
}

async fn rights(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.steer("deny-rights", Variables::new()).await?;
    wants(t, nothing_is_absent(t, &machine).await?, &[ErrorReason::CloudPermissionDenied])
}

async fn credentials(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.steer("break-credentials", Variables::new()).await?;
    let reasons = [ErrorReason::CloudCredentialsInvalid, ErrorReason::CloudCredentialsExpired];
    wants(t, nothing_is_absent(t, &machine).await?, &reasons)
}

async fn backends_of_a_location_that_is_down(t: &Trial) -> Outcome {
    let machines = t.machines(2).await?;
    let wanted = Wanted { nodes: behind(&machines), ..t.wanted().await? };
    stands(t, &wanted).await?;
    t.steer_machine("cut-location", &machines[0]).await?;
    // The update and the edit may be refused; neither may leave an instance out.
    let update = next(&wanted, |_| {});
    let _either = t.load_balancers().batch_update_load_balancers(t.ask(request(t, &[&update]))).await;
    let edit = next(&update, |edit| edit.service.ports.push(tcp(443)));
    let edited = match t.ensure_or_refused(&edit).await {
        // It may wait for the location.
        Err(Stop::NotRun(_)) => None,
        answer => Some(answer?),
    };
    t.restore("cut-location").await?;
    let is_made = match edited {
        Some(answer) => answer.is_ok(),
        None => t.ensure_or_refused(&edit).await?.is_ok(),
    };
    t.stands(if is_made { &edit } else { &wanted }).await
}

/// What the case itself provokes is not waited for in vain; the pace of a cloud, or of a busy provider, may be.
fn no_excuse(t: &Trial, seen: Option<ErrorReason>) {
    if !matches!(seen, Some(ErrorReason::RateLimited | ErrorReason::ProviderOverloaded)) {
        t.session().patience.refused();
    }
}

fn wants(t: &Trial, seen: Option<ErrorReason>, wanted: &[ErrorReason]) -> Outcome {
    no_excuse(t, seen);
    let told = seen.is_some_and(|seen| wanted.contains(&seen));
    expect(told, format!("one of {wanted:?}"), seen)
}

async fn balancer_rights(t: &Trial) -> Outcome {
    t.steer("deny-rights", Variables::new()).await?;
    let service = ServiceRef { namespace: "conformance".to_owned(), name: t.name(), uid: t.uid() };
    let get = GetLoadBalancerRequest { cluster: t.cluster(), service: Some(service) };
    match t.load_balancers().get_load_balancer(t.ask(get)).await {
        Ok(answer) => {
            let state = answer.into_inner().load_balancer.unwrap_or_default().state();
            expect(state == LoadBalancerState::Unspecified, "an error, or state UNSPECIFIED", state)
        }
        Err(status) => wants(t, crate::trial::reason_of(&status), &[ErrorReason::CloudPermissionDenied]),
    }
}
