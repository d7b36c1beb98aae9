//! Generates a plan from a seed.

use std::time::Duration;

use fastrand::Rng;

use crate::plan::{Plan, Setup, Step, Timed};

/// Nodes that come and go; the first two stay, for comparison.
pub const NODES: u8 = 12;
/// Nodes of the second cloud, whose numbers follow.
const EDGE_NODES: u8 = 3;
/// Nodes that are neither terminated nor stopped.
const LASTING: u8 = 2;
const SERVICES: u8 = 6;

impl Plan {
    /// The plan of a seed. The same seed is always the same plan.
    pub fn of(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut setup = setup(&mut random);
        let length = random.u64(60..420);
        let mut steps: Vec<(Duration, Step)> = Vec::new();
        for node in 0..setup.nodes {
            steps.push((Duration::from_millis(random.u64(0..10_000)), Step::Join(node)));
        }
        for service in 0..random.u8(1..4) {
            steps.push((Duration::from_millis(random.u64(0..20_000)), Step::Create(service)));
        }
        let (share, elects) = (random.f64() * 0.6, setup.elects);
        for _ in 0..random.usize(10..60) {
            let at = Duration::from_millis(random.u64(15_000..length * 1000));
            let step = if random.f64() < share { fault(&mut random, elects) } else { work(&mut random) };
            steps.push((at, step));
        }
        if random.f64() < 0.3 {
            crowd(&mut random, length, &mut steps);
        }
        if random.f64() < 0.3 {
            last_words(&mut random, length, &mut steps);
        }
        // Draws from numbers of its own, so that a seed's other steps are the same with and without it.
        edge(&mut Rng::with_seed(!seed), length, &mut setup, &mut steps);
        steps.sort_by_key(|(at, _)| *at);
        let first_of_encore = steps.len();
        steps.extend(encore(&mut random));
        let timed = |(number, (at, step))| Timed { number, at, step };
        let mut steps: Vec<_> = steps.into_iter().enumerate().map(timed).collect();
        let encore = steps.split_off(first_of_encore);
        let mut plan = Self { seed, setup, steps, calm_after: Duration::ZERO, encore };
        plan.find_calm();
        plan
    }

    /// The same plan without these steps.
    #[must_use]
    pub fn without(mut self, numbers: &[usize]) -> Self {
        for steps in [&mut self.steps, &mut self.encore] {
            steps.retain(|timed| !numbers.contains(&timed.number));
        }
        self.find_calm();
        self
    }

    fn find_calm(&mut self) {
        let ends = self.steps.iter().map(|timed| timed.at + timed.step.lasts());
        self.calm_after = ends.chain([self.setup.late]).chain(self.setup.edge).max().unwrap_or_default()
            + Duration::from_secs(1);
    }
}

/// A second provider, which comes late, fails its first lists, or goes away, and Services that go to it and come back.
fn edge(random: &mut Rng, length: u64, setup: &mut Setup, steps: &mut Vec<(Duration, Step)>) {
    if random.bool() {
        return;
    }
    // More nodes may end without a known provider, and so without a Ready one to vouch for them: they go ten minutes apart.
    setup.patience += Duration::from_secs(30 * 60);
    setup.edge = Some(Duration::from_millis(if random.bool() { random.u64(0..120_000) } else { 0 }));
    setup.flags.extend(
        ["--provider=edge=unix:///simulated/edge.sock", "--default-load-balancer-provider=mock"]
            .map(str::to_owned),
    );
    if random.bool() {
        setup.flags.extend(["mock", "edge"].map(|name| format!("--provider-id-prefix={name}={name}://")));
    }
    if random.bool() {
        let fails = "error,reason=INTERNAL_ERROR,method=ListLoadBalancers".to_owned();
        let time = Duration::from_secs(random.u64(20..120));
        steps.push((Duration::ZERO, Step::EdgeCloud(time, fails)));
    }
    for _ in 0..random.u8(2..16) {
        let time = Duration::from_millis(random.u64(500..60_000));
        let node = random.u8(NODES..NODES + EDGE_NODES);
        let step = match random.u8(..12) {
            0 => Step::EdgeCrash(time),
            1 | 2 => Step::EdgeCloud(time, cloud_fault(random)),
            3..=5 => Step::Join(node),
            6 => Step::Terminate(vec![node]),
            7 => Step::Silence(node, time),
            8 => Step::Stop(node),
            _ => Step::Move(random.u8(..SERVICES), random.f64() < 0.7),
        };
        steps.push((Duration::from_millis(random.u64(15_000..length * 1000)), step));
    }
}

