//! Health by `grpc.health.v1`.

use cloudprovider_proto::method;
use tonic::{Code, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

use crate::{
    case::{Case, Outcome, Profile::Observability, Stop},
    provider::in_words,
    scenario::Variables,
    target::Wire,
    trial::{Trial, expect, failed, good, is_bare_unimplemented, within},
};

const WORDS: &[&str] = &["Health (grpc.health.v1) only reports whether it accepts work."];

pub(super) const CASES: &[Case] = &[
    Case::new("HLTH-01", Observability, "the process as a whole is SERVING", &[], &whole).words(WORDS),
    Case::new(
        "HLTH-02",
        Observability,
        "each service that GetInfo names is SERVING",
        &["discovery-services"],
        &services,
    )
    .words(WORDS),
    Case::new("HLTH-03", Observability, "a service that nobody knows is NOT_FOUND", &[], &unknown)
        .words(WORDS)
        .extended(),
    Case::new("HLTH-04", Observability, "a watch of health begins with how it is", &[], &watch).words(WORDS),
    Case::new("HLTH-05", Observability, "health answers while the cloud is down", &[], &without_cloud)
        .words(WORDS)
        .hooks(&["cut-cloud", "restore-cloud"])
        .extended(),
    Case::new("HLTH-06", Observability, "a watch of health hears of a stop", &[], &stop)
        .words(WORDS)
        .hooks(&["restart-provider"])
        .extended(),
];

fn client(t: &Trial) -> HealthClient<Wire> {
    HealthClient::new(t.wire().clone())
}

async fn ask(t: &Trial, service: &str) -> Result<Response<HealthCheckResponse>, Status> {
    let request = HealthCheckRequest { service: service.to_owned() };
    client(t).check(within(request, t.deadline(&method::GET_INFO))).await
}

/// A provider need not serve it: the host then takes an open connection for health.
async fn served(t: &Trial) -> Outcome {
    match ask(t, "").await {
        Err(status) if is_bare_unimplemented(&status) => {
            Err(Stop::NotAdvertised("grpc.health.v1 answers UNIMPLEMENTED".to_owned()))
        }
        _ => Ok(()),
    }
}

async fn check(t: &Trial, service: &str) -> Result<ServingStatus, Stop> {
    Ok(good(&format!("health of {service:?}"), ask(t, service).await)?.status())
}

async fn whole(t: &Trial) -> Outcome {
    served(t).await?;
    let status = check(t, "").await?;
    expect(status == ServingStatus::Serving, "SERVING", status)
}

async fn services(t: &Trial) -> Outcome {
    served(t).await?;
    for service in t.provider().info.services.iter().filter(|name| name.starts_with("ccm.")) {
        let status = check(t, service).await?;
        expect(status == ServingStatus::Serving, format!("{service}: SERVING"), status)?;
    }
    Ok(())
}

async fn unknown(t: &Trial) -> Outcome {
    served(t).await?;
    match ask(t, "no.such.Service").await {
        Err(status) if status.code() == Code::NotFound => Ok(()),
        other => Err(failed("NOT_FOUND", format!("{other:?}"))),
    }
}

async fn watch(t: &Trial) -> Outcome {
    served(t).await?;
    let mut stream = good("health watch", client(t).watch(HealthCheckRequest::default()).await)?;
    let first = tokio::time::timeout(t.deadline(&method::GET_INFO), stream.message()).await;
    let first = first.map_err(|_| failed("a first status", "silence"))?;
    let first = first.map_err(|status| failed("a first status", in_words(&status)))?;
    let status = first.map(|first| first.status());
    expect(status == Some(ServingStatus::Serving), "SERVING", status)
}

async fn without_cloud(t: &Trial) -> Outcome {
    served(t).await?;
    t.steer("cut-cloud", Variables::new()).await?;
    check(t, "").await.map(drop)
}

async fn stop(t: &Trial) -> Outcome {
    served(t).await?;
    let mut stream = good("health watch", client(t).watch(HealthCheckRequest::default()).await)?;
    let told = async {
        loop {
            match stream.message().await {
                Ok(Some(message)) if message.status() == ServingStatus::Serving => {}
                Ok(Some(_)) => return Ok(()),
                Ok(None) => return Err("the stream ended without a word".to_owned()),
                Err(status) => return Err(in_words(&status)),
            }
        }
    };
    let (told, restarted) = tokio::join!(told, t.restart("restart-provider"));
    restarted?;
    told.map_err(|seen| failed("NOT_SERVING before the stream ends", seen))
}
