//! The flags that control when nodes are checked, and what guards their deletion.

use std::{fmt, time::Duration};

use crate::taint;
use ccm_base::flag::{self, Mistakes, Wrong, duration::text};
use ccm_kube::node::Taint;

/// One field per flag.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[command(next_help_heading = "Node lifecycle")]
#[group(skip)]
pub struct LifecycleSettings {
    /// Time between two checks of the nodes that are not ready; a node that falls silent, or an event of the provider's
    /// watch, starts a check at once.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = flag::period)]
    pub node_monitor_period: Duration,

    /// A node younger than this is never deleted.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag::duration)]
    pub node_deletion_grace: Duration,

    /// Number of consecutive checks that must report an instance absent before its node is deleted. Checks are 300ms
    /// apart, or one --node-monitor-period if that is shorter. All but the first also ask about some 20 Ready nodes,
    /// so there are always at least two.
    #[arg(long, value_name = "INT", default_value = "2", value_parser = confirmations)]
    pub node_deletion_confirmations: u32,

    /// Share of a provider's nodes (at least one node) that may be deleted within --node-deletion-window, window after
    /// window, when no Ready node shows that the provider's answers can be trusted: if none of its nodes is Ready, or
    /// none in the node's zone. While Ready nodes confirm the provider's answers, up to a tenth of its nodes, or ten,
    /// may be deleted each minute.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    pub node_deletion_max_share: Share,

    /// Window for --node-deletion-max-share.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = flag::period)]
    pub node_deletion_window: Duration,

    /// What happens to the pods of a node whose instance is stopped: none; taint keeps new ones away; evict also evicts
    /// them after --node-shutdown-grace; out-of-service deletes them then and detaches their volumes, as the taint
    /// node.kubernetes.io/out-of-service does. The taints go when the instance runs again.
    #[arg(long, value_name = "POLICY", default_value = "taint", value_parser = ShutdownPolicy::parse)]
    pub node_shutdown_policy: ShutdownPolicy,

    /// How long the instance must be stopped and the kubelet silent before --node-shutdown-policy evicts pods; never
    /// shorter than the kubelet's Lease, 40s by default.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = flag::duration)]
    pub node_shutdown_grace: Duration,
}

/// `--node-shutdown-policy`: what happens to the pods of a node whose instance is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownPolicy {
    /// The node is left alone.
    None,
    /// New pods stay away; as upstream.
    Taint,
    /// And after the grace, pods are evicted.
    Evict,
    /// And after the grace, pods are deleted and volumes detached without the kubelet.
    OutOfService,
}

impl ShutdownPolicy {
    /// The policy of this name.
    fn parse(name: &str) -> Result<Self, Wrong> {
        let all = [Self::None, Self::Taint, Self::Evict, Self::OutOfService];
        let known = all.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| Wrong::new("is unknown", "give none, taint, evict or out-of-service"))
    }

    /// As in the flag.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Taint => "taint",
            Self::Evict => "evict",
            Self::OutOfService => "out-of-service",
        }
    }

    /// The taint of a node that is given up.
    pub fn taint(self) -> Option<Taint> {
        match self {
            Self::None | Self::Taint => None,
            Self::Evict => Some(taint::evicting()),
            Self::OutOfService => Some(taint::out_of_service()),
        }
    }
}

/// A part of a whole, from nothing (0) to all (1), written `5%` or `0.05`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// As a fraction from 0 to 1.
    pub const fn fraction(self) -> f64 {
        self.0
    }

    /// The share of this fraction, if it is one.
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then_some(Self(fraction))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.0 * 100.0)
    }
}

impl LifecycleSettings {
    /// Refuses flags that contradict each other.
    pub fn check(&self, mistakes: &mut Mistakes) {
        let (period, window) = (self.node_monitor_period, self.node_deletion_window);
        if window < period && mistakes.spare(&["node-monitor-period", "node-deletion-window"]) {
            mistakes.refuse(
                "node-deletion-window",
                text(window),
                format!("is shorter than --node-monitor-period={}", text(period)),
                "give a window of several monitor periods",
            );
        }
    }
}

fn confirmations(text: &str) -> Result<u32, Wrong> {
    flag::at_least(text, 1)
}

fn share(text: &str) -> Result<Share, Wrong> {
    let example = "write it like 5% or 0.05";
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        // `1` could mean one percent or everything: either guess could delete the wrong number of nodes.
        None if text != "0" && !text.contains('.') && text.parse::<f64>().is_ok() => {
            return Err(Wrong::new("is ambiguous", format!("write {text}% for a percentage")));
        }
        None => (text, 1.0),
    };
    let number: f64 = number.trim_end().parse().map_err(|_| Wrong::new("is not a share", example))?;
    Share::from_fraction(number / scale)
        .ok_or_else(|| Wrong::new("is not between nothing and all", "give 0% to 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_spellings() {
        for (text, fraction) in [
            ("5%", 0.05),
            ("0.05", 0.05),
            ("0", 0.0),
            ("0%", 0.0),
            ("100%", 1.0),
            ("1.0", 1.0),
            ("2.5 %", 0.025),
        ] {
            assert_eq!(share(text).map(Share::fraction), Ok(fraction), "{text}");
        }
        assert_eq!(Share(0.05).to_string(), "5%");
    }

    #[test]
    fn refuses_with_a_remedy() {
        for (text, message) in [
            ("1", "is ambiguous: write 1% for a percentage"),
            ("5", "is ambiguous: write 5% for a percentage"),
            ("101%", "is not between nothing and all: give 0% to 100%"),
            ("-1%", "is not between nothing and all: give 0% to 100%"),
            ("1.5", "is not between nothing and all: give 0% to 100%"),
            ("NaN%", "is not between nothing and all: give 0% to 100%"),
            ("half", "is not a share: write it like 5% or 0.05"),
            ("", "is not a share: write it like 5% or 0.05"),
        ] {
            assert_eq!(share(text).unwrap_err().to_string(), message);
        }
    }
}
