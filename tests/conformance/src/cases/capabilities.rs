//! What the provider claims it can do, and whether it can.

use std::time::Duration;

use cloudprovider_proto::{
    defaults, method, service_names,
    v1alpha1::{
        AddSshKeyToAllInstancesRequest, Capability, GetCapabilitiesRequest, GetCapabilitiesResponse,
        ListInstancesRequest, WatchInstancesRequest,
    },
};
use tonic::{Code, Response, Status};

use crate::{
    case::{Case, Outcome, Profile::Identity, Stop},
    provider::{in_words, no_answer},
    scenario::Variables,
    trial::{Trial, expect, failed, good, is_bare_unimplemented, same, within},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "CAP-01",
        Identity,
        "the answer is the same whenever it is asked for",
        &["capabilities-constant"],
        &constant,
    ),
    Case::new(
        "CAP-02",
        Identity,
        "GetCapabilities answers the same while the cloud is down",
        &["capabilities-constant"],
        &without_cloud,
    )
    .hooks(&["cut-cloud", "restore-cloud"])
    .extended(),
    Case::new("CAP-03", Identity, "what is advertised is served", &["advertised-works"], &advertised_works),
    Case::new("CAP-04", Identity, "the message size is within its bounds", &[], &message_size).words(&[
        "Bytes of one message in either direction. Default 16 MiB, at least 4 MiB, at most 64 MiB.",
    ]),
    Case::new(
        "CAP-05",
        Identity,
        "each advertised deadline is of an RPC and within its maximum",
        &[],
        &deadlines,
    )
    .words(&["Each stays within the maximum that the RPC names."]),
    Case::new("CAP-06", Identity, "intervals are positive where they are set", &[], &intervals)
        .words(&["Intervals are the provider's periods and validities. Absent: the default in the comment."]),
    Case::new("CAP-07", Identity, "rates are positive where they are set", &[], &rates)
        .words(&["Tokens per second. Required and positive; otherwise the limit is ignored."])
        .extended(),
    Case::new("CAP-08", Identity, "a service that is not served answers UNIMPLEMENTED", &[], &not_served)
        .words(&["| the RPC or service is not served | UNIMPLEMENTED | METHOD_NOT_SUPPORTED or none |"]),
    Case::new(
        "CAP-09",
        Identity,
        "what needs no capability is served with its service",
        &["served-whole"],
        &served_whole,
    ),
    Case::new(
        "CAP-10",
        Identity,
        "a restart alone does not change what load balancers are made of",
        &["settings-stable"],
        &settings_after_restart,
    )
    .hooks(&["restart-provider"])
    .extended(),
];

/// The RPCs that need no capability, by service.
const MANDATORY: &[(&str, &[&str])] = &[
    (service_names::CLOUD_PROVIDER, &["GetCapabilities", "GetStatus"]),
    (service_names::INSTANCES, &["BatchGetInstances"]),
    (
        service_names::LOAD_BALANCERS,
        &[
            "GetLoadBalancer",
            "EnsureLoadBalancer",
            "BatchUpdateLoadBalancers",
            "DeleteLoadBalancer",
            "ListLoadBalancers",
        ],
    ),
    (service_names::ROUTES, &["ListRoutes", "BatchEnsureRoutes", "BatchDeleteRoutes"]),
    (service_names::VOLUMES, &["BatchGetVolumeLabels"]),
    (service_names::CLUSTERS, &["ListClusters", "GetControlPlaneEndpoint"]),
];

/// Services that a provider may serve or not.
pub(super) const SERVICES: &[&str] = &[
    service_names::INSTANCES,
    service_names::LOAD_BALANCERS,
    service_names::ROUTES,
    service_names::VOLUMES,
    service_names::CLUSTERS,
];

const RPCS: [(&str, u64); 19] = [
    ("GetInfo", 10),
    ("GetCapabilities", 10),
    ("GetStatus", 10),
    ("Lead", 10),
    ("BatchGetInstances", 120),
    ("WatchInstances", u64::MAX),
    ("ListInstances", 120),
    ("AddSshKeyToAllInstances", 600),
    ("GetLoadBalancer", 120),
    ("EnsureLoadBalancer", 600),
    ("BatchUpdateLoadBalancers", 600),
    ("DeleteLoadBalancer", 600),
    ("ListLoadBalancers", 120),
    ("ListRoutes", 120),
    ("BatchEnsureRoutes", 300),
    ("BatchDeleteRoutes", 300),
    ("BatchGetVolumeLabels", 120),
    ("ListClusters", 120),
    ("GetControlPlaneEndpoint", 120),
];

/// Whether a service is served: any answer except UNIMPLEMENTED shows that it exists.
pub(super) async fn is_served(t: &Trial, service: &str) -> Result<bool, Stop> {
    let method = MANDATORY.iter().find(|(name, _)| *name == service).and_then(|(_, methods)| methods.first());
    match call_empty(t, &format!("/{service}/{}", method.unwrap_or(&""))).await {
        Err(status) if no_answer(&status).is_some() => {
            Err(failed(format!("an answer of {service}"), in_words(&status)))
        }
        answer => Ok(!answer.is_err_and(|status| is_bare_unimplemented(&status))),
    }
}

async fn ask(t: &Trial) -> Result<GetCapabilitiesResponse, Stop> {
    good("GetCapabilities", t.base().get_capabilities(t.ask(GetCapabilitiesRequest::default())).await)
}

