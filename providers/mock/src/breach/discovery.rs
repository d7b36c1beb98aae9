//! Breaches by who is there and what it can do.

use cloudprovider_sdk::{ProviderError, contract::service_names, proto::Capability};
use tonic::Status;

use super::{Breach, early, late};
use crate::wire::{Answer, Method, Reply, Request, Shot, Turn};

const INFO: &[Method] = &[Method::GetInfo];
const OPTIONAL: &[Method] = &[Method::WatchInstances, Method::ListInstances, Method::AddSshKeyToAllInstances];

pub(super) const BREACHES: &[Breach] = &[
    early("discovery-always", "GetInfo answers an error", INFO, refuse_all),
    early(
        "discovery-no-cloud",
        "GetInfo asks the cloud first, and fails while that is down",
        INFO,
        ask_cloud,
    ),
    early("discovery-no-refusal", "GetInfo refuses whoever says its name", INFO, refuse_names),
    late("discovery-name", "the name is no DNS subdomain, or missing", INFO, name)
        .ways(&["invalid", "missing"]),
    late("discovery-prefix", "no provider-ID prefix, or another one", INFO, prefix)
        .ways(&["missing", "foreign"]),
    late("discovery-services", "a service is left out that is served, or named that is not", INFO, services)
        .ways(&["missing", "extra"]),
    late("discovery-epoch", "the epoch changes from call to call, or is missing", INFO, epoch)
        .ways(&["changing", "missing"]),
    late(
        "capabilities-constant",
        "each answer has other limits and capabilities",
        &[Method::GetCapabilities],
        capabilities,
    ),
    early("advertised-works", "an RPC whose capability is advertised is not served", OPTIONAL, unimplemented),
];

fn refuse_all(_request: &mut Request, _shot: &Shot<'_>) -> Turn {
    Turn::fail(&ProviderError::cloud_credentials_invalid())
}

fn ask_cloud(_request: &mut Request, shot: &Shot<'_>) -> Turn {
    let asked = shot.world.cloud.read(shot.world.now(), |state| state.enter("account:read"));
    match asked {
        Ok(()) => Turn::GoOn,
        Err(error) => Turn::fail(&crate::provider::provider_error(error)),
    }
}

fn refuse_names(request: &mut Request, _shot: &Shot<'_>) -> Turn {
    match request {
        Request::GetInfo(info) if !info.host_name.is_empty() => {
            Turn::fail(&ProviderError::peer_not_trusted("this host is not welcome"))
        }
        _ => Turn::GoOn,
    }
}

fn name(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::GetInfo(info)) = &mut reply.outcome {
        info.name = if shot.variant == "missing" { String::new() } else { "No Name!".to_owned() };
    }
}

fn prefix(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::GetInfo(info)) = &mut reply.outcome {
        info.provider_id_prefixes.clear();
        if shot.variant == "foreign" {
            info.provider_id_prefixes.push("foreign://".to_owned());
        }
    }
}

fn services(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::GetInfo(info)) = &mut reply.outcome {
        if shot.variant == "extra" {
            info.services.push("ccm.cloudprovider.v9.Instances".to_owned());
        } else {
            info.services.retain(|service| service != service_names::INSTANCES);
        }
    }
}

fn epoch(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::GetInfo(info)) = &mut reply.outcome {
        if shot.variant == "missing" {
            info.process_epoch.clear();
        } else {
            info.process_epoch = format!("epoch-{}", shot.world.count());
        }
    }
}

fn capabilities(_request: &Request, reply: &mut Reply, shot: &Shot<'_>) {
    if let Ok(Answer::GetCapabilities(answer)) = &mut reply.outcome {
        let number = shot.world.count();
        let watch = i32::from(Capability::InstancesWatch);
        answer.limits.get_or_insert_default().max_batch_instances =
            1 + u32::try_from(number % 100).unwrap_or(0);
        if number.is_multiple_of(2) {
            answer.capabilities.retain(|capability| *capability != watch);
        }
    }
}

fn unimplemented(_request: &mut Request, _shot: &Shot<'_>) -> Turn {
    Turn::status(Status::unimplemented("not here"))
}
