//! One run of a plan, from its first step until everything is right and quiet, or a rule is broken.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep_until};

use crate::{invariants, plan::Plan, record::Record, world::World};

/// Between two looks at everything.
const TICK: Duration = Duration::from_secs(1);
/// How long all must stay as it is once it is right.
const QUIET: Duration = Duration::from_secs(90);
/// Of calls to the provider in quiet times, a minute: health, status and sweeps.
const CALLS_A_MINUTE: u64 = 60;

/// Plays a plan on a paused clock; the record says how it went. The thread is this run's alone.
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
    world.start_host()?;
    let mut steps = plan.steps.iter().peekable();
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
        stage = match stage {
            Stage::Trouble if now >= start + plan.calm_after => {
                world.record.note("world", "calm");
                world.calm()?;
                Stage::Settling(now, 0)
            }
            Stage::Settling(since, life) => settle(world, plan, since, life, &mut calls),
            Stage::Quiet(since, life) => keep_quiet(world, since, life, &calls)?,
            Stage::Done => return Ok(()),
            other @ Stage::Trouble => other,
        };
    }
    Ok(())
}

/// How far the run is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Things happen.
    Trouble,
    /// Nothing is in the way any more, since then; the host has been replaced so often.
    Settling(Instant, u8),
    /// All is right, since then.
    Quiet(Instant, u8),
    Done,
}

/// What was written and called until all was right.
#[derive(Debug, Default)]
struct Calls {
    version: u64,
    changes: u64,
    all: u64,
}

impl Calls {
    fn of(world: &World) -> Self {
        let methods = world.mock.calls.methods();
        let is_change =
            |name: &str| !name.starts_with("Get") && !name.starts_with("List") && !name.contains("Instances");
        let changes = methods.iter().filter(|(name, _)| is_change(name)).map(|(_, seen)| seen.calls).sum();
        let all = methods.values().map(|seen| seen.calls).sum();
        Self { version: world.host_writes(), changes, all }
    }
}

fn settle(world: &World, plan: &Plan, since: Instant, life: u8, calls: &mut Calls) -> Stage {
    let wrong = world.wrong();
    if wrong.is_empty() {
        world.record.note("world", &format!("all is right after {:?}", since.elapsed()));
        *calls = Calls::of(world);
        return Stage::Quiet(Instant::now(), life);
    }
    if since.elapsed() > plan.setup.patience {
        world.record.broken("everything converges", wrong.join("; "));
    }
    Stage::Settling(since, life)
}

/// All stays right, nothing is written and nothing is changed in the cloud; then once more after a restart.
fn keep_quiet(world: &World, since: Instant, life: u8, before: &Calls) -> Result<Stage> {
    let wrong = world.wrong();
    if !wrong.is_empty() {
        // A machine that was still going, a node that was still being shown: it settles again, once.
        world.record.note("world", &format!("not right any more: {}", wrong.join("; ")));
        return Ok(Stage::Settling(Instant::now(), life));
    }
    if since.elapsed() < QUIET {
        return Ok(Stage::Quiet(since, life));
    }
    let after = Calls::of(world);
    if life > 0 && (after.changes, after.version) != (before.changes, before.version) {
        let what = format!("{before:?} became {after:?} though all was right");
        world.record.broken("a fresh start changes nothing", what);
    }
    if after.all.saturating_sub(before.all) > CALLS_A_MINUTE * QUIET.as_secs() / 60 {
        world.record.broken("quiet times are quiet", format!("{before:?} became {after:?}"));
    }
    if life > 0 {
        return Ok(Stage::Done);
    }
    world.record.note("world", "a fresh start");
    world.replace_host()?;
    Ok(Stage::Settling(Instant::now(), life + 1))
}
