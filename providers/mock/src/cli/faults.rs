//! `admin faults`.

use clap::Subcommand;
use serde::Serialize;

use super::{
    Screen,
    table::{Table, maybe, or_dash},
};
use crate::{
    admin::Client,
    breach,
    fault::{FaultSpec, FaultStatus, KINDS},
};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show all faults, spent ones among them.
    List,
    /// Add faults: error,reason=RATE_LIMITED,retry-after=2s,method=EnsureLoadBalancer,times=3
    Add {
        /// Each a kind and its keys, or a JSON object.
        #[arg(required = true)]
        faults: Vec<FaultSpec>,
    },
    /// Take a fault away.
    Remove {
        /// Its number.
        id: u64,
    },
    /// Take faults away.
    Clear {
        /// Only those of this kind, such as error; all when left out.
        #[arg(long)]
        kind: Option<String>,
    },
    /// Show all kinds of faults, and all breaches. Needs no running mock.
    Kinds,
}

/// One kind of fault or breach.
#[derive(Debug, Serialize)]
pub(super) struct KindRow {
    fault: String,
    keys: Vec<String>,
    what: &'static str,
}

impl Verb {
    pub(super) async fn run(self, client: &Client, screen: &Screen) -> anyhow::Result<()> {
        match self {
            Self::List => {}
            Self::Add { faults } => {
                for fault in faults {
                    client.add_fault(&fault.into_fault()).await?;
                }
            }
            Self::Remove { id } => {
                client.remove_fault(id).await?;
            }
            Self::Clear { kind: None } => {
                client.clear_faults().await?;
            }
            Self::Clear { kind: Some(kind) } => {
                for status in client.faults().await? {
                    if status.fault.kind.name() == kind {
                        client.remove_fault(status.id).await?;
                    }
                }
            }
            Self::Kinds => return screen.show(&kinds(), kind_table),
        }
        screen.show(&client.faults().await?, |faults| table(faults))
    }
}

pub(super) fn kinds() -> Vec<KindRow> {
    let own = KINDS.iter().map(|kind| KindRow {
        fault: kind.name.to_owned(),
        keys: kind.keys.iter().map(|key| key.replace('_', "-")).collect(),
        what: kind.what,
    });
    let breaches = breach::all().map(|breach| KindRow {
        fault: format!("breach,rule={}", breach.rule),
        keys: breach.variants.iter().map(|variant| format!("variant={variant}")).collect(),
        what: breach.what,
    });
    own.chain(breaches).collect()
}

pub(super) fn kind_table(kinds: &Vec<KindRow>) -> Table {
    Table::new(["FAULT", "KEYS", "WHAT"])
        .rows(kinds, |kind| [kind.fault.clone(), or_dash(kind.keys.join(" ")), kind.what.to_owned()])
}

fn table(faults: &[FaultStatus]) -> Table {
    Table::new(["ID", "FAULT", "METHOD", "ON", "USED", "TIMES"]).rows(faults, |status| {
        let fault = &status.fault;
        [
            status.id.to_string(),
            fault.label(),
            maybe(fault.method.as_ref()),
            or_dash(fault.on.join(",")),
            status.used.to_string(),
            maybe(fault.times),
        ]
    })
}
