//! The flags of shadow mode.

use std::time::Duration;

use clap::ArgAction;

use crate::flag::{self, Mistakes};

/// One field per flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Shadow mode")]
#[group(skip)]
pub struct Settings {
    /// Decide everything, and write and change nothing: beside another cloud controller manager, /shadow and
    /// `ccmctl shadow diff` show what would be different with this one. Needs rights to read only, and takes part in no
    /// leader election, whatever --leader-elect says.
    #[arg(long, value_name = "BOOL", default_value = "false", action = ArgAction::Set, value_parser = flag::switch)]
    pub shadow: bool,

    /// How long the other controller manager may take for a change before it counts as a difference.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = flag::period)]
    pub shadow_grace: Duration,
}

impl Settings {
    /// Checks the flags against others.
    pub fn check(&self, use_service_account_credentials: bool, mistakes: &mut Mistakes) {
        if self.shadow && use_service_account_credentials {
            mistakes.refuse(
                "shadow",
                true,
                "goes not with --use-service-account-credentials, which creates ServiceAccounts and tokens",
                "give --use-service-account-credentials=false: in shadow mode no controller writes",
            );
        }
    }
}
