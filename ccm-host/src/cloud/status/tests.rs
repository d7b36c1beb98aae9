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
        let error = normalise("M", &Status::new(code, message), &mut Findings::default());
        assert_eq!((error.code, error.reason), (want, None), "{code:?} {message:?}");
        assert_eq!(error.is_too_large(), want == Code::OutOfRange, "{code:?} {message:?}");
    }
}

#[test]
fn only_our_details_give_a_reason() {
    let error = normalise(
        "M",
        &ours(Code::ResourceExhausted, "RATE_LIMITED", Some(Duration::from_secs(7))),
        &mut Findings::default(),
    );
    assert!(error.is(ErrorReason::RateLimited));
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));

    let newer =
        normalise("M", &ours(Code::FailedPrecondition, "FROM_THE_FUTURE", None), &mut Findings::default());
    assert_eq!((newer.code, newer.reason), (Code::FailedPrecondition, None));

    let details =
        ErrorDetails::with_error_info("NOT_FOUND", "compute.example.com", std::collections::HashMap::new());
    let foreign = normalise(
        "M",
        &Status::with_error_details(Code::NotFound, "gone", details),
        &mut Findings::default(),
    );
    assert_eq!((foreign.code, foreign.reason), (Code::NotFound, None));
}

#[test]
fn a_method_that_is_not_served_is_known_without_details() {
    let error = normalise("M", &Status::unimplemented(""), &mut Findings::default());
    assert!(error.is(ErrorReason::MethodNotSupported));
}

#[test]
fn a_token_that_expired_is_not_a_message_that_is_too_large() {
    let error =
        normalise("M", &ours(Code::OutOfRange, "RESUME_TOKEN_EXPIRED", None), &mut Findings::default());
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
        let error = item_error("M", item(number), &mut Findings::default());
        assert_eq!((error.reason, error.code), (Some(reason), code), "{number}");
    }
}

#[test]
fn messages_name_their_sources_and_stay_short() {
    let long = normalise("M", &Status::internal("x".repeat(5000)), &mut Findings::default());
    assert_eq!(long.message.len(), defaults::MAX_MESSAGE_TEXT_BYTES);
    let io = std::io::Error::other("the reason below");
    let nested = Status::from_error(Box::new(io));
    let nested = normalise("M", &nested, &mut Findings::default());
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
        let read = normalise("M", &status, &mut Findings::default());
        assert_eq!(read.retry_after, want, "{seconds} s {nanos} ns");
    }
}
