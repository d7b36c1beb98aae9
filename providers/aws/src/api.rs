//! Calls to AWS: their pace, their errors, their metrics, and what they tell of the cloud's health.
//!
//! In: a call of AWS's client. Out: its answer, or a [`Failure`] with AWS's own code. There are no retries: the host's queues
//! retry.

mod failure;
mod pace;
mod stop;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use cloudprovider_sdk::CallContext;
use cloudprovider_sdk::proto::{ConditionStatus, ConditionType, ProviderCondition};
use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

pub(crate) use failure::Failure;
use pace::Bucket;
pub(crate) use stop::{Stop, later};

/// A call that has less time than this, and gets no answer, tells nothing of the cloud.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// The longest that one call takes.
const CALL_WITHIN: Duration = Duration::from_secs(30);

/// How long a change goes on that nobody waits for.
const CHANGE_WITHIN: Duration = Duration::from_secs(60);

/// An action of AWS, with the bucket from which it draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// `DescribeInstances` by filters or in pages.
    FindInstances,
    /// `DescribeInstances` by IDs, for which AWS has a smaller bucket.
    GetInstances,
    DescribeInstanceTopology,
    DescribeAvailabilityZones,
    DescribeSubnets,
    DescribeRouteTables,
    DescribeSecurityGroups,
    CreateSecurityGroup,
    DeleteSecurityGroup,
    AuthorizeSecurityGroupIngress,
    RevokeSecurityGroupIngress,
    CreateRoute,
    ReplaceRoute,
    DeleteRoute,
    ModifyInstanceAttribute,
    DescribeLoadBalancers,
    DescribeLoadBalancerAttributes,
    DescribeListeners,
    DescribeTargetGroups,
    DescribeTargetGroupAttributes,
    DescribeTargetHealth,
    DescribeTags,
    CreateLoadBalancer,
    ModifyLoadBalancerAttributes,
    SetIpAddressType,
    SetSecurityGroups,
    SetSubnets,
    DeleteLoadBalancer,
    CreateTargetGroup,
    ModifyTargetGroup,
    ModifyTargetGroupAttributes,
    DeleteTargetGroup,
    RegisterTargets,
    DeregisterTargets,
    CreateListener,
    ModifyListener,
    DeleteListener,
    AddTags,
    CreateLoadBalancerListeners,
    DeleteLoadBalancerListeners,
    SetLoadBalancerListenerSSLCertificate,
    CreateLoadBalancerPolicy,
    SetLoadBalancerPoliciesOfListener,
    SetLoadBalancerPoliciesForBackendServer,
    ApplySecurityGroupsToLoadBalancer,
    AttachLoadBalancerToSubnets,
    DetachLoadBalancerFromSubnets,
    ConfigureHealthCheck,
    RegisterInstancesWithLoadBalancer,
    DeregisterInstancesFromLoadBalancer,
}

/// What one or several actions draw from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Own(Action),
    /// Of all actions of Elastic Load Balancing.
    Balancing,
    /// Of those that change something, but for what has its own.
    BalancingChanges,
    Targets,
    NewBalancers,
}

impl Action {
    /// As IAM has it.
    pub(crate) fn name(self) -> String {
        let service = if self.is_of_balancing() { "elasticloadbalancing" } else { "ec2" };
        match self {
            Self::FindInstances | Self::GetInstances => "ec2:DescribeInstances".to_owned(),
            named => format!("{service}:{named:?}"),
        }
    }

    fn only_reads(self) -> bool {
        self.name().contains(":Describe")
    }

    fn is_of_balancing(self) -> bool {
        self >= Self::DescribeLoadBalancers
    }

    fn sources(self) -> Vec<Source> {
        use Action::{
            CreateLoadBalancer, DeregisterInstancesFromLoadBalancer, DeregisterTargets,
            RegisterInstancesWithLoadBalancer, RegisterTargets, SetSubnets,
        };
        match self {
            RegisterTargets
            | DeregisterTargets
            | RegisterInstancesWithLoadBalancer
            | DeregisterInstancesFromLoadBalancer => vec![Source::Targets, Source::Balancing],
            CreateLoadBalancer | SetSubnets => vec![Source::NewBalancers, Source::Balancing],
            changes if changes > CreateLoadBalancer => vec![Source::BalancingChanges, Source::Balancing],
            reads if reads.is_of_balancing() => vec![Source::Balancing],
            own => vec![Source::Own(own)],
        }
    }
}

