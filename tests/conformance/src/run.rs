//! Runs one case after the other, cleans up after each, and limits its time.
//!
//! In: options and cases. Out: a [`Report`]. Cases run one at a time, since most control the cloud, and so that
//! failures can be told apart.

mod diary;
mod filter;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use anyhow::{Result, bail};
use cloudprovider_proto::{
    discovery::v1::{GetInfoRequest, discovery_client::DiscoveryClient},
    service_names,
    v1alpha1::Capability,
};
use futures::future::{BoxFuture, Shared};
use tokio::time::Instant;

pub use diary::forget;
use diary::{Diary, Subject};
pub use filter::Filter;

use crate::{
    case::{Case, Profile, Stop},
    cases::costs::{self, Cost},
    ledger::{self, Ledger, Left},
    provider::{NoProvider, introduce, no_answer},
    report::{CaseReport, EarlyEnd, Report, Verdict},
    scenario::Scenario,
    session::Session,
    target::{Endpoint, Made, Wire},
    trial::{Trial, within},
};

/// How long a provider that failed a case may take until it answers again.
const RECOVERY: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Resolves when the run must end early.
pub type StopSignal = Shared<BoxFuture<'static, ()>>;

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the provider listens.
    pub endpoint: Endpoint,
    /// For TLS: the directory with `ca.crt`, `tls.crt` and `tls.key`.
    pub tls_folder: Option<PathBuf>,
    /// How to control the cloud.
    pub scenario: Scenario,
    /// The directory of the ledger.
    pub ledger_folder: PathBuf,
    /// The seed of random choices.
    pub seed: u64,
    /// Selects the cases.
    pub filter: Filter,
    /// How many balancers may stand at once.
    pub max_balancers: usize,
    /// How long one case may take.
    pub case_timeout: Duration,
    /// The id of a run that was cut off, to go on with.
    pub resume: Option<String>,
    /// Whether the first failed case ends the run.
    pub fail_fast: bool,
}

