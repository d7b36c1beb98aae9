//! Breaches in the provider's identity and capabilities.

use cloudprovider_sdk::{
    ProviderError,
    contract::{discovery::v1::GetInfoResponse, service_names},
    proto::{Capability, GetCapabilitiesResponse},
};
use tonic::Status;

use crate::{
    contract::{Method, method},
    effect::{Effect, Turn, effect},
};

const INFO: &[&Method] = &[&method::GET_INFO];
const OPTIONAL: &[&Method] =
    &[&method::WATCH_INSTANCES, &method::LIST_INSTANCES, &method::ADD_SSH_KEY_TO_ALL_INSTANCES];
const MANDATORY: &[&Method] =
    &[&method::LIST_LOAD_BALANCERS, &method::BATCH_DELETE_ROUTES, &method::GET_CONTROL_PLANE_ENDPOINT];

pub(super) const BREACHES: &[Effect] = &[
    effect("discovery-always", "GetInfo answers an error")
        .to(INFO)
        .early(|_, _| Turn::fail(ProviderError::cloud_credentials_invalid())),
    effect("discovery-no-cloud", "GetInfo asks the cloud first, and fails while that is down")
        .to(INFO)
        .early(|_, shot| {
            let asked = shot.look(|state| state.enter("account:read"));
            asked.map_or_else(Turn::fail, |()| Turn::GoOn)
        }),
    effect("discovery-no-refusal", "GetInfo refuses every host that gives its name").to(INFO).early(
        |request, _| match request.text("host_name").as_str() {
            "" => Turn::GoOn,
            _ => Turn::fail(ProviderError::peer_not_trusted("this host is not welcome")),
        },
    ),
    effect("discovery-name", "the name is not a DNS subdomain, or is missing")
        .to(INFO)
        .ways(&["invalid", "missing"])
        .late(|_, reply, shot| {
            let name = if shot.variant == "missing" { "" } else { "No Name!" };
            reply.each(shot, |info: &mut GetInfoResponse| name.clone_into(&mut info.name));
        }),
    effect("discovery-prefix", "no provider-ID prefix, or a wrong one")
        .to(INFO)
        .ways(&["missing", "foreign"])
        .late(|_, reply, shot| {
            let other = (shot.variant == "foreign").then(|| "foreign://".to_owned());
            reply.each(shot, |info: &mut GetInfoResponse| {
                info.provider_id_prefixes = Vec::from_iter(other.clone());
            });
        }),
    effect("discovery-services", "GetInfo omits a service that is served, or names one that is not")
        .to(INFO)
        .ways(&["missing", "extra"])
        .late(|_, reply, shot| {
            reply.each(shot, |info: &mut GetInfoResponse| match shot.variant {
                "extra" => info.services.push("ccm.cloudprovider.v9.Instances".to_owned()),
                _ => info.services.retain(|service| service != service_names::INSTANCES),
            });
        }),
    effect("discovery-epoch", "the epoch changes from call to call, or is missing")
        .to(INFO)
        .ways(&["changing", "missing"])
        .late(|_, reply, shot| {
            let changing = || format!("epoch-{}", shot.memory.count());
            let epoch = if shot.variant == "missing" { String::new() } else { changing() };
            reply.each(shot, |info: &mut GetInfoResponse| info.process_epoch.clone_from(&epoch));
        }),
    effect("capabilities-constant", "limits and capabilities differ from answer to answer")
        .to(&[&method::GET_CAPABILITIES])
        .late(|_, reply, shot| {
            reply.each(shot, |answer: &mut GetCapabilitiesResponse| {
                let (number, watch) = (shot.memory.count(), i32::from(Capability::InstancesWatch));
                answer.limits.get_or_insert_default().max_batch_instances = 1 + (number % 100) as u32;
                answer.capabilities.retain(|capability| *capability != watch || number % 2 == 1);
            });
        }),
    effect("settings-stable", "each process says that balancers are made of something else")
        .to(&[&method::GET_CAPABILITIES])
        .late(|_, reply, shot| {
            reply.each(shot, |answer: &mut GetCapabilitiesResponse| {
                answer.wants.get_or_insert_default().load_balancer_settings = std::process::id().to_string();
            });
        }),
    effect("advertised-works", "an RPC is not served although its capability is advertised")
        .to(OPTIONAL)
        .early(|_, _| Turn::fail(Status::unimplemented("not here"))),
    effect("served-whole", "an RPC that needs no capability is not served")
        .to(MANDATORY)
        .early(|_, _| Turn::fail(Status::unimplemented("not here"))),
];