impl Source {
    fn bucket(self) -> Bucket {
        use Action::{DescribeInstanceTopology, GetInstances};
        match self {
            Self::Own(DescribeInstanceTopology) => Bucket::new(1, 1.0),
            Self::Own(GetInstances) => Bucket::new(50, 10.0),
            Self::Own(change) if !change.only_reads() => Bucket::new(50, 5.0),
            Self::Own(_) => Bucket::new(100, 20.0),
            Self::Balancing => Bucket::new(40, 10.0),
            Self::BalancingChanges => Bucket::new(20, 3.0),
            Self::Targets => Bucket::new(20, 4.0),
            Self::NewBalancers => Bucket::new(10, 0.2),
        }
    }
}

/// All calls of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    buckets: Mutex<BTreeMap<Source, Bucket>>,
    health: Mutex<Health>,
    made: Family<Vec<(&'static str, String)>, Counter>,
    tokens: Family<Vec<(&'static str, String)>, Gauge<f64, AtomicU64>>,
}

/// What the calls tell of the cloud.
#[derive(Debug, Default)]
struct Health {
    /// The last answer, or the last time that there was none.
    heard: Option<Instant>,
    /// When the call began that is believed: what one tells that began earlier, and ended later, is older.
    asked: Option<Instant>,
    reachable: Condition,
    credentials: Condition,
}

#[derive(Debug, Default)]
struct Condition {
    holds: Option<bool>,
    message: String,
    since: Option<SystemTime>,
}

impl Condition {
    fn set(&mut self, holds: bool, message: &str) {
        if self.holds != Some(holds) {
            self.since = Some(SystemTime::now());
        }
        self.holds = Some(holds);
        message.clone_into(&mut self.message);
    }

    fn as_proto(&self, r#type: ConditionType) -> ProviderCondition {
        let (status, reason) = match self.holds {
            None => (ConditionStatus::Unspecified, ""),
            Some(true) => (ConditionStatus::True, ""),
            Some(false) => (ConditionStatus::False, "LastCallFailed"),
        };
        ProviderCondition {
            r#type: r#type.into(),
            status: status.into(),
            reason: reason.to_owned(),
            message: self.message.clone(),
            since: self.since.map(Into::into),
        }
    }
}

impl Calls {
    /// Registers the metrics of calls.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "cloudprovider_aws_calls",
            "Calls to AWS, by action and by the code of AWS's answer (\"\" for success, \"none\" for no answer)",
            self.0.made.clone(),
        );
        registry.register(
            "cloudprovider_aws_tokens",
            "Calls that can be made at once, by AWS's bucket; less than zero: that many wait",
            self.0.tokens.clone(),
        );
    }

    /// Makes one call, when it is its turn and before `until`.
    pub(crate) async fn make<T, E: ProvideErrorMetadata>(
        &self,
        action: Action,
        until: Deadline,
        call: impl Future<Output = Result<T, SdkError<E>>>,
    ) -> Result<T, Failure>
    where
        SdkError<E>: std::error::Error + Send + Sync + 'static,
    {
        let turn = self.turn(action, until, Instant::now())?;
        tokio::time::sleep_until(turn).await;
        let begun = Instant::now();
        let last = until.end.min(begun + CALL_WITHIN);
        let outcome = match tokio::time::timeout_at(last, call).await {
            Ok(answer) => answer.map_err(|error| Failure::of(action, error)),
            Err(_late) => Err(Failure::no_answer(action)),
        };
        let is_cut_off = last.duration_since(begun) < ANSWERED_WITHIN;
        self.remember(action, (begun, is_cut_off), outcome.as_ref().err());
        outcome
    }

    /// When this call may be made. Refused if that is too late for an answer.
    fn turn(&self, action: Action, until: Deadline, now: Instant) -> Result<Instant, Failure> {
        let mut buckets = self.0.buckets.lock();
        let sources = action.sources();
        let waits =
            sources.iter().map(|source| buckets.entry(*source).or_insert_with(|| source.bucket()).wait(now));
        let wait = waits.max().unwrap_or_default();
        let enough = ANSWERED_WITHIN.min(until.of_turn(now).saturating_duration_since(now) / 2);
        if now + wait + enough >= until.of_turn(now) {
            return Err(Failure::paced(action, wait));
        }
        for source in sources {
            if let Some(bucket) = buckets.get_mut(&source) {
                bucket.take();
                self.show(source, bucket);
            }
        }
        Ok(now + wait)
    }

    fn show(&self, source: Source, bucket: &Bucket) {
        let name = match source {
            Source::Own(action) => format!("{action:?}"),
            shared => format!("{shared:?}"),
        };
        self.0.tokens.get_or_create(&vec![("bucket", name)]).set(bucket.tokens());
    }

    fn remember(&self, action: Action, (begun, is_cut_off): (Instant, bool), failure: Option<&Failure>) {
        let code = failure.map_or("", |failure| failure.code());
        let of = vec![("action", action.name()), ("code", code.to_owned())];
        self.0.made.get_or_create(&of).inc();
        if failure.is_some_and(Failure::is_throttled) {
            let mut buckets = self.0.buckets.lock();
            if let Some(source) = action.sources().first()
                && let Some(bucket) = buckets.get_mut(source)
            {
                bucket.drain();
                self.show(*source, bucket);
            }
        }
        if is_cut_off && failure.is_some_and(Failure::is_silence) {
            return;
        }
        let mut health = self.0.health.lock();
        health.heard = Some(Instant::now());
        if health.asked.is_some_and(|asked| begun < asked) {
            return;
        }
        health.asked = Some(begun);
        match failure {
            Some(failure) if failure.is_silence() => health.reachable.set(false, failure.code()),
            Some(failure) if failure.is_about_credentials() => {
                health.reachable.set(true, "");
                health.credentials.set(false, failure.code());
            }
            _ => {
                health.reachable.set(true, "");
                health.credentials.set(true, "");
            }
        }
    }

    /// The conditions of the provider.
    pub(crate) fn conditions(&self) -> Vec<ProviderCondition> {
        let health = self.0.health.lock();
        vec![
            health.reachable.as_proto(ConditionType::CloudReachable),
            health.credentials.as_proto(ConditionType::CredentialsValid),
        ]
    }

    /// For how long nothing was heard, and whether what was heard last was good.
    pub(crate) fn silence(&self) -> (Option<Duration>, bool) {
        let health = self.0.health.lock();
        let well = health.reachable.holds != Some(false) && health.credentials.holds != Some(false);
        (health.heard.map(|at| at.elapsed()), well)
    }
}

