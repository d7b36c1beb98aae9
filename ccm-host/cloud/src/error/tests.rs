use tonic_types::ErrorDetails;

use super::*;

fn ours(code: Code, reason: &str, retry: Option<Duration>) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, std::collections::HashMap::new());
    if retry.is_some() {
        details.set_retry_info(retry);
    }
    Status::with_error_details(code, "text", details)
}

/// spec/stack.md section 3, and the message sizes of other languages.
#[test]
fn what_libraries_return_is_what_it_means() {
    let rows = [
        (Code::Cancelled, "Timeout expired", Code::DeadlineExceeded),
        (Code::Cancelled, "operation was canceled", Code::Unavailable),
        (Code::Cancelled, "h2 protocol error: http2 error", Code::Internal),
        (Code::Unknown, "transport error", Code::Unavailable),
        (Code::Unknown, "h2 protocol error: error reading a body from connection", Code::Unavailable),
        (Code::Unknown, "connection error: broken pipe", Code::Unavailable),
        (Code::Unknown, "a nil pointer", Code::Unknown),
        (Code::Unavailable, "tcp connect error", Code::Unavailable),
        (
            Code::OutOfRange,
            "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
            Code::OutOfRange,
        ),
        (Code::ResourceExhausted, "grpc: received message larger than max (5 vs. 4)", Code::OutOfRange),
        (Code::ResourceExhausted, "gRPC message exceeds maximum size 4: 5", Code::OutOfRange),
        (Code::ResourceExhausted, "no memory", Code::ResourceExhausted),
        (Code::OutOfRange, "index 7", Code::Unknown),
        (Code::NotFound, "no such thing", Code::NotFound),
        (Code::DeadlineExceeded, "", Code::DeadlineExceeded),
    ];
    for (code, message, want) in rows {
        let error = CloudError::of_status("M", &Status::new(code, message), &mut Findings::default());
        assert_eq!((error.code, error.reason), (want, None), "{code:?} {message:?}");
        assert_eq!(error.is_too_large(), want == Code::OutOfRange, "{code:?} {message:?}");
    }
}

/// A provider that ends: it takes the connection, and no call.
async fn take_no_call(mut io: tokio::io::DuplexStream, go_away: h2::Reason) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const HEADERS: u8 = 1;
    // An empty SETTINGS frame.
    io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
    io.read_exact(&mut [0; 24]).await?;
    loop {
        let mut head = [0; 9];
        io.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        io.read_exact(&mut vec![0; length as usize]).await?;
        if head[3] == HEADERS {
            // A GOAWAY frame whose last stream is none.
            io.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await?;
            io.write_all(&u32::from(go_away).to_be_bytes()).await?;
        }
    }
}

/// What a call gets that a provider which ends did not take.
async fn status_after(go_away: h2::Reason) -> Status {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(take_no_call(theirs, go_away));
    let mut ours = Some(hyper_util::rt::TokioIo::new(ours));
    let connector = tower::service_fn(move |_: http::Uri| {
        std::future::ready(ours.take().ok_or(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))
    });
    let channel = tonic::transport::Endpoint::from_static("http://localhost")
        .connect_with_connector(connector)
        .await
        .unwrap();
    pb::instances_client::InstancesClient::new(channel)
        .batch_get_instances(pb::BatchGetInstancesRequest::default())
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_call_that_a_provider_which_ends_did_not_take_is_unanswered() {
    for reason in [h2::Reason::NO_ERROR, h2::Reason::INTERNAL_ERROR, h2::Reason::ENHANCE_YOUR_CALM] {
        let status = status_after(reason).await;
        let error = CloudError::of_status("M", &status, &mut Findings::default());
        assert_eq!((error.code, error.reason), (Code::Unavailable, None), "{status:?}");
        assert!(error.is_unanswered, "{status:?}");
    }
}

#[test]
fn only_our_details_give_a_reason() {
    let error = CloudError::of_status(
        "M",
        &ours(Code::ResourceExhausted, "RATE_LIMITED", Some(Duration::from_secs(7))),
        &mut Findings::default(),
    );
    assert!(error.is(ErrorReason::RateLimited));
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));

    let newer = CloudError::of_status(
        "M",
        &ours(Code::FailedPrecondition, "FROM_THE_FUTURE", None),
        &mut Findings::default(),
    );
    assert_eq!((newer.code, newer.reason), (Code::FailedPrecondition, None));

    let details =
        ErrorDetails::with_error_info("NOT_FOUND", "compute.example.com", std::collections::HashMap::new());
    let foreign = CloudError::of_status(
        "M",
        &Status::with_error_details(Code::NotFound, "gone", details),
        &mut Findings::default(),
    );
    assert_eq!((foreign.code, foreign.reason), (Code::NotFound, None));
}

#[test]
fn a_method_that_is_not_served_is_known_without_details() {
    let error = CloudError::of_status("M", &Status::unimplemented(""), &mut Findings::default());
    assert!(error.is(ErrorReason::MethodNotSupported));
}

#[test]
fn a_token_that_expired_is_not_a_message_that_is_too_large() {
    let error = CloudError::of_status(
        "M",
        &ours(Code::OutOfRange, "RESUME_TOKEN_EXPIRED", None),
        &mut Findings::default(),
    );
    assert!(error.is(ErrorReason::ResumeTokenExpired) && !error.is_too_large());
}

#[test]
fn errors_of_items_have_the_code_of_their_reason() {
    let item = |reason: i32| pb::ItemError { reason, message: "m".into(), retry_after: None };
    let rows = [
        (ErrorReason::NeedsEnsure as i32, ErrorReason::NeedsEnsure, Code::FailedPrecondition),
        (0, ErrorReason::InternalError, Code::Internal),
        (9999, ErrorReason::InternalError, Code::Internal),
    ];
    for (number, reason, code) in rows {
        let error = CloudError::of_item("M", item(number), &mut Findings::default());
        assert_eq!((error.reason, error.code), (Some(reason), code), "{number}");
    }
}

#[test]
fn messages_name_their_sources_and_stay_short() {
    let long = CloudError::of_status("M", &Status::internal("x".repeat(5000)), &mut Findings::default());
    assert_eq!(long.message.len(), defaults::MAX_MESSAGE_TEXT_BYTES);
    let io = std::io::Error::other("the reason below");
    let nested = Status::from_error(Box::new(io));
    let nested = CloudError::of_status("M", &nested, &mut Findings::default());
    assert!(nested.message.contains("the reason below"));
}

/// N7: no library would send this, but anybody may.
#[test]
fn a_time_to_try_again_before_all_times_is_none() {
    for (seconds, nanos, want) in [
        (i64::MIN, i32::MIN, None),
        (-1, 0, None),
        (0, 0, None),
        (0, 1, Some(Duration::from_millis(100))),
        (i64::MAX, i32::MAX, Some(Duration::from_secs(3600))),
    ] {
        let retry_delay = Some(prost_types::Duration { seconds, nanos });
        let value = tonic_types::pb::RetryInfo { retry_delay }.encode_to_vec();
        let any = prost_types::Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value };
        let details = tonic_types::pb::Status { details: vec![any], ..Default::default() }.encode_to_vec();
        let status = Status::with_details(Code::Unavailable, "later", details.into());
        let read = CloudError::of_status("M", &status, &mut Findings::default());
        assert_eq!(read.retry_after, want, "{seconds} s {nanos} ns");
    }
}
