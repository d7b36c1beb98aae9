//! The events of one run as plain data, which can be printed, and shrunk by omitting steps.

use std::{fmt, time::Duration};

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed that it was generated from.
    pub seed: u64,
    /// The setup of host and provider.
    pub setup: Setup,
    /// The steps, ordered by time. A step that finds nothing to work on does nothing.
    pub steps: Vec<Timed>,
    /// When the last fault is over.
    pub calm_after: Duration,
    /// What happens after the world is in order, without faults since then: the host must react quickly.
    pub encore: Vec<Timed>,
}

impl Plan {
    /// How long the world may take to be in order after the encore: far less than the periods after which a host finds
    /// by itself what it missed.
    pub fn haste(&self) -> Duration {
        Duration::from_secs(40) + self.setup.latency * 12 + self.setup.provisioning * 3
    }

    /// How long the encore lasts.
    pub fn encore_lasts(&self) -> Duration {
        self.encore.iter().map(|timed| timed.at + timed.step.lasts()).max().unwrap_or_default()
    }
}

/// The setup of host and provider.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The host's flags, in addition to those of every run.
    pub flags: Vec<String>,
    /// Whether hosts elect a leader, and several of them live at a time.
    pub elects: bool,
    /// What the provider advertises, in the syntax of the mock's `--advertise`.
    pub advertise: String,
    /// Whether the provider asks for a node label, another one in each of its lives.
    pub reads_labels: bool,
    /// How late the provider starts.
    pub late: Duration,
    /// How late a second provider starts, of another cloud, if there is one.
    pub edge: Option<Duration>,
    /// How long each call of the cloud takes.
    pub latency: Duration,
    /// How long balancers take to be created, changed and deleted.
    pub provisioning: Duration,
    /// How far the clocks of machines may be from the true time, in seconds.
    pub skew: i64,
    /// The duration of kubelets' Leases, in seconds; they renew them four times as often.
    pub lease: u16,
    /// How many nodes exist from the start.
    pub nodes: u8,
    /// How long the world may take to be in order after the last fault, given the periods that the flags set.
    pub patience: Duration,
}

/// A step and its time.
#[derive(Debug, Clone)]
pub struct Timed {
    /// Its number in the whole plan, which it keeps when others are omitted.
    pub number: usize,
    /// Since the start.
    pub at: Duration,
    /// What happens.
    pub step: Step,
}

/// Something that happens. Nodes and Services are numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A machine is created, and its kubelet starts.
    Join(u8),
    /// The cloud terminates machines.
    Terminate(Vec<u8>),
    /// The autoscaler taints nodes, then has their machines terminated; it leaves the Nodes to us.
    ScaleDown(Vec<u8>),
    /// Somebody shuts a machine down.
    Stop(u8),
    /// Somebody starts it again.
    Start(u8),
    /// The kubelet falls silent, but the machine runs.
    Silence(u8, Duration),
    /// A user deletes the Node; its kubelet is restarted later.
    DeleteNode(u8),
    /// A user takes the node out of balancers, or puts it back in.
    Exclude(u8, bool),
    /// A user labels the node with something that nobody reads.
    Label(u8),
    /// A tenant annotates a Service, and a kubelet its Node, with keys that they never used before.
    Scribble(u8),
    /// The clock of a machine is set to the year 2099.
    FarFuture(u8),
    /// A user creates a Service with a balancer.
    Create(u8),
    /// A user changes the port of a Service.
    Edit(u8, u16),
    /// A user changes a Service to another type, or back.
    Retype(u8, bool),
    /// A user changes a Service to another type, and back while its balancer is being deleted.
    Flip(u8, Duration),
    /// A user deletes a Service.
    Delete(u8),
    /// Another controller adds its finalizer to a Service, or removes it.
    Finalizer(u8, bool),
    /// Somebody changes a balancer behind our back.
    Drift(u8),
    /// Somebody deletes a balancer behind our back.
    DropBalancer(u8),
    /// Somebody creates a route of this cluster that leads nowhere.
    StrayRoute(u8),
    /// Somebody removes the route of a node.
    DropRoute(u8),
    /// The host dies and is started again later.
    Crash(Duration),
    /// The host is told to stop and is started again at once.
    Restart,
    /// The host hangs: it neither sends nor receives anything.
    Hold(Duration),
    /// A second host is started, and the first is stopped only later.
    Overlap(Duration),
    /// The provider's process dies and is started again later.
    ProviderCrash(Duration),
    /// The connection between host and provider stalls.
    ProviderHold(Duration),
    /// All connections to the provider break.
    ProviderCut,
    /// The apiserver is down for a while, and may have lost its history.
    ApiDown(Duration, bool),
    /// The connection between host and apiserver stalls.
    ApiHold(Duration),
    /// Requests to the apiserver are lost, delayed, or lose their answers; the share is in percent.
    ApiLossy(Duration, u8),
    /// Watches break.
    ApiCutWatches,
    /// Watches stay open but silent.
    ApiSilent(Duration),
    /// Clients see older states where these are allowed.
    ApiLagging(Duration, Duration),
    /// There are no streaming lists.
    ApiNoStreamingLists(Duration),
    /// A fault of the mock lasts for a while.
    Cloud(Duration, String),
    /// The cloud cannot be reached.
    Unreachable(Duration),
    /// The credentials are invalid.
    Credentials(Duration),
    /// The provider reports that it does not serve.
    NotServing(Duration),
    /// Calls to the provider arrive twice; the share is in percent.
    Doubled(Duration, u8),
    /// From now on, even in calm times, the provider fails or hangs on this node.
    SpoilNode(u8, bool),
    /// Likewise, on updates of this Service's balancer.
    SpoilService(u8, bool),
    /// A user gives a Service to the second provider, or back to the first.
    Move(u8, bool),
    /// The second provider's process dies and is started again later.
    EdgeCrash(Duration),
    /// A fault of the second mock lasts for a while.
    EdgeCloud(Duration, String),
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { flags, advertise, reads_labels, late, latency, provisioning, skew, lease, nodes, .. } =
            &self.setup;
        writeln!(out, "seed {}, {nodes} nodes, flags {}", self.seed, flags.join(" "))?;
        writeln!(
            out,
            "provider: up after {late:?}, advertises {advertise:?}, reads labels: {reads_labels}, latency {latency:?}, provisioning {provisioning:?}"
        )?;
        if let Some(late) = &self.setup.edge {
            writeln!(out, "a second provider: up after {late:?}")?;
        }
        writeln!(out, "machines: clocks within {skew} s, Leases of {lease} s")?;
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
    /// How long it causes trouble, if it does.
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
            | Self::Doubled(time, _)
            | Self::EdgeCrash(time)
            | Self::EdgeCloud(time, _) => *time,
            Self::ScaleDown(_) => Duration::from_secs(15),
            Self::DeleteNode(_) => Duration::from_secs(30),
            _ => Duration::ZERO,
        }
    }
}