/// By when a call must have ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    /// Until then somebody waits, who gets an answer in time.
    answer: Instant,
    end: Instant,
}

impl Deadline {
    /// The caller's, less what an answer takes.
    pub(crate) fn of(ctx: &CallContext) -> Self {
        let left = ctx.remaining().map_or(CALL_WITHIN, |left| left.saturating_sub(left / 20));
        Self::after(left)
    }

    /// Of a change: it goes on although its caller may be gone.
    pub(crate) fn of_change(ctx: &CallContext) -> Self {
        let Self { answer, end } = Self::of(ctx);
        Self { answer, end: end.max(Instant::now() + CHANGE_WITHIN) }
    }

    /// The same, or sooner.
    pub(crate) fn within(self, time: Duration) -> Self {
        let end = self.end.min(Instant::now() + time);
        Self { answer: self.answer.min(end), end }
    }

    /// For calls that nobody waits for.
    pub(crate) fn after(time: Duration) -> Self {
        let end = Instant::now() + time;
        Self { answer: end, end }
    }

    /// By when a call must have its turn, so that whoever waits hears of it in time.
    fn of_turn(self, now: Instant) -> Instant {
        if now < self.answer { self.answer } else { self.end }
    }
}

/// A page of a list, and AWS's marker of the next one.
pub(crate) type Page<T> = (Vec<T>, Option<String>);

/// All pages of a list, each asked for with the marker that the one before gave.
pub(crate) async fn all_pages<T, R: Future<Output = Result<Page<T>, Failure>>>(
    page: impl Fn(Option<String>) -> R,
) -> Result<Vec<T>, Failure> {
    let (mut all, mut marker) = page(None).await?;
    while let Some(at) = marker {
        let (more, next) = page(Some(at)).await?;
        all.extend(more);
        marker = next;
    }
    Ok(all)
}

/// AWS's marker, which is empty after the last page, too.
pub(crate) fn marker(told: Option<String>) -> Option<String> {
    told.filter(|marker| !marker.is_empty())
}

#[cfg(test)]
mod tests;
