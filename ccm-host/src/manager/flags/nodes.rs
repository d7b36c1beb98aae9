//! Which nodes are looked after, how fast they are initialised and refreshed, and what guards their deletion.

use std::time::Duration;

use super::error::{FlagError, Mistakes};
use super::value;
use crate::manager::selector::LabelSelector;

mod share;

pub use share::Share;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Nodes")]
pub(super) struct RawNodes {
    /// Nodes that are initialised and written at the same time.
    #[arg(long, value_name = "INT", default_value = "32")]
    pub concurrent_node_syncs: String,

    /// Nodes that are written at the same time by the periodic refresh; 0 means as many as --concurrent-node-syncs.
    #[arg(long, value_name = "INT", default_value = "0")]
    pub concurrent_node_status_updates: String,

    /// Time between two refreshes of the addresses of all nodes.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub node_status_update_frequency: String,

    /// Label selector of the nodes that this host looks after; the others are never asked about or written.
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    pub node_selector: String,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Node lifecycle")]
pub(super) struct RawLifecycle {
    /// Time between two passes over the nodes that are not ready; a node that falls silent, and the provider's watch, begin
    /// one at once.
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub node_monitor_period: String,

    /// Age below which a node is never deleted.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub node_deletion_grace: String,

    /// How many looks in a row must find an instance absent before its node is deleted. Looks are 300ms apart, or one
    /// --node-monitor-period if that is shorter; the second and later ones also ask about up to 20 Ready nodes, so
    /// that two are the least.
    #[arg(long, value_name = "INT", default_value = "2")]
    pub node_deletion_confirmations: String,

    /// Share of a provider's nodes (but always one node) that may be deleted within --node-deletion-window where no
    /// Ready node shows that the provider can be believed: those of a zone without a Ready node go by this share,
    /// window after window; if none of the provider's nodes is Ready and more would go, none is deleted until one is
    /// Ready, the answers recover, or a person confirms. Where Ready nodes bear the provider out, a tenth of its
    /// nodes, or ten, may go each minute.
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    pub node_deletion_max_share: String,

    /// Window over which --node-deletion-max-share counts.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub node_deletion_window: String,
}

/// How nodes are initialised and refreshed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Nodes initialised at the same time, 1 to 1000.
    pub workers: usize,
    /// Nodes written at the same time by the refresh, 1 to 1000.
    pub status_workers: usize,
    /// Longer than zero.
    pub status_update_frequency: Duration,
    /// The nodes that are ours; applied before any call to a provider.
    pub selector: LabelSelector,
}

/// When a node may be deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct LifecycleSettings {
    /// Longer than zero.
    pub monitor_period: Duration,
    /// Nodes younger than this are never deleted.
    pub deletion_grace: Duration,
    /// At least one.
    pub deletion_confirmations: u32,
    /// Part of a provider's nodes that may go within the window without a Ready node of their zone; one may always go.
    pub deletion_max_share: Share,
    /// At least the monitor period.
    pub deletion_window: Duration,
}

impl RawNodes {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<NodeSettings> {
        let workers = mistakes.keep(value::workers(
            "concurrent-node-syncs",
            &self.concurrent_node_syncs,
            "no node would ever be initialised",
        ));
        let status_workers = match self.concurrent_node_status_updates.as_str() {
            "0" => workers,
            count => mistakes.keep(value::workers("concurrent-node-status-updates", count, "is zero")),
        };
        let frequency =
            mistakes.keep(value::period("node-status-update-frequency", &self.node_status_update_frequency));
        let selector = mistakes.keep(selector(&self.node_selector));
        Some(NodeSettings {
            workers: workers?,
            status_workers: status_workers?,
            status_update_frequency: frequency?,
            selector: selector?,
        })
    }
}

fn selector(value: &str) -> Result<LabelSelector, FlagError> {
    value.parse().map_err(|error: crate::manager::selector::SelectorError| {
        FlagError::value(
            "node-selector",
            value,
            error.to_string(),
            "write it as for kubectl -l, for example \"pool in (a,b),!unmanaged\"",
        )
    })
}

impl RawLifecycle {
    pub(super) fn resolve(&self, mistakes: &mut Mistakes) -> Option<LifecycleSettings> {
        let period = mistakes.keep(value::period("node-monitor-period", &self.node_monitor_period));
        let grace = mistakes.keep(value::any_duration("node-deletion-grace", &self.node_deletion_grace));
        let confirmations = mistakes.keep(value::at_least(
            "node-deletion-confirmations",
            &self.node_deletion_confirmations,
            1,
        ));
        let share = mistakes.keep(share::parse("node-deletion-max-share", &self.node_deletion_max_share));
        let window = mistakes.keep(value::period("node-deletion-window", &self.node_deletion_window));
        if let (Some(period), Some(window)) = (period, window)
            && window < period
        {
            mistakes.add(FlagError::value(
                "node-deletion-window",
                &self.node_deletion_window,
                format!("is shorter than --node-monitor-period={}", self.node_monitor_period),
                "give a window of several monitor periods",
            ));
        }
        Some(LifecycleSettings {
            monitor_period: period?,
            deletion_grace: grace?,
            deletion_confirmations: confirmations?,
            deletion_max_share: share?,
            deletion_window: window?,
        })
    }
}
