//! `admin calls`.

use clap::Subcommand;
use serde::Serialize;

use super::{
    Screen,
    table::{Table, maybe, or_dash},
};
use crate::{
    admin::{CallFilter, Client},
    calls::{Call, CallSummary},
};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show calls, the newest last.
    List {
        /// Only this RPC.
        #[arg(long)]
        method: Option<String>,
        /// Only calls after this number.
        #[arg(long)]
        since: Option<u64>,
        /// The newest so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show how often each RPC was called, and the cloud's own API behind them.
    Summary,
    /// Show how often the cloud's own API was called, and how many of these calls change something.
    Count,
    /// Forget all calls.
    Reset,
}

#[derive(Debug, Serialize)]
struct Count {
    calls: u64,
    changes: u64,
}

impl Verb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        match self {
            Self::List { method, since, limit } => {
                let filter = CallFilter { method, since, limit: Some(limit) };
                screen.show(&client.calls(&filter).await?, |calls| list(calls))
            }
            Self::Summary => screen.show(&client.call_summary().await?, summary),
            Self::Count => {
                let cloud = client.call_summary().await?.cloud;
                let changes = cloud.iter().filter(|(action, _)| action.ends_with(":write"));
                let count =
                    Count { calls: cloud.values().sum(), changes: changes.map(|(_, times)| times).sum() };
                screen.show(&count, |count| {
                    Table::new(["CALLS", "CHANGES"]).row([count.calls.to_string(), count.changes.to_string()])
                })
            }
            Self::Reset => {
                client.reset_calls().await?;
                screen.show(&client.call_summary().await?, summary)
            }
        }
    }
}

fn list(calls: &[Call]) -> Table {
    let heads = ["#", "METHOD", "ITEMS", "OUTCOME", "MS", "ABOUT", "FAULTS"];
    Table::new(heads).rows(calls, |call| {
        [
            call.sequence.to_string(),
            call.method.clone(),
            call.items.to_string(),
            format!("{} {}", call.code, call.reason).trim_end().to_owned(),
            maybe(call.took_ms),
            or_dash(call.keys.iter().take(3).cloned().collect::<Vec<_>>().join(",")),
            or_dash(call.faults.join(",")),
        ]
    })
}

fn summary(summary: &CallSummary) -> Table {
    let rpcs = Table::new(["CALL", "TIMES", "ITEMS", "AT ONCE", "OUTCOMES"]).rows(
        &summary.methods,
        |(name, seen)| {
            let outcomes: Vec<_> =
                seen.outcomes.iter().map(|(outcome, times)| format!("{outcome}: {times}")).collect();
            [
                name.clone(),
                seen.calls.to_string(),
                seen.items.to_string(),
                seen.most_at_once.to_string(),
                or_dash(outcomes.join(", ")),
            ]
        },
    );
    rpcs.rows(&summary.cloud, |(action, times)| {
        [format!("cloud {action}"), times.to_string(), "-".to_owned(), "-".to_owned(), "-".to_owned()]
    })
}
