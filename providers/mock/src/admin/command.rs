//! The admin door's command line.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use http::Method;
use serde_json::Value;

use super::Client;

/// Read or change the cloud of a running mock: sends one request to its admin door and prints the answer as JSON.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  provider-mock admin get instances
  provider-mock admin post instances --body '{\"name\": \"node-9\"}'
  provider-mock admin post instances node-9 terminate --body '{\"linger_ms\": 10000}'
  provider-mock admin patch conditions --body '{\"cloud_reachable\": false}'
  provider-mock admin delete faults

The README of provider-mock lists all paths.")]
pub struct Command {
    /// Address of the door.
    #[arg(
        long,
        env = "PROVIDER_MOCK_ADMIN",
        value_name = "ADDRESS:PORT",
        required_unless_present = "address_file"
    )]
    address: Option<SocketAddr>,
    /// File with the address of the door.
    #[arg(long, value_name = "FILE")]
    address_file: Option<PathBuf>,
    /// get, post, put, patch or delete.
    #[arg(value_parser = method)]
    method: Method,
    /// Segments of the path, unescaped: a provider ID or namespace/name is one segment.
    #[arg(required = true)]
    path: Vec<String>,
    /// The body, as JSON; an empty object by default.
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json)]
    body: Value,
    /// Query parameters, for example limit=50 for calls.
    #[arg(long, value_name = "KEY=VALUE&…")]
    query: Option<String>,
}

impl Command {
    /// Sends the request and prints the answer.
    ///
    /// # Errors
    ///
    /// When the door does not answer, or refuses.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = match (self.address, self.address_file) {
            (Some(address), _) => Client::new(address),
            (None, file) => {
                let file = file.context("neither --address nor --address-file is given")?;
                Client::from_address_file(file, Duration::ZERO).await?
            }
        };
        let answer: Value = client.call(self.method, &self.path, self.query.as_deref(), &self.body).await?;
        match writeln!(io::stdout().lock(), "{answer:#}") {
            // The reader has read enough, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }
}

fn method(text: &str) -> Result<Method, String> {
    let known = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let named = known.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(text));
    named.ok_or_else(|| format!("{text:?} is not get, post, put, patch or delete"))
}

/// Clap would take any text as a JSON string, since `Value` can be made from one.
fn json(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}
