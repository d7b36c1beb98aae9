//! The flags that control when nodes are checked, and what guards their deletion.

mod share;

use std::time::Duration;

pub use share::Share;

use crate::flag::{self, Mistakes, Wrong, duration::text};

/// One field a flag.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[command(next_help_heading = "Node lifecycle")]
#[group(skip)]
pub struct Settings {
    /// Time between two passes over the nodes that are not ready; a node that falls silent, and the provider's watch, begin
    /// one at once.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = flag::period)]
    pub node_monitor_period: Duration,

    /// Age below which a node is never deleted.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flag::duration)]
    pub node_deletion_grace: Duration,

    /// How many looks in a row must find an instance absent before its node is deleted. Looks are 300ms apart, or one
    /// --node-monitor-period if that is shorter; the second and later ones also ask about up to 20 Ready nodes, so
    /// that two are the least.
    #[arg(long, value_name = "INT", default_value = "2", value_parser = confirmations)]
    pub node_deletion_confirmations: u32,

    /// Share of a provider's nodes (but always one node) that may be deleted within --node-deletion-window where no
    /// Ready node shows that the provider can be believed: those of a zone without a Ready node go by this share,
    /// window after window; if none of the provider's nodes is Ready and more would go, none is deleted until one is
    /// Ready, the answers recover, or a person confirms. Where Ready nodes bear the provider out, a tenth of its
    /// nodes, or ten, may go each minute.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share::parse)]
    pub node_deletion_max_share: Share,

    /// Window over which --node-deletion-max-share counts.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = flag::period)]
    pub node_deletion_window: Duration,
}

impl Settings {
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
