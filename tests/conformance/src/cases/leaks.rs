//! The last cases: whether this run left anything behind, in the cloud or in logs.

use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancersList, Routes, Security},
        Stop,
    },
    scenario::Variables,
    trial::{Trial, failed},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "LEAK-01",
        LoadBalancersList,
        "no balancer of this run is left",
        &["delete-absent-ok"],
        &balancers,
    ),
    Case::new("LEAK-02", Routes, "no route of this run is left", &[], &routes)
        .words(&["BatchDeleteRoutes deletes listed routes."]),
    Case::new(
        "SEC-06",
        Security,
        "after all that was tried, no log tells a secret",
        &["error-no-secret"],
        &logs,
    )
    .hooks(&["find-logs"])
    .extended(),
];

async fn balancers(t: &Trial) -> Outcome {
    t.session().leave_nothing_for_later().await;
    for cluster in [t.cluster().unwrap_or_default(), t.other_cluster()] {
        t.eventually("no balancer of a cluster that this run made up", async || {
            let left = t.listed(&cluster).await?;
            // A former controller's balancer belongs to no cluster of ours.
            let left: Vec<_> = left
                .into_iter()
                .filter(|left| left.ownership() != cloudprovider_proto::v1alpha1::Ownership::ByLegacyName)
                .collect();
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
        })
        .await?;
    }
    Ok(())
}

async fn routes(t: &Trial) -> Outcome {
    for cluster in [t.cluster().unwrap_or_default(), t.other_cluster()] {
        t.eventually("no route of a cluster that this run made up", async || {
            let mut left = t.listed_routes(&cluster, &[]).await?;
            // Without ownership, others' are listed, too, also those of other runs.
            left.retain(|route| t.has_registered_route(&route.destination_cidr));
            Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
        })
        .await?;
    }
    Ok(())
}

async fn logs(t: &Trial) -> Outcome {
    if t.scenario().secrets.is_empty() {
        return Err(Stop::NotRun("the scenario names no secrets to look for".to_owned()));
    }
    let printed = t.hook("find-logs", &Variables::new()).await?;
    let files = printed.get("files").and_then(serde_json::Value::as_array).map(Vec::as_slice);
    for file in files.unwrap_or_default().iter().filter_map(serde_json::Value::as_str) {
        let log = tokio::fs::read(file).await;
        let log = log.map_err(|error| Stop::NotRun(format!("the log {file} cannot be read: {error}")))?;
        let log = String::from_utf8_lossy(&log);
        for (number, line) in log.lines().enumerate() {
            if t.scenario().secrets.iter().any(|secret| line.contains(secret)) {
                return Err(failed(
                    "a log without secrets",
                    format!("a secret in line {} of {file}", number + 1),
                ));
            }
        }
    }
    Ok(())
}
