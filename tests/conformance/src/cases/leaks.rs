//! Last of all: is anything left of this run?

use crate::{
    case::{
        Case, Outcome,
        Profile::{LoadBalancersList, Routes},
    },
    trial::{Trial, expect},
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
        .words(&["BatchDeleteRoutes removes routes that were listed."]),
];

async fn balancers(t: &Trial) -> Outcome {
    for cluster in [t.cluster().unwrap_or_default(), t.other_cluster()] {
        t.eventually("no balancer of a cluster that this run made up", async || {
            let left = t.listed(&cluster).await?;
            // A former controller's belongs to no cluster of ours.
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
        let left = t.listed_routes(&cluster, &[]).await?;
        expect(left.is_empty(), "no route of a cluster that this run made up", left)?;
    }
    Ok(())
}
