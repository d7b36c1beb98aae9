//! What happens in one run, as plain data: it is printed, and shrunk, by leaving steps out.

use std::{fmt, time::Duration};

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// It came from this seed.
    pub seed: u64,
    /// How host and provider are set up.
    pub setup: Setup,
    /// What happens when, in the order of time. A step that finds nothing to work on does nothing.
    pub steps: Vec<Timed>,
    /// When the last fault is over.
    pub calm_after: Duration,
    /// What happens once all is right, with nothing in the way, since then: the host has to be quick about it.
    pub encore: Vec<Timed>,
}

impl Plan {
    /// How long the world may take to become right after the encore: far less than the periods in which a host finds by
    /// itself what it overlooked.
    #[must_use]
    pub fn haste(&self) -> Duration {
        Duration::from_secs(40) + self.setup.latency * 12 + self.setup.provisioning * 3
    }

    /// How long the encore lasts.
    #[must_use]
    pub fn encore_lasts(&self) -> Duration {
        self.encore.iter().map(|timed| timed.at + timed.step.lasts()).max().unwrap_or_default()
    }
}

/// How host and provider are set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Flags of the host, besides those that every run has.
    pub flags: Vec<String>,
    /// Hosts elect a leader, and several of them live at a time.
    pub elects: bool,
    /// What the provider advertises, as `--advertise` of the mock takes it.
    pub advertise: String,
    /// The provider wants to know a label of nodes, in each of its lives another one.
    pub reads_labels: bool,
    /// The provider comes up so late.
    pub late: Duration,
    /// Each call of the cloud takes so long.
    pub latency: Duration,
    /// Balancers take so long to come and to go.
    pub provisioning: Duration,
    /// Nodes that are there from the start.
    pub nodes: u8,
    /// How long the world may take to become right after the last fault, by the periods that the flags set.
    pub patience: Duration,
}

/// A step and its time.
#[derive(Debug, Clone)]
pub struct Timed {
    /// Counted over the whole plan, so that it keeps its number when others are left out.
    pub number: usize,
    /// Since the start.
    pub at: Duration,
    /// What happens.
    pub step: Step,
}

/// Something that happens. Nodes and Services are numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A machine is made, and its kubelet comes up.
    Join(u8),
    /// The cloud terminates machines.
    Terminate(Vec<u8>),
    /// The autoscaler taints nodes, then has their machines terminated; it leaves the Nodes to us.
    ScaleDown(Vec<u8>),
    /// Somebody shuts a machine down.
    Stop(u8),
    /// Somebody starts it again.
    Start(u8),
    /// The kubelet falls silent, the machine lives.
    Silence(u8, Duration),
    /// A user deletes the Node; its kubelet is restarted later.
    DeleteNode(u8),
    /// A user takes the node out of balancers, or puts it back in.
    Exclude(u8, bool),
    /// A user labels the node with something that nobody reads.
    Label(u8),
    /// A user makes a Service with a balancer.
    Create(u8),
    /// A user changes the port of a Service.
    Edit(u8, u16),
    /// A user changes a Service to another type, or back.
    Retype(u8, bool),
    /// A user changes a Service to another type, and back while its balancer is being removed.
    Flip(u8, Duration),
    /// A user deletes a Service.
    Delete(u8),
    /// Another controller puts its finalizer on a Service, or takes it away.
    Finalizer(u8, bool),
    /// Somebody changes a balancer behind our back.
    Drift(u8),
    /// Somebody removes a balancer behind our back.
    DropBalancer(u8),
    /// Somebody makes a route of this cluster that leads nowhere.
    StrayRoute(u8),
    /// Somebody removes the route of a node.
    DropRoute(u8),
    /// The host dies and is started again later.
    Crash(Duration),
    /// The host is told to stop and is started again at once.
    Restart,
    /// The host hangs: nothing comes in and nothing goes out.
    Hold(Duration),
    /// A second host is started, and the first is stopped only later.
    Overlap(Duration),
    /// The provider's process dies and is started again later.
    ProviderCrash(Duration),
    /// Nothing comes through between host and provider.
    ProviderHold(Duration),
    /// All connections to the provider break.
    ProviderCut,
    /// The apiserver is away for a while, and may have forgotten the past.
    ApiDown(Duration, bool),
    /// Nothing comes through between host and apiserver.
    ApiHold(Duration),
    /// Requests to the apiserver are lost, delayed, or lose their answers, so many in a hundred.
    ApiLossy(Duration, u8),
    /// Watches break.
    ApiCutWatches,
    /// Watches stay open and say nothing.
    ApiSilent(Duration),
    /// Older states are shown where they are allowed.
    ApiLagging(Duration, Duration),
    /// There are no streaming lists.
    ApiNoStreamingLists(Duration),
    /// A fault of the mock stands for a while.
    Cloud(Duration, String),
    /// The cloud cannot be reached.
    Unreachable(Duration),
    /// The credentials are no good.
    Credentials(Duration),
    /// The provider says that it does not serve.
    NotServing(Duration),
    /// Calls to the provider arrive twice, so many in a hundred.
    Doubled(Duration, u8),
    /// From now on, in calm times too, the provider breaks on this node, or hangs on it.
    SpoilNode(u8, bool),
    /// As above, on updates of the balancer of this Service.
    SpoilService(u8, bool),
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { flags, advertise, reads_labels, late, latency, provisioning, nodes, .. } = &self.setup;
        writeln!(out, "seed {}, {nodes} nodes, flags {}", self.seed, flags.join(" "))?;
        writeln!(
            out,
            "provider: up after {late:?}, advertises {advertise:?}, reads labels: {reads_labels}, latency {latency:?}, provisioning {provisioning:?}"
        )?;
        for Timed { number, at, step } in &self.steps {
            writeln!(out, "{number:>4} {:>8.3}s  {step:?}", at.as_secs_f64())?;
        }
        write!(out, "     {:>8.3}s  calm", self.calm_after.as_secs_f64())?;
        for Timed { number, at, step } in &self.encore {
            write!(out, "\n{number:>4} {:>8.3}s  after all is right: {step:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

impl Step {
    /// How long it makes trouble, if it does.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Silence(_, time)
            | Self::Flip(_, time)
            | Self::Crash(time)
            | Self::Hold(time)
            | Self::Overlap(time)
            | Self::ProviderCrash(time)
            | Self::ProviderHold(time)
            | Self::ApiDown(time, _)
            | Self::ApiHold(time)
            | Self::ApiLossy(time, _)
            | Self::ApiSilent(time)
            | Self::ApiLagging(time, _)
            | Self::ApiNoStreamingLists(time)
            | Self::Cloud(time, _)
            | Self::Unreachable(time)
            | Self::Credentials(time)
            | Self::NotServing(time)
            | Self::Doubled(time, _) => *time,
            Self::ScaleDown(_) => Duration::from_secs(15),
            Self::DeleteNode(_) => Duration::from_secs(30),
            _ => Duration::ZERO,
        }
    }
}
