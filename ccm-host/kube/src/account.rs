//! A ServiceAccount that a client acts as, with the token that it has now.
//!
//! In: a client that may request tokens. Out: a token for each request, renewed long before it expires, and as soon as
//! the apiserver rejects it. The ServiceAccount is created if it does not exist.

use std::{sync::Arc, time::Duration};

use http::HeaderValue;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Error, api::PostParams};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// The namespace of these ServiceAccounts, as upstream.
pub const NAMESPACE: &str = "kube-system";

/// As upstream: the lifetime of a token, and the share of it after which the token is renewed.
const LIFETIME: Duration = Duration::from_secs(3600);
const RENEWED_AT: f64 = 0.8;
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// The least time between two requests, so that an apiserver that rejects every token is not flooded.
const SPACING: Duration = Duration::from_secs(1);

/// The remedy of a missing right.
const REMEDY: &str = "install the chart with useServiceAccountCredentials, grant the right, or leave out \
                      --use-service-account-credentials";

/// A ServiceAccount and its token.
#[derive(Debug)]
pub struct Account {
    name: &'static str,
    state: watch::Sender<State>,
    rejected: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The value of the header `Authorization`.
    token: Option<HeaderValue>,
    /// Why the last request for a token failed.
    failure: Option<String>,
}

impl Account {
    /// The ServiceAccount of this name, without a token until [`Self::run`] has one.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, state: watch::Sender::default(), rejected: Notify::new() })
    }

    /// Its name, in [`NAMESPACE`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether there is a token, or why not.
    pub fn health(&self) -> Result<(), String> {
        let state = self.state.borrow();
        match (&state.token, &state.failure) {
            (Some(_), _) => Ok(()),
            (None, Some(why)) => Err(format!("no token: {why}")),
            (None, None) => Err("no token yet".to_owned()),
        }
    }

    /// Waits for the first token, however often that fails.
    pub async fn ready(&self) {
        let mut state = self.state.subscribe();
        // The sender lives in self.
        let _closed = state.wait_for(|state| state.token.is_some()).await.is_err();
    }

    /// The current token. Without one it waits for the request under way, and fails if that does.
    pub(super) async fn token(&self) -> Result<HeaderValue, String> {
        let mut changes = self.state.subscribe();
        let known = changes.wait_for(|state| state.token.is_some() || state.failure.is_some()).await;
        let name = self.name;
        let without = |why: &str| format!("no token of the ServiceAccount {NAMESPACE}/{name}: {why}");
        let state = known.map_err(|_closed| without("the process is ending"))?;
        state.token.clone().ok_or_else(|| without(state.failure.as_deref().unwrap_or_default()))
    }

    /// The apiserver rejects this token: [`Self::token`] then waits for another one.
    pub(super) fn rejected(&self, token: &HeaderValue) {
        let is_current = self.state.send_if_modified(|state| {
            let is_current = state.token.as_ref() == Some(token);
            if is_current {
                *state = State::default();
            }
            is_current
        });
        if is_current {
            tracing::info!(account = self.name, "the apiserver rejects the token of this ServiceAccount");
            self.rejected.notify_one();
        }
    }

    /// Keeps a token at hand until it is asked to stop.
    pub async fn run(self: Arc<Self>, client: Client, stop: CancellationToken) {
        let accounts = Api::namespaced(client, NAMESPACE);
        stop.run_until_cancelled(self.renew(&accounts)).await;
    }

    async fn renew(&self, accounts: &Api<ServiceAccount>) {
        loop {
            let earliest = Instant::now() + SPACING;
            let pause = match self.request(accounts).await {
                Ok((token, lifetime)) => {
                    tracing::info!(account = self.name, ?lifetime, "has a token of this ServiceAccount");
                    self.state.send_replace(State { token: Some(token), failure: None });
                    lifetime.mul_f64(RENEWED_AT)
                }
                Err(why) => {
                    self.failed(why);
                    RETRY
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.rejected.notified() => sleep_until(earliest).await,
            }
        }
    }

    /// A token that is still valid stays.
    fn failed(&self, why: String) {
        self.state.send_if_modified(|state| {
            let is_news = state.failure.as_ref() != Some(&why);
            if is_news {
                tracing::warn!(account = self.name, why, "no new token of this ServiceAccount");
                state.failure = Some(why);
            }
            is_news
        });
    }

    async fn request(&self, accounts: &Api<ServiceAccount>) -> Result<(HeaderValue, Duration), String> {
        let name = self.name;
        let granted = match self.request_once(accounts).await {
            Err(Error::Api(status)) if status.code == 404 => {
                self.create(accounts).await?;
                self.request_once(accounts).await
            }
            answered => answered,
        };
        let granted = granted.map_err(|error| match error {
            Error::Api(status) if status.code == 403 => format!(
                "this process may not create serviceaccounts/token of {name} in {NAMESPACE} ({}): {REMEDY}",
                status.message
            ),
            other => said(other),
        })?;
        // The apiserver may shorten what was asked. It says until when as well, but clocks differ.
        let lifetime = u64::try_from(granted.spec.expiration_seconds.unwrap_or_default()).unwrap_or_default();
        let token = granted.status.map(|status| format!("Bearer {}", status.token)).unwrap_or_default();
        let mut token = HeaderValue::from_str(&token)
            .map_err(|_| "the apiserver granted a token that cannot be sent in a header".to_owned())?;
        token.set_sensitive(true);
        Ok((token, Duration::from_secs(lifetime).max(SPACING)))
    }

    async fn request_once(&self, accounts: &Api<ServiceAccount>) -> ::kube::Result<TokenRequest> {
        let expiration_seconds = i64::try_from(LIFETIME.as_secs()).ok();
        let spec = TokenRequestSpec { expiration_seconds, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        accounts.create_token_request(self.name, &PostParams::default(), &request).await
    }

    async fn create(&self, accounts: &Api<ServiceAccount>) -> Result<(), String> {
        let name = self.name;
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(name.to_owned());
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => {
                tracing::info!(account = name, "created this ServiceAccount");
                Ok(())
            }
            Err(Error::Api(status)) if status.code == 409 => Ok(()),
            Err(Error::Api(status)) if status.code == 403 => Err(format!(
                "it does not exist, and this process may not create serviceaccounts in {NAMESPACE} ({}): {REMEDY}",
                status.message
            )),
            Err(other) => Err(said(other)),
        }
    }
}

fn said(error: Error) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

#[cfg(test)]
mod tests;