/// All Services want something at once of a cloud that takes long for each, and change while they wait.
fn crowd(random: &mut Rng, length: u64, steps: &mut Vec<(Duration, Step)>) {
    let begin = random.u64(20_000..length * 1000);
    let time = Duration::from_secs(random.u64(30..180));
    let slow = format!("latency,time={}s,jitter=20s,method=EnsureLoadBalancer", random.u8(5..100));
    steps.push((Duration::from_millis(begin), Step::Cloud(time, slow)));
    for service in 0..SERVICES {
        let at = |random: &mut Rng| Duration::from_millis(begin + random.u64(0..5_000));
        steps.push((at(random), Step::Create(service)));
        steps.push((at(random), Step::Edit(service, random.u16(81..90))));
    }
    for _ in 0..random.u8(2..10) {
        let service = random.u8(..SERVICES);
        let step = match random.u8(..6) {
            0 => Step::Delete(service),
            1 => Step::Edit(service, random.u16(81..90)),
            2 => Step::Flip(service, Duration::from_millis(random.u64(100..15_000))),
            3 => Step::Join(random.u8(LASTING..NODES)),
            4 => Step::Terminate(vec![random.u8(LASTING..NODES)]),
            _ => Step::Exclude(random.u8(..NODES), random.bool()),
        };
        let after = begin + 5_000 + random.u64(0..time.as_millis().try_into().unwrap_or(60_000));
        steps.push((Duration::from_millis(after), step));
    }
}

/// After everything else, changes in such quick succession that each arrives while the previous one is being processed,
/// and then nothing: what is missed now is missed for good.
fn last_words(random: &mut Rng, length: u64, steps: &mut Vec<(Duration, Step)>) {
    let begin = (length + 60) * 1000;
    let slow = "latency,time=1s,jitter=4s,method=BatchUpdateLoadBalancers".to_owned();
    steps.push((Duration::from_millis(begin), Step::Cloud(Duration::from_secs(20), slow)));
    for _ in 0..random.u8(2..6) {
        let at = Duration::from_millis(begin + 1000 + random.u64(0..6000));
        steps.push((at, Step::Exclude(random.u8(..NODES), random.bool())));
    }
}

/// Changes by users in quick succession, without faults.
fn encore(random: &mut Rng) -> Vec<(Duration, Step)> {
    let mut steps: Vec<(Duration, Step)> = (0..random.u8(1..7))
        .map(|_| {
            let service = random.u8(..SERVICES);
            let step = match random.u8(..8) {
                0..=2 => Step::Exclude(random.u8(..NODES), random.bool()),
                3 => Step::Edit(service, random.u16(81..90)),
                4 => Step::Create(service),
                5 => Step::Delete(service),
                6 => Step::Join(random.u8(LASTING..NODES)),
                _ => Step::Flip(service, Duration::from_millis(random.u64(100..15_000))),
            };
            (Duration::from_millis(random.u64(0..6000)), step)
        })
        .collect();
    steps.sort_by_key(|(at, _)| *at);
    steps
}

