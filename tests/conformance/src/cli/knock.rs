//! `knock`: one call as the current user, for the case that tests a stranger.

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;
use cloudprovider_proto::discovery::v1::{GetInfoRequest, discovery_client::DiscoveryClient};

use crate::{
    provider::in_words,
    target::{Endpoint, Wire},
    trial::within,
};

#[derive(Debug, Args)]
pub(super) struct KnockArguments {
    /// Where the provider listens.
    #[arg(long)]
    endpoint: Endpoint,
    /// For https endpoints.
    #[arg(long)]
    tls_dir: Option<PathBuf>,
}

impl KnockArguments {
    /// Succeeds if the provider answers a stranger.
    pub(super) async fn run(self) -> Result<ExitCode> {
        let wire = Wire::new(self.endpoint, self.tls_dir);
        let hello = within(GetInfoRequest::default(), Duration::from_secs(5));
        let mut out = std::io::stdout();
        match DiscoveryClient::new(wire).get_info(hello).await {
            Ok(answer) => {
                writeln!(out, "answered by {}", answer.into_inner().name)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(status) => {
                writeln!(out, "{}", in_words(&status))?;
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
