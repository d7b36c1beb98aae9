//! Every reason survives a round trip, within the contract's sizes.

use std::time::Duration;

use anyhow::Context as _;
use cloudprovider_proto::defaults::{MAX_ERROR_DETAIL_BYTES, MAX_MESSAGE_TEXT_BYTES};
use cloudprovider_proto::v1alpha1::ItemError;
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::*;

fn reasons() -> Vec<ErrorReason> {
    (0..200).filter_map(|number| ErrorReason::try_from(number).ok()).collect()
}

/// [R:error-info]
#[test]
fn every_reason_survives_a_status() {
    assert!(reasons().len() > 30);
    for reason in reasons() {
        let error = ProviderError::new(reason, "what happened")
            .with_retry_after(Duration::from_millis(1500))
            .with_metadata("request_id", "req-1")
            .with_field("spec.ports[0]", "is odd")
            .with_quota("project-1", "10 of 10 balancers");
        let status = error.to_status();
        assert_eq!(status.code(), reason.code());
        assert_ne!(status.code(), Code::Ok);
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.domain.as_str(), info.reason.as_str()), ("cloudprovider.ccm", reason.wire_name()));
        let back = ProviderError::from_status(&status).unwrap();
        assert_eq!(back.reason(), reason);
        assert_eq!(back.message(), "what happened");
        assert_eq!(back.retry_after(), Some(Duration::from_millis(1500)));
        assert_eq!(back.metadata(), error.metadata());
        assert_eq!(back.fields(), error.fields());
        assert_eq!(back.quotas(), error.quotas());
    }
}

#[test]
fn every_reason_survives_an_item() {
    for reason in reasons() {
        let error = ProviderError::new(reason, "what happened").with_retry_after(Duration::from_secs(7));
        let item = ItemError::from(error);
        let back = ProviderError::from(&ItemError::decode(item.encode_to_vec().as_slice()).unwrap());
        let wanted = if reason == ErrorReason::Unspecified { ErrorReason::InternalError } else { reason };
        assert_eq!((back.reason(), back.message()), (wanted, "what happened"));
        assert_eq!(back.retry_after(), Some(Duration::from_secs(7)));
    }
}

/// [R:error-size]
#[test]
fn sizes_are_kept_and_text_is_cut_between_characters() {
    let mut error = ProviderError::new(ErrorReason::QuotaExceeded, "ü".repeat(4000));
    assert_eq!(error.message().len(), MAX_MESSAGE_TEXT_BYTES);
    for at in 0..100 {
        let long = "ä ".repeat(500);
        error = error
            .with_metadata(format!("key-{at}"), long.clone())
            .with_field(format!("spec.ports[{at}]"), long.clone())
            .with_quota(format!("subject {at}"), long);
    }
    error = error.with_retry_after(Duration::from_secs(1)).with_metadata("bad key", "x");
    let status = error.to_status();
    assert!(status.details().len() < MAX_ERROR_DETAIL_BYTES, "{} bytes", status.details().len());
    let back = ProviderError::from_status(&status).unwrap();
    assert_eq!(back.reason(), ErrorReason::QuotaExceeded);
    assert_eq!(back.retry_after(), Some(Duration::from_secs(1)));
    assert!(!back.metadata().contains_key("bad key"));
}

#[test]
fn a_status_without_our_details_proves_nothing() {
    let foreign = ErrorDetails::with_error_info("INSTANCE_NOT_FOUND", "other.example", []);
    for status in [
        Status::not_found("no such host"),
        Status::with_details(Code::NotFound, "x", vec![1, 2, 3].into()),
        Status::with_error_details(Code::NotFound, "x", foreign),
    ] {
        assert!(ProviderError::from_status(&status).is_none());
    }
    let newer = ErrorDetails::with_error_info("FROM_THE_FUTURE", "cloudprovider.ccm", []);
    let newer = Status::with_error_details(Code::Aborted, "x", newer);
    assert_eq!(ProviderError::from_status(&newer).unwrap().reason(), ErrorReason::Unspecified);
}

#[test]
fn a_foreign_error_does_not_leak() {
    let cause = || std::io::Error::other("password=hunter2 at 10.0.0.7");
    for error in [
        ProviderError::from(anyhow::Error::new(cause()).context("reading /etc/cloud.conf")),
        ProviderError::from(Box::<dyn Error + Send + Sync>::from(cause())),
        ProviderError::internal(cause()),
    ] {
        assert_eq!(error.reason(), ErrorReason::InternalError);
        assert!(error.source().is_some());
        let status = error.to_status();
        let wire = format!("{status:?}{}", String::from_utf8_lossy(status.details()));
        for leak in ["hunter2", "10.0.0.7", "cloud.conf"] {
            assert!(!wire.contains(leak), "{wire}");
        }
    }
}

#[test]
fn a_typed_error_keeps_its_meaning_through_context() {
    let wrapped =
        anyhow::Error::new(ProviderError::rate_limited(Duration::from_secs(3))).context("listing servers");
    let error = ProviderError::from(wrapped);
    assert_eq!(error.reason(), ErrorReason::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
}

/// [R:error-no-secret]
#[test]
fn secrets_are_redacted_in_every_part() {
    let canary = "canary-hunter2";
    let error = ProviderError::invalid_provider_config(&format!("bad line: password={canary}"))
        .with_metadata("api-token", canary)
        .with_metadata("request", format!("Authorization: Bearer {canary}"))
        .with_field("config", format!("secret: {canary}"));
    let status = error.to_status();
    let wire = format!("{status:?}{}{error:?}{error}", String::from_utf8_lossy(status.details()));
    assert!(!wire.contains(canary), "{wire}");
}

#[test]
fn constructors_say_what_belongs_to_them() {
    assert_eq!(
        ProviderError::rate_limited(Duration::from_secs(2)).retry_after(),
        Some(Duration::from_secs(2))
    );
    assert_eq!(ProviderError::batch_too_large(7, 5).metadata()["max"], "5");
    assert_eq!(ProviderError::cloud_permission_denied("ec2:X").metadata()["action"], "ec2:X");
    assert_eq!(ProviderError::quota_exceeded("p", "ips").quotas(), [("p".to_owned(), "ips".to_owned())]);
    let wrong = ProviderError::invalid_configuration("spec.ports[1]", "no SCTP here");
    assert_eq!(wrong.fields(), [("spec.ports[1]".to_owned(), "no SCTP here".to_owned())]);
}

/// As in every SDK: the provider's own limit for a call to its cloud says that the cloud did not answer.
#[tokio::test(start_paused = true)]
async fn a_call_to_the_cloud_that_took_too_long_is_no_fault_of_the_provider() {
    async fn call() -> anyhow::Result<()> {
        Ok(tokio::time::timeout(Duration::from_secs(1), std::future::pending()).await?)
    }
    let error = ProviderError::from(call().await.context("GET /servers").unwrap_err());
    assert_eq!(error.reason(), ErrorReason::CloudApiUnavailable);
    assert!(error.source().is_some(), "the log says which call");
}