fn setup(random: &mut Rng) -> Setup {
    let mut flags: Vec<String> = Vec::new();
    let quick = random.f64() < 0.8;
    if quick {
        flags.extend(
            [
                "--node-deletion-grace=20s",
                "--node-status-update-frequency=1m",
                "--load-balancer-resync-period=2m",
                "--route-reconciliation-period=1m",
            ]
            .map(str::to_owned),
        );
    }
    if random.bool() {
        flags.push("--delete-orphaned-load-balancers=true".to_owned());
    }
    if random.bool() {
        flags.push(format!("--concurrent-service-syncs={}", random.u8(1..4)));
    }
    let elects = random.bool();
    flags.push(format!("--leader-elect={elects}"));
    let advertised = [
        "",
        "",
        "max-batch-instances=3,max-batch-load-balancers=2,max-batch-routes=2,page-size=2",
        "max-concurrent-reads=2,max-concurrent-mutations=2",
        "without=instances-watch,instance-sweep=30s",
        "deadline.EnsureLoadBalancer=5s,deadline.BatchUpdateLoadBalancers=5s,deadline.BatchGetInstances=3s",
        "bookmark-interval=5s,watch-max-age=20s,resume-token-validity=15s",
        "reads-per-second=5,mutations-per-second=2",
        "reads-per-second=2,max-concurrent-reads=1,max-concurrent-mutations=3",
    ];
    let seconds = |random: &mut Rng, chance: f64, most: u64| {
        let hit = random.f64() < chance;
        Duration::from_millis(if hit { random.u64(0..most * 1000) } else { 0 })
    };
    Setup {
        flags,
        elects,
        advertise: format!(
            "keyed-by-name={},{}",
            random.bool(),
            advertised[random.usize(..advertised.len())]
        ),
        reads_labels: random.f64() < 0.3,
        late: seconds(random, 0.1, 90),
        edge: None,
        latency: seconds(random, 0.5, 2),
        provisioning: seconds(random, 0.3, 30),
        skew: if random.bool() { 300 } else { 0 },
        lease: if random.f64() < 0.2 { 120 } else { 40 },
        nodes: random.u8(3..10),
        // The nodes of a zone without a Ready one, which nobody can vouch for, are deleted ten minutes apart: five at most.
        patience: Duration::from_secs(if quick { 60 * 60 } else { 90 * 60 }),
    }
}

