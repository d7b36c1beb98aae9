//! Breaches by who is there and what it can do.

use cloudprovider_sdk::{
    ProviderError,
    contract::{discovery::v1::GetInfoResponse, service_names},
    proto::{Capability, GetCapabilitiesResponse},
};
use tonic::Status;

use super::{Breach, early, late};
use crate::wire::{Method, Request, Turn};

const INFO: &[Method] = &[Method::GetInfo];
const OPTIONAL: &[Method] = &[Method::WatchInstances, Method::ListInstances, Method::AddSshKeyToAllInstances];

pub(super) const BREACHES: &[Breach] = &[
    early("discovery-always", "GetInfo answers an error", INFO, |_, _| {
        Turn::fail(ProviderError::cloud_credentials_invalid())
    }),
    early(
        "discovery-no-cloud",
        "GetInfo asks the cloud first, and fails while that is down",
        INFO,
        |_, shot| {
            let asked = shot.mock.look(|state| state.enter("account:read"));
            asked.map_or_else(Turn::fail, |()| Turn::GoOn)
        },
    ),
    early(
        "discovery-no-refusal",
        "GetInfo refuses whoever says its name",
        INFO,
        |request, _| match request {
            Request::GetInfo(info) if !info.host_name.is_empty() => {
                Turn::fail(ProviderError::peer_not_trusted("this host is not welcome"))
            }
            _ => Turn::GoOn,
        },
    ),
    late("discovery-name", "the name is no DNS subdomain, or missing", INFO, |_, reply, shot| {
        let name = if shot.variant == "missing" { "" } else { "No Name!" };
        reply.edit(|info: &mut GetInfoResponse| name.clone_into(&mut info.name));
    })
    .ways(&["invalid", "missing"]),
    late("discovery-prefix", "no provider-ID prefix, or another one", INFO, |_, reply, shot| {
        let other = (shot.variant == "foreign").then(|| "foreign://".to_owned());
        reply.edit(|info: &mut GetInfoResponse| info.provider_id_prefixes = Vec::from_iter(other));
    })
    .ways(&["missing", "foreign"]),
    late(
        "discovery-services",
        "a service is left out that is served, or named that is not",
        INFO,
        |_, reply, shot| {
            reply.edit(|info: &mut GetInfoResponse| match shot.variant {
                "extra" => info.services.push("ccm.cloudprovider.v9.Instances".to_owned()),
                _ => info.services.retain(|service| service != service_names::INSTANCES),
            });
        },
    )
    .ways(&["missing", "extra"]),
    late("discovery-epoch", "the epoch changes from call to call, or is missing", INFO, |_, reply, shot| {
        let changing = || format!("epoch-{}", shot.memory.count());
        let epoch = if shot.variant == "missing" { String::new() } else { changing() };
        reply.edit(|info: &mut GetInfoResponse| info.process_epoch = epoch);
    })
    .ways(&["changing", "missing"]),
    late(
        "capabilities-constant",
        "each answer has other limits and capabilities",
        &[Method::GetCapabilities],
        |_, reply, shot| {
            reply.edit(|answer: &mut GetCapabilitiesResponse| {
                let (number, watch) = (shot.memory.count(), i32::from(Capability::InstancesWatch));
                answer.limits.get_or_insert_default().max_batch_instances = 1 + (number % 100) as u32;
                answer.capabilities.retain(|capability| *capability != watch || number % 2 == 1);
            });
        },
    ),
    early("advertised-works", "an RPC whose capability is advertised is not served", OPTIONAL, |_, _| {
        Turn::fail(Status::unimplemented("not here"))
    }),
];
