//! What a list must contain, or say that it does not.

use cloudprovider_proto::v1alpha1::{Capability, InstanceState};

use super::balancers::{only_one, serves};
use crate::{
    case::{
        Case, Outcome,
        Profile::{InstancesList, LoadBalancersList},
        Stop,
    },
    trial::{List, Trial, expect, same},
};

const MACHINE: &[&str] = &["create-instance", "terminate-instance"];

pub(super) const CASES: &[Case] = &[
    Case::new(
        "LIST-01",
        InstancesList,
        "what runs is listed, or a part of the cloud is named as unreachable",
        &["list-unreachable"],
        &machines,
    )
    .hooks(MACHINE),
    Case::new(
        "LIST-02",
        InstancesList,
        "a location that is down is named as unreachable",
        &["list-unreachable"],
        &location_down,
    )
    .hooks(&["create-instance", "terminate-instance", "cut-location", "restore-location"])
    .extended(),
    Case::new(
        "LIST-03",
        InstancesList,
        "listed provider IDs begin as advertised",
        &["provider-id-prefix", "provider-id-stable"],
        &ids,
    )
    .capability(Capability::InstancesList)
    .hooks(MACHINE),
    Case::new(
        "LIST-04",
        LoadBalancersList,
        "what serves is listed with digest and ownership",
        &["applied-digest", "list-unreachable"],
        &balancers,
    ),
    Case::new(
        "LIST-05",
        LoadBalancersList,
        "what serves is listed with its ways in, as Ensure reported them",
        &["ingress-required"],
        &ways_in,
    ),
    Case::new("LIST-06", InstancesList, "an instance that is NOT_OWNED is not listed", &[], &of_others)
        .words(&["ListInstances lists the instances of this cluster, as far as the provider can tell them from others"])
        .capability(Capability::InstancesList)
        .hooks(MACHINE)
        .extended(),
];

async fn machines(t: &Trial) -> Outcome {
    let wanted = List::Instances.fill(t, 3, false).await?;
    t.eventually("every instance in the list, or an unreachable part", async || {
        let all = List::Instances.walk(t, 0).await?;
        let lost: Vec<_> = wanted.iter().filter(|id| !all.keys.contains(id)).collect();
        Ok(if lost.is_empty() || all.unreachable > 0 {
            Ok(())
        } else {
            Err(format!("{lost:?} are not listed"))
        })
    })
    .await
}

async fn location_down(t: &Trial) -> Outcome {
    let machine = t.machine().await?;
    t.look_until(&machine.node(), &[InstanceState::Running]).await?;
    t.steer_machine("cut-location", &machine).await?;
    let all = List::Instances.walk(t, 0).await?;
    expect(all.unreachable > 0, "an unreachable part", all)
}

async fn of_others(t: &Trial) -> Outcome {
    let machine = t.machine_of(t.name(), t.other_cluster()).await?;
    if t.look(machine.node()).await?.state() != InstanceState::NotOwned {
        return Err(Stop::NotRun("the provider cannot tell the instances of two clusters apart".to_owned()));
    }
    let all = List::Instances.walk(t, 0).await?;
    expect(!all.keys.contains(&machine.provider_id), "a list without the other cluster's instance", all)
}

async fn ids(t: &Trial) -> Outcome {
    let wanted = List::Instances.fill(t, 2, false).await?;
    let prefixes = &t.provider().info.provider_id_prefixes;
    t.eventually("every instance in the list by its provider ID", async || {
        let all = List::Instances.walk(t, 0).await?;
        let strange = all.keys.iter().find(|id| !prefixes.iter().any(|prefix| id.starts_with(prefix)));
        expect(strange.is_none(), format!("provider IDs that begin with one of {prefixes:?}"), strange)?;
        let lost: Vec<_> = wanted.iter().filter(|id| !all.keys.contains(id)).collect();
        Ok(if lost.is_empty() { Ok(()) } else { Err(format!("{lost:?} are not listed")) })
    })
    .await
}

async fn balancers(t: &Trial) -> Outcome {
    let all = [t.wanted().await?, t.wanted().await?];
    for wanted in &all {
        t.ensure(wanted).await?;
    }
    for wanted in &all {
        let listed = only_one(t, wanted).await?;
        let whole = listed.applied_digest == wanted.digest
            && listed.ownership() == cloudprovider_proto::v1alpha1::Ownership::ByUid;
        expect(whole, format!("digest {} and ownership BY_UID", wanted.digest), listed)?;
    }
    Ok(())
}

async fn ways_in(t: &Trial) -> Outcome {
    let all = [t.wanted().await?, t.wanted().await?];
    let made = [t.ensured(&all[0]).await?, t.ensured(&all[1]).await?];
    for (wanted, made) in all.iter().zip(made) {
        serves(&made)?;
        let listed = only_one(t, wanted).await?;
        serves(&listed)?;
        same("the ways in", &listed.ingress, &made.ingress)?;
    }
    Ok(())
}
