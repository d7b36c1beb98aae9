#![allow(clippy::result_large_err, reason = "AWS's error is what it is")]

use aws_sdk_ec2::error::ErrorMetadata;
use cloudprovider_sdk::ProviderError;
use cloudprovider_sdk::proto::ErrorReason as R;

use super::*;

#[derive(Debug)]
struct Answered(ErrorMetadata);

impl std::fmt::Display for Answered {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

impl std::error::Error for Answered {}

impl ProvideErrorMetadata for Answered {
    fn meta(&self) -> &ErrorMetadata {
        &self.0
    }
}

/// What AWS answers with, as its client has it.
fn refusal(status: u16, code: Option<&str>) -> SdkError<Answered> {
    let unknown = "AWS was not able to validate the provided access credentials";
    let mut metadata = ErrorMetadata::builder().message(if status == 401 { unknown } else { "why" });
    if let Some(code) = code {
        metadata = metadata.code(code);
    }
    let answer = aws_sdk_ec2::config::http::HttpResponse::new(status.try_into().unwrap(), "".into());
    SdkError::service_error(Answered(metadata.build()), answer)
}

#[test]
fn every_code_of_aws_has_its_reason() {
    for (status, code, reason) in [
        (503, Some("RequestLimitExceeded"), R::RateLimited),
        (400, Some("Throttling"), R::RateLimited),
        (401, Some("AuthFailure"), R::CloudCredentialsInvalid),
        (403, Some("AuthFailure"), R::CloudPermissionDenied),
        (403, Some("SignatureDoesNotMatch"), R::CloudCredentialsInvalid),
        (400, Some("ExpiredToken"), R::CloudCredentialsExpired),
        (400, Some("RequestExpired"), R::CloudCredentialsExpired),
        (403, Some("UnauthorizedOperation"), R::CloudPermissionDenied),
        (403, Some("AccessDenied"), R::CloudPermissionDenied),
        (500, Some("InternalError"), R::CloudApiUnavailable),
        (503, Some("Unavailable"), R::CloudApiUnavailable),
        (502, None, R::CloudApiUnavailable),
        (200, None, R::CloudApiUnavailable),
        (400, Some("InsufficientFreeAddressesInSubnet"), R::CapacityUnavailable),
        (400, Some("InvalidParameterValue"), R::InternalError),
        (400, Some("InvalidSecurityGroup"), R::InvalidConfiguration),
        // What was made or deleted just now, which AWS does not tell everywhere at once.
        (400, Some("InvalidGroup.NotFound"), R::RetryLater),
        (400, Some("DuplicateLoadBalancerName"), R::RetryLater),
        (400, Some("LoadBalancerNotFound"), R::RetryLater),
        (400, Some("TargetGroupNotFound"), R::RetryLater),
        (400, Some("ListenerNotFound"), R::RetryLater),
    ] {
        let error = ProviderError::from(Failure::of(Action::GetInstances, refusal(status, code)));
        assert_eq!(error.reason(), reason, "{status} {code:?}");
    }
    let denied =
        ProviderError::from(Failure::of(Action::FindInstances, refusal(403, Some("UnauthorizedOperation"))));
    assert_eq!(denied.metadata()["action"], "ec2:DescribeInstances");
}

#[test]
fn nodes_do_not_wait_for_what_balancing_throttles() {
    let throttled = |action| Failure::of(action, refusal(400, Some("Throttling")));
    let paced = |action| Failure::paced(action, Duration::from_secs(9));
    let scope = |failure: Failure| ProviderError::from(failure).metadata().get("scope").cloned();
    for of in [&throttled as &dyn Fn(Action) -> Failure, &paced] {
        assert_eq!(scope(of(Action::RegisterTargets)).as_deref(), Some("LoadBalancers"));
        assert_eq!(scope(of(Action::GetInstances)), None);
    }
    assert_eq!(scope(Failure::no_answer(Action::RegisterTargets)), None);
}

#[test]
fn calls_keep_the_pace_and_are_refused_where_it_would_be_too_late() {
    let (calls, now) = (Calls::default(), Instant::now());
    let turn = |until: u64| {
        let end = now + Duration::from_secs(until);
        let until = Deadline { answer: end, end };
        calls.turn(Action::DescribeInstanceTopology, until, now).map(|turn| (turn - now).as_secs())
    };
    let turns: Vec<_> = (0..3).map(|_| turn(60).unwrap()).collect();
    assert_eq!(turns, [0, 1, 2], "one at once, then one a second");
    for until in [2, 4] {
        let late = ProviderError::from(turn(until).unwrap_err());
        let wait = late.retry_after().filter(|wait| wait.as_secs() == 3);
        assert_eq!((late.reason(), late.retry_after()), (R::RateLimited, wait), "no time for an answer");
    }
    assert_eq!(turn(6).unwrap(), 3);
}

/// Others of the account may empty the small bucket of new balancers: that stops nothing else.
#[test]
fn a_new_balancer_that_is_throttled_waits_alone() {
    let throttled = |action| Stop::from(Failure::of(action, refusal(400, Some("Throttling"))));
    for (action, is_alone) in
        [(Action::CreateLoadBalancer, true), (Action::SetSubnets, false), (Action::CreateListener, false)]
    {
        let stop = throttled(action);
        assert_eq!(matches!(stop, Stop::Later(_)), is_alone, "{action:?}");
        assert!(stop.changed_nothing(), "{action:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_throttled_empties_the_bucket() {
    let calls = Calls::default();
    let throttled = async { Err::<(), _>(refusal(503, Some("RequestLimitExceeded"))) };
    calls.make(Action::GetInstances, Deadline::after(CALL_WITHIN), throttled).await.unwrap_err();
    let now = Instant::now();
    let turn = calls.turn(Action::GetInstances, Deadline::after(CALL_WITHIN), now).unwrap();
    assert!(turn > now, "before, it was full");
}

#[tokio::test]
async fn a_call_without_an_answer_ends_and_is_no_answer() {
    let calls = Calls::default();
    let never = std::future::pending::<Result<(), SdkError<Answered>>>();
    let failure = calls
        .make(Action::GetInstances, Deadline::after(Duration::from_millis(10)), never)
        .await
        .unwrap_err();
    assert_eq!(ProviderError::from(failure).reason(), R::CloudApiUnavailable);
    let reachable = calls.conditions()[0].status();
    assert_eq!(reachable, ConditionStatus::Unspecified, "it had no time for an answer");
}

#[tokio::test]
async fn the_conditions_follow_from_the_last_call() {
    let calls = Calls::default();
    let status = |calls: &Calls| calls.conditions().iter().map(|one| one.status()).collect::<Vec<_>>();
    use ConditionStatus::{False, True, Unspecified};
    assert_eq!(status(&calls), [Unspecified, Unspecified]);
    for (code, expected) in [
        (Some((403, "UnauthorizedOperation")), [True, True]),
        (Some((401, "AuthFailure")), [True, False]),
        (Some((403, "AuthFailure")), [True, True]),
        (Some((403, "SignatureDoesNotMatch")), [True, False]),
        (Some((500, "InternalError")), [False, False]),
        (None, [True, True]),
    ] {
        let outcome = code.map_or(Ok(()), |(status, code)| Err(refusal(status, Some(code))));
        let _outcome =
            calls.make(Action::FindInstances, Deadline::after(CALL_WITHIN), async { outcome }).await;
        assert_eq!(status(&calls), expected, "{code:?}");
    }
}

#[tokio::test]
async fn what_was_asked_before_tells_nothing_about_after() {
    let calls = Calls::default();
    let reachable = || calls.conditions()[0].status();
    let down = || Err(refusal(500, Some("InternalError")));
    for (slow, fast, expected) in
        [(Ok(()), down(), ConditionStatus::False), (down(), Ok(()), ConditionStatus::True)]
    {
        let until = Deadline::after(CALL_WITHIN);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let older = calls.make(Action::FindInstances, until, async { answered.await.unwrap() });
        let newer = async {
            let _outcome = calls.make(Action::FindInstances, until, async { fast }).await;
            answer.send(slow).unwrap();
        };
        let _outcomes = tokio::join!(biased; older, newer);
        assert_eq!(reachable(), expected, "the slow answer came last, to the older question");
    }
}
