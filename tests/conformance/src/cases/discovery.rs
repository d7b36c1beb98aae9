//! The provider's identity.

use cloudprovider_proto::{
    discovery::v1::{GetInfoRequest, GetInfoResponse, discovery_client::DiscoveryClient},
    service_names,
};
use futures::future::join_all;

use crate::{
    case::{Case, Outcome, Profile::Identity, Stop},
    scenario::Variables,
    trial::{Trial, expect, failed, good, same, within_bytes},
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "DISC-01",
        Identity,
        "GetInfo answers, whoever asks and whenever",
        &["discovery-always"],
        &answers,
    ),
    Case::new(
        "DISC-02",
        Identity,
        "no caller is refused because of its name",
        &["discovery-no-refusal"],
        &refuses_nobody,
    ),
    Case::new(
        "DISC-03",
        Identity,
        "the name is a DNS subdomain of at most 63 bytes",
        &["discovery-name"],
        &name,
    ),
    Case::new(
        "DISC-04",
        Identity,
        "who serves instances says how provider IDs begin",
        &["discovery-prefix"],
        &prefixes,
    ),
    Case::new(
        "DISC-05",
        Identity,
        "a service is named if and only if it is served",
        &["discovery-services"],
        &services,
    ),
    Case::new(
        "DISC-06",
        Identity,
        "the process epoch is the same on every connection",
        &["discovery-epoch"],
        &epoch,
    ),
    Case::new(
        "DISC-07",
        Identity,
        "the process epoch differs after a restart",
        &["discovery-epoch"],
        &epoch_after_restart,
    )
    .hooks(&["restart-provider"])
    .extended(),
    Case::new(
        "DISC-08",
        Identity,
        "GetInfo answers while the cloud is down",
        &["discovery-no-cloud", "discovery-always"],
        &answers_without_cloud,
    )
    .hooks(&["cut-cloud", "restore-cloud"])
    .extended(),
    Case::new(
        "DISC-09",
        Identity,
        "GetInfo answers while credentials are bad",
        &["discovery-always"],
        &answers_without_credentials,
    )
    .hooks(&["break-credentials", "restore-credentials"])
    .extended(),
    Case::new("DISC-10", Identity, "the answer stays within its sizes", &[], &sizes).words(&[
        "Request and answer stay below 64 KiB.",
        "Version of the provider, in the vendor's own scheme. Optional, at most 64 bytes.",
    ]),
    Case::new(
        "DISC-11",
        Identity,
        "many callers at once get the same answer",
        &["discovery-always"],
        &many_at_once,
    ),
];

async fn info(t: &Trial) -> Result<GetInfoResponse, Stop> {
    good("GetInfo", t.discovery().get_info(t.ask(GetInfoRequest::default())).await)
}

async fn answers(t: &Trial) -> Outcome {
    for _call in 0..3 {
        info(t).await?;
    }
    Ok(())
}

async fn refuses_nobody(t: &Trial) -> Outcome {
    let long = "x".repeat(253);
    for (name, version) in
        [("ccm-host", "1.0.0"), ("", ""), ("somebody-else", "0"), (&long, "99.99.99-from-the-future")]
    {
        let hello = GetInfoRequest {
            host_name: name.to_owned(),
            host_version: version.to_owned(),
            host_services: vec!["ccm.cloudprovider.v9.Instances".to_owned()],
        };
        let what = format!("GetInfo by {name:?} {version:?}");
        good(&what, t.discovery().get_info(t.ask(hello)).await)?;
    }
    Ok(())
}

fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 63 && name.split('.').all(label)
}

async fn name(t: &Trial) -> Outcome {
    let name = info(t).await?.name;
    expect(is_subdomain(&name), "a DNS subdomain of at most 63 bytes", name)
}

async fn prefixes(t: &Trial) -> Outcome {
    let info = info(t).await?;
    if !info.services.iter().any(|name| name == service_names::INSTANCES) {
        return Err(Stop::NotAdvertised("no instances are served".to_owned()));
    }
    let prefixes = info.provider_id_prefixes;
    let fit = !prefixes.is_empty() && prefixes.iter().all(|prefix| !prefix.is_empty());
    expect(fit, "at least one prefix, none of them empty", prefixes)
}

async fn services(t: &Trial) -> Outcome {
    let named = info(t).await?.services;
    let base = [service_names::DISCOVERY, service_names::CLOUD_PROVIDER];
    for name in base {
        expect(
            named.iter().any(|served| served == name),
            format!("{name}, which every provider serves"),
            &named,
        )?;
    }
    for service in super::capabilities::SERVICES {
        let served = super::capabilities::is_served(t, service).await?;
        let is_named = named.iter().any(|name| name == service);
        if served != is_named {
            let (does, says) =
                (if served { "served" } else { "not served" }, if is_named { "named" } else { "not named" });
            return Err(failed(
                "a service named if and only if it is served",
                format!("{service} is {does} and {says}"),
            ));
        }
    }
    Ok(())
}

async fn epoch(t: &Trial) -> Outcome {
    let first = info(t).await?.process_epoch;
    expect(!first.is_empty(), "an epoch", &first)?;
    within_bytes("an epoch", &first, 64)?;
    for _connection in 0..3 {
        let mut elsewhere = DiscoveryClient::new(t.wire().another());
        let again = good("GetInfo", elsewhere.get_info(t.ask(GetInfoRequest::default())).await)?;
        same("the epoch", &again.process_epoch, &first)?;
    }
    Ok(())
}

async fn epoch_after_restart(t: &Trial) -> Outcome {
    let before = info(t).await?.process_epoch;
    t.restart("restart-provider").await?;
    let after = info(t).await?.process_epoch;
    expect(after != before, format!("another epoch than {before:?}"), after)
}

async fn answers_without_cloud(t: &Trial) -> Outcome {
    t.steer("cut-cloud", Variables::new()).await?;
    info(t).await.map(drop)
}

async fn answers_without_credentials(t: &Trial) -> Outcome {
    t.steer("break-credentials", Variables::new()).await?;
    info(t).await.map(drop)
}

async fn sizes(t: &Trial) -> Outcome {
    let info = info(t).await?;
    within_bytes("vendor_version", &info.vendor_version, 64)?;
    let bytes = prost::Message::encoded_len(&info);
    expect(bytes < 64 << 10, "an answer below 64 KiB", bytes)
}

async fn many_at_once(t: &Trial) -> Outcome {
    let first = info(t).await?;
    let all = join_all((0..32).map(|_| info(t))).await;
    for answer in all {
        same("the answer", &answer?, &first)?;
    }
    Ok(())
}
