//! The form of errors that any provider can be made to return without a hook.

use cloudprovider_proto::v1alpha1::{BatchGetInstancesRequest, GetLoadBalancerRequest, ListRoutesRequest};
use tonic::Status;

use crate::{
    case::{
        Case, Outcome,
        Profile::{Instances, LoadBalancers, Routes},
        Stop,
    },
    trial::{List, Trial, examine, expect, failed, no_secret, small},
};

const INFO: &[&str] = &["error-info"];
const SIZE: &[&str] = &["error-size"];
const SECRET: &[&str] = &["error-no-secret"];
const ORDER: &[&str] = &["error-order", "cluster-uid-required"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "ERR-01",
        Instances,
        "errors of Instances carry ErrorInfo, a known reason and its code",
        INFO,
        &instances_info,
    ),
    Case::new(
        "ERR-02",
        LoadBalancers,
        "errors of LoadBalancers carry ErrorInfo, a known reason and its code",
        INFO,
        &balancers_info,
    ),
    Case::new(
        "ERR-03",
        Routes,
        "errors of Routes carry ErrorInfo, a known reason and its code",
        INFO,
        &routes_info,
    ),
    Case::new("ERR-04", Instances, "details of errors of Instances stay below 4 KiB", SIZE, &instances_size),
    Case::new(
        "ERR-05",
        LoadBalancers,
        "details of errors of LoadBalancers stay below 4 KiB",
        SIZE,
        &balancers_size,
    ),
    Case::new("ERR-06", Instances, "no error of Instances tells a secret", SECRET, &instances_secret),
    Case::new("ERR-07", LoadBalancers, "no error of LoadBalancers tells a secret", SECRET, &balancers_secret),
    Case::new("ERR-08", Instances, "the same error twice has the same message", INFO, &comparable)
        .words(&["so that messages stay comparable"]),
    Case::new(
        "ERR-09",
        LoadBalancers,
        "the shape of the arguments is checked before existence",
        ORDER,
        &shape_first,
    ),
];

fn refusal<T>(what: &str, answer: Result<T, Status>) -> Result<Status, Stop> {
    answer.err().ok_or_else(|| failed(format!("{what}: an error"), "OK"))
}

async fn of_instances(t: &Trial) -> Result<Vec<Status>, Stop> {
    let nobody = BatchGetInstancesRequest::default();
    let nobody = t.instances().batch_get_instances(t.ask(nobody)).await;
    let nothing = t.instances().batch_get_instances(t.ask(t.batch(Vec::new()))).await;
    Ok(vec![refusal("no cluster", nobody)?, refusal("no query", nothing)?])
}

async fn of_balancers(t: &Trial) -> Result<Vec<Status>, Stop> {
    let nobody = t.load_balancers().get_load_balancer(t.ask(GetLoadBalancerRequest::default())).await;
    let mut shapeless = t.ensure_request(&t.unmade().await?);
    shapeless.desired_digest.clear();
    let shapeless = t.load_balancers().ensure_load_balancer(t.ask(shapeless)).await;
    Ok(vec![refusal("no cluster", nobody)?, refusal("no digest", shapeless)?])
}

async fn of_routes(t: &Trial) -> Result<Vec<Status>, Stop> {
    let nobody = t.routes().list_routes(t.ask(ListRoutesRequest::default())).await;
    let garbage = List::Routes.page(t, 0, "never-issued-by-anybody").await;
    Ok(vec![refusal("no cluster", nobody)?, refusal("a token that was never issued", garbage)?])
}

async fn instances_info(t: &Trial) -> Outcome {
    of_instances(t).await?.iter().try_for_each(|status| examine(t, status))
}

async fn balancers_info(t: &Trial) -> Outcome {
    of_balancers(t).await?.iter().try_for_each(|status| examine(t, status))
}

async fn routes_info(t: &Trial) -> Outcome {
    of_routes(t).await?.iter().try_for_each(|status| examine(t, status))
}

async fn instances_size(t: &Trial) -> Outcome {
    of_instances(t).await?.iter().try_for_each(small)
}

async fn balancers_size(t: &Trial) -> Outcome {
    of_balancers(t).await?.iter().try_for_each(small)
}

async fn instances_secret(t: &Trial) -> Outcome {
    of_instances(t).await?.iter().try_for_each(|status| no_secret(&t.scenario().secrets, status))
}

async fn balancers_secret(t: &Trial) -> Outcome {
    of_balancers(t).await?.iter().try_for_each(|status| no_secret(&t.scenario().secrets, status))
}

async fn comparable(t: &Trial) -> Outcome {
    let message = |status: &Status| status.message().to_owned();
    let first: Vec<_> = of_instances(t).await?.iter().map(message).collect();
    let second: Vec<_> = of_instances(t).await?.iter().map(message).collect();
    expect(first == second, format!("the messages {first:?}"), second)
}

async fn shape_first(t: &Trial) -> Outcome {
    // None of this exists; the error must name what is wrong with the call, not the absence.
    for status in of_balancers(t).await? {
        examine(t, &status)?;
        expect(
            status.code() == tonic::Code::InvalidArgument,
            "INVALID_ARGUMENT",
            crate::provider::in_words(&status),
        )?;
    }
    Ok(())
}