async fn constant(t: &Trial) -> Outcome {
    let first = ask(t).await?;
    for host_max_message_bytes in [0, 4 << 20, 16 << 20, 64 << 20] {
        let request = t.ask(GetCapabilitiesRequest { host_max_message_bytes });
        let again = good("GetCapabilities", t.base().get_capabilities(request).await)?;
        same("the same answer:", &again, &first)?;
    }
    Ok(())
}

async fn without_cloud(t: &Trial) -> Outcome {
    let before = ask(t).await?;
    t.steer("cut-cloud", Variables::new()).await?;
    same("the same answer:", &ask(t).await?, &before)
}

fn implemented<T>(capability: Capability, answer: Result<Response<T>, Status>) -> Outcome {
    match answer {
        Err(status) if status.code() == Code::Unimplemented => {
            Err(failed(format!("no UNIMPLEMENTED for {}", capability.as_str_name()), in_words(&status)))
        }
        _ => Ok(()),
    }
}

async fn advertised_works(t: &Trial) -> Outcome {
    let cluster = || t.cluster();
    let mut tried = false;
    if t.provider().can(Capability::InstancesList) {
        let list = ListInstancesRequest { cluster: cluster(), ..Default::default() };
        implemented(Capability::InstancesList, t.instances().list_instances(t.ask(list)).await)?;
        tried = true;
    }
    if t.provider().can(Capability::InstancesWatch) {
        let watch = WatchInstancesRequest { cluster: cluster(), ..Default::default() };
        implemented(Capability::InstancesWatch, t.instances().watch_instances(t.ask(watch)).await)?;
        tried = true;
    }
    if t.provider().can(Capability::SshKeys) {
        // Not a key: a provider that serves this refuses it, and distributes nothing.
        let nothing = AddSshKeyToAllInstancesRequest::default();
        implemented(Capability::SshKeys, t.instances().add_ssh_key_to_all_instances(t.ask(nothing)).await)?;
        tried = true;
    }
    if tried { Ok(()) } else { Err(Stop::NotAdvertised("no RPC hangs on what is advertised".to_owned())) }
}

async fn message_size(t: &Trial) -> Outcome {
    let bytes = ask(t).await?.limits.unwrap_or_default().max_message_bytes;
    let fits = bytes == 0 || (4 << 20..=defaults::HARD_MAX_MESSAGE_BYTES).contains(&bytes);
    expect(fits, "0, or 4 MiB to 64 MiB", bytes)
}

async fn deadlines(t: &Trial) -> Outcome {
    for advertised in ask(t).await?.limits.unwrap_or_default().deadlines {
        let Some((_, most)) = RPCS.iter().find(|(name, _)| *name == advertised.method) else {
            return Err(failed("the name of an RPC without its service", advertised.method));
        };
        let deadline =
            advertised.deadline.and_then(|deadline| Duration::try_from(deadline).ok()).unwrap_or_default();
        let fits = !deadline.is_zero() && deadline.as_secs_f64() <= *most as f64;
        expect(
            fits,
            format!("{}: a deadline of more than 0 and at most {most} s", advertised.method),
            deadline,
        )?;
    }
    Ok(())
}

async fn intervals(t: &Trial) -> Outcome {
    let intervals = ask(t).await?.intervals.unwrap_or_default();
    for (name, interval) in [
        ("resume_token_validity", intervals.resume_token_validity),
        ("bookmark_interval", intervals.bookmark_interval),
        ("watch_max_age", intervals.watch_max_age),
        ("instance_sweep", intervals.instance_sweep),
    ] {
        let Some(interval) = interval else { continue };
        let positive = Duration::try_from(interval).is_ok_and(|interval| !interval.is_zero());
        expect(positive, format!("a positive {name}"), interval)?;
    }
    Ok(())
}

async fn rates(t: &Trial) -> Outcome {
    let limits = ask(t).await?.limits.unwrap_or_default();
    for rate in [limits.reads, limits.mutations].into_iter().flatten() {
        expect(rate.per_second > 0.0, "a positive rate", rate)?;
    }
    Ok(())
}

async fn served_whole(t: &Trial) -> Outcome {
    for (service, methods) in MANDATORY.iter().filter(|(service, _)| t.provider().serves(service)) {
        for method in *methods {
            if let Err(status) = call_empty(t, &format!("/{service}/{method}")).await
                && is_bare_unimplemented(&status)
            {
                return Err(failed(format!("{method}, which needs no capability"), in_words(&status)));
            }
        }
    }
    Ok(())
}

async fn settings_after_restart(t: &Trial) -> Outcome {
    let settings = async || Ok(ask(t).await?.wants.unwrap_or_default().load_balancer_settings);
    let before = settings().await?;
    if before.is_empty() {
        return Err(Stop::NotAdvertised("no load_balancer_settings".to_owned()));
    }
    expect(before.len() <= 64, "at most 64 bytes", &before)?;
    t.restart("restart-provider").await?;
    same("load_balancer_settings", &settings().await?, &before)
}

/// Calls with an empty request, which must be refused, so that nothing happens in the cloud.
async fn call_empty(t: &Trial, path: &str) -> Result<prost::bytes::Bytes, Status> {
    let request = within(prost::bytes::Bytes::new(), t.deadline(&method::GET_INFO));
    crate::target::raw_call(&t.patient(), path, request).await
}

async fn not_served(t: &Trial) -> Outcome {
    match call_empty(t, "/ccm.cloudprovider.v1alpha1.NoSuchService/NoSuchMethod").await {
        Err(status) if status.code() == Code::Unimplemented => Ok(()),
        Err(status) => Err(failed("UNIMPLEMENTED", in_words(&status))),
        Ok(bytes) => Err(failed("UNIMPLEMENTED", format!("OK with {} bytes", bytes.len()))),
    }
}
