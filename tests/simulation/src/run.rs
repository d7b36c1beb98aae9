//! One run of a plan, from its first step until everything is in order and quiet, or a rule is broken.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep_until};

use crate::{host::Host, invariants, paces::is_mutation, plan::Plan, record::Record, world::World};

/// The interval of checks.
const TICK: Duration = Duration::from_secs(1);
/// How long everything must stay as it is once it is in order.
const QUIET: Duration = Duration::from_secs(90);
/// How long stalled messages may still arrive.
const LINES_ARE_FREE: Duration = Duration::from_secs(30);
/// The allowed calls to the provider per minute in quiet times: health, status and sweeps.
const CALLS_A_MINUTE: u64 = 60;

/// Plays a plan on a paused clock, and returns its record. Needs a thread of its own.
///
/// # Errors
/// The plan cannot be played at all.
pub fn run(plan: &Plan) -> Result<Record> {
    fastrand::seed(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let record = Record::default();
        crate::telemetry::follow(&record);
        let world = World::new(&plan.setup, record.clone())?;
        play(&world, plan).await?;
        Ok(record)
    })
}

async fn play(world: &World, plan: &Plan) -> Result<()> {
    let start = Instant::now();
    let mut eyes = invariants::watch(world);
    for _replica in 0..if plan.setup.elects { 2 } else { 1 } {
        world.start_host()?;
    }
    let (mut steps, mut encore) = (plan.steps.iter().peekable(), plan.encore.iter().peekable());
    let mut calls = Calls::default();
    let mut stage = Stage::Trouble;
    let mut now = start;
    while world.record.violation().is_none() {
        let next_step = steps.peek().map(|timed| start + timed.at);
        now = next_step.map_or(now + TICK, |at| at.clamp(now, now + TICK));
        sleep_until(now).await;
        while let Some(timed) = steps.next_if(|timed| start + timed.at <= now) {
            world.apply(&timed.step)?;
        }
        world.tick();
        eyes.check(world);
        eyes.alone(world, stage.is_calm() && world.is_one_host_alone());
        stage = match stage {
            Stage::Trouble if now >= start + plan.calm_after => {
                world.record.note("world", "calm");
                world.calm()?;
                Stage::Settling(now, Act::Trouble)
            }
            Stage::Settling(since, act) => settle(world, plan, since, act, &mut calls),
            Stage::Quiet(since, act) => keep_quiet(world, plan, since, act, &calls)?,
            Stage::Encore(since) => {
                while let Some(timed) = encore.next_if(|timed| since + timed.at <= now) {
                    world.apply(&timed.step)?;
                }
                let is_over = since.elapsed() > plan.encore_lasts();
                if is_over { Stage::Settling(now, Act::Encore) } else { stage }
            }
            Stage::Done => {
                eyes.alone(world, false);
                eyes.reigns(world);
                return Ok(());
            }
            other @ Stage::Trouble => other,
        };
    }
    Ok(())
}

/// The phase of a run.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Steps are played.
    Trouble,
    /// All faults are over, since then.
    Settling(Instant, Act),
    /// Everything is in order, since then.
    Quiet(Instant, Act),
    /// The encore: steps without faults.
    Encore(Instant),
    Done,
}

/// The phase after which the world comes into order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Trouble,
    /// A new host finds everything done, unless the former one still waited for a retry that a new one makes at once.
    FreshStart {
        waited: bool,
    },
    Encore,
}

impl Stage {
    /// Whether all faults are over, and stalled messages have arrived.
    fn is_calm(self) -> bool {
        match self {
            Self::Trouble | Self::Done => false,
            Self::Settling(since, _) => since.elapsed() > LINES_ARE_FREE,
            Self::Quiet(..) | Self::Encore(_) => true,
        }
    }
}

/// Writes and calls until everything was in order.
#[derive(Debug, Default)]
struct Calls {
    version: u64,
    changes: u64,
    all: u64,
}

impl Calls {
    fn of(world: &World) -> Self {
        let methods = world.mock.calls.methods();
        let changes = methods.iter().filter(|(name, _)| is_mutation(name)).map(|(_, seen)| seen.calls).sum();
        // Each renewal of the Lease sends a `Lead`.
        let other = methods.iter().filter(|(name, _)| name.as_str() != "Lead");
        let all = other.map(|(_, seen)| seen.calls).sum();
        Self { version: world.host_writes(), changes, all }
    }
}

fn settle(world: &World, plan: &Plan, since: Instant, act: Act, calls: &mut Calls) -> Stage {
    let wrong = world.wrong();
    if wrong.is_empty() {
        world.record.note("world", &format!("all is right after {:?}", since.elapsed()));
        *calls = Calls::of(world);
        return if act == Act::Encore { Stage::Done } else { Stage::Quiet(Instant::now(), act) };
    }
    let (patience, rule) = match act {
        Act::Encore => (plan.haste(), "what users do takes effect at once"),
        Act::Trouble | Act::FreshStart { .. } => (plan.setup.patience, "everything converges"),
    };
    if since.elapsed() > patience {
        world.record.broken(rule, wrong.join("; "));
    }
    Stage::Settling(since, act)
}

/// Everything stays in order, and nothing is written or changed in the cloud; then the same after a restart.
fn keep_quiet(world: &World, plan: &Plan, since: Instant, act: Act, before: &Calls) -> Result<Stage> {
    let wrong = world.wrong();
    if !wrong.is_empty() {
        // A machine that was still stopping, or a node that was still being shown: wait once more until all is quiet.
        world.record.note("world", &format!("not right any more: {}", wrong.join("; ")));
        return Ok(Stage::Settling(Instant::now(), act));
    }
    if since.elapsed() < QUIET {
        return Ok(Stage::Quiet(since, act));
    }
    let after = Calls::of(world);
    // Permanent failures are retried permanently.
    let all_works = !world.is_anything_spoilt();
    let is_fresh = matches!(act, Act::FreshStart { .. });
    let is_done = act == Act::FreshStart { waited: false };
    if all_works && is_done && (after.changes, after.version) != (before.changes, before.version) {
        let what = format!("{before:?} became {after:?} though all was right");
        world.record.broken("a fresh start changes nothing", what);
    }
    if all_works && after.all.saturating_sub(before.all) > CALLS_A_MINUTE * QUIET.as_secs() / 60 {
        world.record.broken("quiet times are quiet", format!("{before:?} became {after:?}"));
    }
    if !is_fresh {
        world.record.note("world", "a fresh start");
        let waited = world.hosts.borrow().iter().any(Host::is_waiting);
        world.replace_host()?;
        return Ok(Stage::Settling(Instant::now(), Act::FreshStart { waited }));
    }
    if plan.encore.is_empty() || !all_works {
        return Ok(Stage::Done);
    }
    // The host has nothing to wait for, since it has met no fault.
    world.record.note("world", "an encore");
    Ok(Stage::Encore(Instant::now()))
}