/// Actions of users, autoscalers and the cloud's owners.
fn work(random: &mut Rng) -> Step {
    let any = |random: &mut Rng| random.u8(..NODES);
    let mortal = |random: &mut Rng| random.u8(LASTING..NODES);
    let service = |random: &mut Rng| random.u8(..SERVICES);
    let some = |random: &mut Rng| -> Vec<u8> {
        let mut nodes: Vec<u8> = (0..random.u8(1..5)).map(|_| random.u8(LASTING..NODES)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    };
    match random.u8(..36) {
        34 => Step::Scribble(service(random)),
        35 => Step::FarFuture(mortal(random)),
        0..=4 => Step::Join(mortal(random)),
        5 | 6 => Step::Terminate(some(random)),
        7 | 8 => Step::ScaleDown(some(random)),
        9 => Step::Stop(mortal(random)),
        10 => Step::Start(mortal(random)),
        11 | 12 => Step::Silence(any(random), Duration::from_secs(random.u64(20..120))),
        13 => Step::DeleteNode(any(random)),
        14 => Step::Exclude(any(random), true),
        15 => Step::Exclude(any(random), false),
        16 => Step::Label(any(random)),
        17..=20 => Step::Create(service(random)),
        21..=23 => Step::Edit(service(random), random.u16(81..90)),
        24 => Step::Retype(service(random), random.bool()),
        25 => Step::Flip(service(random), Duration::from_millis(random.u64(100..15_000))),
        26 | 27 => Step::Delete(service(random)),
        28 => Step::Finalizer(service(random), true),
        29 => Step::Finalizer(service(random), false),
        30 => Step::Drift(service(random)),
        31 => Step::DropBalancer(service(random)),
        32 => Step::StrayRoute(random.u8(200..250)),
        _ => Step::DropRoute(any(random)),
    }
}

fn fault(random: &mut Rng, elects: bool) -> Step {
    let time = Duration::from_millis(random.u64(500..60_000));
    let short = Duration::from_millis(random.u64(100..20_000));
    match random.u8(..29) {
        0 | 1 => Step::Crash(short),
        2 => Step::Restart,
        3 => Step::Hold(short),
        4 if elects => Step::Overlap(time),
        4 => Step::Restart,
        5 | 6 => Step::ProviderCrash(short),
        7 => Step::ProviderHold(time),
        8 => Step::ProviderCut,
        9 => Step::ApiDown(short, random.bool()),
        10 => Step::ApiHold(short),
        11 | 12 => Step::ApiLossy(time, random.u8(1..40)),
        13 => Step::ApiCutWatches,
        14 => Step::ApiSilent(time),
        15 => Step::ApiLagging(time, Duration::from_millis(random.u64(100..20_000))),
        16 => Step::ApiNoStreamingLists(time),
        17 => Step::Unreachable(time),
        18 => Step::Credentials(time),
        19 => Step::NotServing(time),
        20 => Step::Doubled(time, random.u8(1..60)),
        21 if random.bool() => Step::SpoilNode(random.u8(LASTING..NODES), random.bool()),
        21 => Step::SpoilService(random.u8(..SERVICES), random.bool()),
        _ => Step::Cloud(time, cloud_fault(random)),
    }
}

/// In the syntax of the mock's `--fault`.
fn cloud_fault(random: &mut Rng) -> String {
    let reads = ["BatchGetInstances", "ListInstances", "ListLoadBalancers", "GetLoadBalancer", "ListRoutes"];
    let mutations = [
        "EnsureLoadBalancer",
        "BatchUpdateLoadBalancers",
        "DeleteLoadBalancer",
        "BatchEnsureRoutes",
        "BatchDeleteRoutes",
    ];
    let batches = ["BatchGetInstances", "BatchUpdateLoadBalancers", "BatchEnsureRoutes", "BatchDeleteRoutes"];
    let any = [reads, mutations].concat();
    let pick = |random: &mut Rng, from: &[&str]| from[random.usize(..from.len())].to_owned();
    let kinds = [
        "latency,time=3s,jitter=20s",
        "error,reason=INTERNAL_ERROR",
        "error,reason=RETRY_LATER,retry-after=3s",
        "error,reason=INTERNAL_ERROR,after-work=true",
        "error,reason=CLOUD_PERMISSION_DENIED",
        "error,reason=QUOTA_EXCEEDED",
        "status,code=UNKNOWN",
        "throttle,retry-after=5s",
        "hang",
        "lost-answer",
        "lost-answer,silent=true",
    ];
    let mut text = match random.u8(..16) {
        0..=8 => {
            let mut text = pick(random, &kinds);
            if random.f64() < 0.8 {
                text.push_str(&format!(",method={}", pick(random, &any)));
            }
            text
        }
        9 => "partial".to_owned(),
        10 => "absent,method=BatchGetInstances".to_owned(),
        11 => format!("state,state={}", pick(random, &["STOPPED", "TERMINATING", "PENDING", "RUNNING"])),
        12 => "not-authoritative".to_owned(),
        13 => format!("item-error,reason=RETRY_LATER,method={}", pick(random, &batches)),
        14 => format!("in-progress,method={}", pick(random, &mutations)),
        _ => pick(random, &["drop-changes", "cut-watch,frames=2", "metadata-not-ready"]),
    };
    if random.f64() < 0.3 {
        text.push_str(&format!(",on=n{}", random.u8(..NODES)));
    }
    if random.f64() < 0.5 {
        text.push_str(&format!(",probability=0.{}", random.u8(1..9)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_one_of_the_mock() {
        for seed in 0..500 {
            for Timed { step, .. } in Plan::of(seed).steps {
                if let Step::Cloud(_, text) | Step::EdgeCloud(_, text) = step {
                    text.parse::<provider_mock::fault::Fault>().unwrap();
                }
            }
        }
    }
}