/// What happens while cases run.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The provider is known, and the run begins.
    Begun {
        /// The report, still without cases.
        report: &'a Report,
        /// The number of cases.
        cases: usize,
        /// What they make, and how long they take, as far as anybody can know.
        estimate: (Made, Duration),
    },
    /// A case begins.
    Case(&'a Case),
    /// It ended, and this is how long the others may take.
    Ended(&'a CaseReport, Duration),
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is nothing to test.
    #[error(transparent)]
    NoProvider(#[from] NoProvider),
    /// Something on this machine prevents the run.
    #[error(transparent)]
    Here(#[from] anyhow::Error),
}

/// Runs the cases that pass the filter.
///
/// # Errors
///
/// There is no provider, or the ledger cannot be written.
pub async fn run(
    options: Options,
    cases: impl IntoIterator<Item = &'static Case>,
    stop: StopSignal,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, RunError> {
    let wire = Wire::new(options.endpoint.clone(), options.tls_folder.clone());
    let provider = introduce(&wire).await?;
    let begun = Instant::now();
    let folder = &options.ledger_folder;
    let subject = Subject {
        suite: env!("CARGO_PKG_VERSION").to_owned(),
        provider: provider.info.name.clone(),
        version: provider.info.vendor_version.clone(),
    };
    let former = match &options.resume {
        Some(run_id) => diary::former(folder, run_id, &subject)?,
        None => BTreeMap::new(),
    };
    let mut session = Session::begin(wire, provider, options.scenario, folder, options.seed)?;
    session.max_balancers = options.max_balancers;
    let session = Rc::new(session);
    session.lead_if_it_waits().await;
    if let Some(run_id) = &options.resume {
        sweep_former(&session, folder, run_id).await?;
    }
    let mut diary = Diary::begin(folder, &session.header.run_id, &subject)?;
    let mut report = Report::begin(&session, &options.filter);
    let chosen: Vec<_> = cases.into_iter().filter(|case| options.filter.lets_pass(case)).collect();
    report.resumed.clone_from(&options.resume);
    let costs = |case: &&Case| {
        let costs = missing(&session, case).is_none() && !former.contains_key(case.id);
        if costs { costs::of(case) } else { Cost::default() }
    };
    let time = |case: &&Case| costs::time(costs(case), &session.scenario);
    let estimate = (chosen.iter().map(|case| costs(case).made).sum(), chosen.iter().map(time).sum());
    tell(Progress::Begun { report: &report, cases: chosen.len(), estimate });
    let mut left = estimate.1;
    for case in chosen {
        tell(Progress::Case(case));
        left = left.saturating_sub(time(&case));
        if let Some(ended) = former.get(case.id) {
            let took = Duration::from_millis(ended.millis);
            let ended = CaseReport::new(case, ended.verdict.clone(), took, ended.made);
            diary.note(&ended);
            tell(Progress::Ended(&ended, left));
            report.cases.push(ended);
            continue;
        }
        let (began, before) = (Instant::now(), session.meter.made());
        let verdict = match (&report.ended_early, missing(&session, case)) {
            (Some(end), _) => Verdict::NotRun { why: end.to_string() },
            (None, Some(stop)) => stop.into(),
            (None, None) => {
                let (verdict, ended_early) =
                    try_case(&session, case, options.case_timeout, stop.clone()).await;
                let failed = options.fail_fast && matches!(verdict, Verdict::Fail { .. });
                report.ended_early = ended_early.or(failed.then_some(EarlyEnd::FirstFailure));
                verdict
            }
        };
        let ended = CaseReport::new(case, verdict, began.elapsed(), session.meter.made() - before);
        diary.note(&ended);
        tell(Progress::Ended(&ended, left));
        report.cases.push(ended);
    }
    report.left = session.clean(|_| true).await;
    if let Some(former) = &options.resume {
        diary::forget(folder, former);
    }
    if report.ended_early.is_none() {
        diary.end();
    }
    report.made = report.cases.iter().map(|case| case.made).sum();
    report.seconds = begun.elapsed().as_secs_f64();
    report.waits = session.patience.waits();
    if let Ok(session) = Rc::try_unwrap(session) {
        session.ledger.into_inner().end();
    }
    Ok(report)
}

/// Deletes what a run that was cut off left behind.
async fn sweep_former(session: &Session, folder: &Path, run_id: &str) -> Result<()> {
    let path = folder.join(format!("{run_id}.jsonl"));
    if !path.exists() {
        return Ok(());
    }
    let (ledger, _) = Ledger::reopen(&path)?;
    let ledger = RefCell::new(ledger);
    let left = ledger::clean(&session.wire, &session.scenario, &ledger, |_| true).await;
    ledger.into_inner().end();
    match left.first() {
        Some(Left { what, why, .. }) => {
            bail!("run {run_id} left behind: {what}: {why}; see `sweep --run-id {run_id}`")
        }
        None => Ok(()),
    }
}

/// Runs one case and cleans up after it. Also returns why no more cases can be run, if so.
async fn try_case(
    session: &Rc<Session>,
    case: &'static Case,
    timeout: Duration,
    stop: StopSignal,
) -> (Verdict, Option<EarlyEnd>) {
    let since = session.ledger.borrow().open().first().map_or(0, |(number, _)| number + 1);
    let trial = Trial::new(Rc::clone(session), case.id);
    session.invariants.take();
    session.patience.refused();
    let (mut interrupted, mut is_late) = (None, false);
    let verdict = tokio::select! {
        ended = tokio::time::timeout(timeout, case.run.run(&trial)) => match ended {
            Ok(Ok(())) => Verdict::Pass,
            Ok(Err(stop)) => stop.into(),
            // Each call has a deadline of its own, so one that hangs has failed before, unless the provider asks for a longer one;
            // being slow is no breach.
            Err(_) => {
                is_late = true;
                Verdict::NotRun { why: format!("it was still waiting after {timeout:?} (--case-timeout)") }
            }
        },
        () = stop => {
            interrupted = Some(EarlyEnd::Interrupted);
            Verdict::NotRun { why: EarlyEnd::Interrupted.to_string() }
        }
    };
    let verdict = match (verdict, session.patience.refused()) {
        (Verdict::Fail { expected, seen }, Some(why)) => {
            Verdict::NotRun { why: format!("{why}; then it was not {expected}, but {seen}") }
        }
        (verdict, _) => verdict,
    };
    let verdict = match (verdict, session.invariants.take()) {
        (Verdict::Pass, Some(broken)) => broken.into(),
        // An answer that broke one did so, wherever the case then got to.
        (Verdict::NotRun { .. } | Verdict::NotAdvertised { .. }, Some(broken)) if interrupted.is_none() => {
            broken.into()
        }
        (Verdict::Fail { expected, seen }, Some(Stop::Failed { expected: also, seen: in_it })) => {
            Verdict::Fail { expected, seen: format!("{seen}; and not {also}, but {in_it}") }
        }
        (verdict, _) => verdict,
    };
    let left = session.end_case(since, matches!(verdict, Verdict::Pass)).await;
    let is_disturbed = left.iter().any(|left| left.is_disturbance);
    let refused = left.into_iter().find(|left| left.refused);
    let verdict = match (verdict, refused) {
        (Verdict::Pass, Some(left)) => Verdict::Fail {
            expected: "a provider that deletes what the case made [R:delete-leaves-nothing]".to_owned(),
            seen: format!("{}: {}", left.what, left.why),
        },
        (verdict, _) => verdict,
    };
    if interrupted.is_none() && is_disturbed {
        interrupted = Some(EarlyEnd::Disturbed { since: case.id });
    } else if interrupted.is_none()
        && (is_late || matches!(verdict, Verdict::Fail { .. }))
        && !answers(session).await
    {
        interrupted = Some(EarlyEnd::Silence { since: case.id });
    }
    (verdict, interrupted)
}

/// Why a case cannot be run, checked before.
fn missing(session: &Session, case: &Case) -> Option<Stop> {
    let provider = &session.provider;
    let served =
        |name: &str| (!provider.serves(name)).then(|| format!("service {name} is not named by GetInfo"));
    let can = |capability: Capability| {
        (!provider.can(capability)).then(|| format!("{} is not advertised", capability.as_str_name()))
    };
    let silent = match case.profile {
        Profile::Identity | Profile::Security | Profile::Observability => None,
        Profile::Instances => served(service_names::INSTANCES),
        Profile::InstancesWatch => {
            served(service_names::INSTANCES).or_else(|| can(Capability::InstancesWatch))
        }
        Profile::InstancesList => served(service_names::INSTANCES).or_else(|| can(Capability::InstancesList)),
        Profile::SshKeys => served(service_names::INSTANCES).or_else(|| can(Capability::SshKeys)),
        Profile::LoadBalancers | Profile::LoadBalancersList => served(service_names::LOAD_BALANCERS),
        Profile::Routes => served(service_names::ROUTES),
        Profile::Volumes => served(service_names::VOLUMES),
        Profile::Clusters => served(service_names::CLUSTERS),
    };
    if let Some(problem) = provider.problem.as_ref().filter(|_| case.profile != Profile::Identity) {
        return Some(Stop::NotRun(problem.clone()));
    }
    if let Some(why) = silent.or_else(|| case.capability.and_then(can)) {
        return Some(Stop::NotAdvertised(why));
    }
    session.scenario.lacks(case.hooks).map(|hook| Stop::NotRun(format!("no hook {hook}")))
}

/// Whether the provider answers anything at all.
async fn answers(session: &Session) -> bool {
    let end = Instant::now() + RECOVERY;
    loop {
        let hello = within(GetInfoRequest::default(), Duration::from_secs(2));
        match DiscoveryClient::new(session.wire.clone()).get_info(hello).await {
            Err(status) if no_answer(&status).is_some() && Instant::now() < end => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Err(status) => return no_answer(&status).is_none(),
            Ok(_) => return true,
        }
    }
}
