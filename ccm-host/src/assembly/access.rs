//! Authentication and authorization for health and metrics through the apiserver: token and access reviews, and the CA
//! of client certificates.
//!
//! Reviews have their own client, so that they and our own requests never wait for each other; it connects when the
//! first review is due.

use std::{
    path::PathBuf,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use futures::{Stream, StreamExt as _, stream::Peekable};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::ConfigMap,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams, WatchEvent, WatchParams},
};
use tokio::time::timeout;

use crate::manager::{
    process::Process,
    serving::{
        access::{Access, Reviewer, User},
        settings::ClientCa,
    },
};
use ccm_base::outage::Outage;
use ccm_kube::{ClientOptions, client, metrics::ClientMetrics};

/// Upstream's limits for its review client.
const QPS: f32 = 200.0;
const BURST: u32 = 400;
const REVIEW: Duration = Duration::from_secs(10);

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";
/// A watch shows at once what is there.
const SHOWN: Duration = Duration::from_secs(5);
const NO_CA: &str = "client certificates are accepted from nobody: the ConfigMap \
                     kube-system/extension-apiserver-authentication has no client-ca-file; give kube-apiserver \
                     --client-ca-file, or this process --client-ca-file or --authentication-skip-lookup";
/// The pause between two watches.
const RETRY: Duration = Duration::from_secs(2);

/// Lets the serving port query the apiserver from now on.
pub(super) async fn start(
    process: &Process,
    own: &Client,
    options: &ClientOptions,
    metrics: &ClientMetrics,
) -> Result<()> {
    let Some(access) = process.access() else { return Ok(()) };
    let settings = &process.settings.serving.access;
    let authentication = client(options, settings.authentication_kubeconfig.as_ref(), metrics)
        .await
        .context("no client for --authentication-kubeconfig")?;
    let authorization = match settings.authorization_kubeconfig == settings.authentication_kubeconfig {
        true => authentication.clone(),
        false => client(options, settings.authorization_kubeconfig.as_ref(), metrics)
            .await
            .context("no client for --authorization-kubeconfig")?,
    };
    access.ask(Arc::new(Apiserver { authentication: authentication.clone(), authorization }));
    if let ClientCa::ConfigMap { tolerant } = settings.client_ca() {
        let access = access.clone();
        let watching =
            if settings.authentication_kubeconfig.is_some() { authentication } else { own.clone() };
        process.spawn_support("client-ca", move |stop| async move {
            if let Some(refused) = stop.run_until_cancelled(follow(watching, access, tolerant)).await {
                refused?;
                stop.cancelled().await;
            }
            Ok(())
        });
    }
    Ok(())
}

async fn client(
    options: &ClientOptions,
    kubeconfig: Option<&PathBuf>,
    metrics: &ClientMetrics,
) -> Result<Client> {
    // A review is created, and stored nowhere: shadow mode needs it, too.
    let mut options = ClientOptions {
        qps: QPS,
        burst: BURST,
        request_timeout: REVIEW,
        read_only: false,
        ..options.clone()
    };
    if let Some(path) = kubeconfig {
        (options.kubeconfig, options.master) = (Some(path.clone()), None);
        options.recognition = client::Recognition::default();
    }
    client::build(&options, metrics).await
}

/// Follows the ConfigMap for ever. A refusal that lasts from the beginning is final: only a person can change that.
async fn follow(client: Client, access: Arc<Access>, tolerant: bool) -> Result<()> {
    let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let only = WatchParams::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let (mut known, mut refusals) = (false, Outage::default());
    loop {
        // From the beginning: the current state comes as the first event.
        match api.watch(&only, "0").await {
            Ok(events) => {
                known = true;
                take_all(events, &access).await;
            }
            Err(::kube::Error::Api(status))
                if status.code == 403 && !known && refusals.failed(status.message.clone()) =>
            {
                let message = status.message;
                if !tolerant {
                    bail!(
                        "the CA of client certificates may not be read ({message}): bind the Role \
                         extension-apiserver-authentication-reader in {NAMESPACE} to this process, as deploy/rbac.yaml \
                         does, or give --authentication-tolerate-lookup-failure or --authentication-skip-lookup"
                    );
                }
                tracing::warn!(
                    message,
                    "client certificates are not accepted: this process may not read their CA"
                );
                return Ok(());
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the CA of client certificates cannot be read yet"
                );
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Takes all events until the watch ends, as each does after a while.
async fn take_all(events: impl Stream<Item = ::kube::Result<WatchEvent<ConfigMap>>>, access: &Access) {
    let mut events = pin!(events.peekable());
    if !is_shown(events.as_mut()).await {
        tracing::warn!("{NO_CA}");
    }
    while let Some(event) = events.next().await {
        let found = match event {
            Ok(WatchEvent::Added(found) | WatchEvent::Modified(found)) => found,
            Ok(_) => continue,
            Err(error) => {
                tracing::debug!(error = %anyhow::Error::from(error), "the watch of the client CA ended");
                return;
            }
        };
        let Some(pem) = found.data.and_then(|mut data| data.remove(CLIENT_CA)) else {
            tracing::warn!("{NO_CA}");
            continue;
        };
        if let Err(error) = access.authority().set(pem.as_bytes()) {
            tracing::warn!(error = format!("{error:#}"), "the CA of client certificates stays as it was");
        }
    }
}

/// Whether the watch shows anything, or ends, within a moment.
async fn is_shown<E: Stream>(events: Pin<&mut Peekable<E>>) -> bool {
    timeout(SHOWN, events.peek()).await.is_ok()
}

struct Apiserver {
    authentication: Client,
    authorization: Client,
}

impl std::fmt::Debug for Apiserver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Apiserver").finish_non_exhaustive()
    }
}

#[async_trait]
impl Reviewer for Apiserver {
    async fn who(&self, token: &str) -> Result<Option<User>> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let api = Api::<TokenReview>::all(self.authentication.clone());
        let review = api.create(&PostParams::default(), &review).await.context(
            "the token cannot be reviewed: does this process have the right to create tokenreviews, as in \
             deploy/rbac.yaml?",
        )?;
        let Some(status) = review.status else { bail!("the review of a token has no status") };
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        let Some(user) = status.user else { bail!("the review of a token names no user") };
        Ok(Some(User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    async fn may(&self, user: &User, verb: &str, path: &str) -> Result<bool> {
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: (!user.uid.is_empty()).then(|| user.uid.clone()),
            groups: Some(user.groups.clone()),
            extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let api = Api::<SubjectAccessReview>::all(self.authorization.clone());
        let review = api.create(&PostParams::default(), &review).await.context(
            "rights cannot be reviewed: does this process have the right to create subjectaccessreviews, as in \
             deploy/rbac.yaml?",
        )?;
        Ok(review.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_shows_nothing_is_no_config_map() {
        assert!(is_shown(pin!(stream::iter([1]).peekable())).await);
        assert!(!is_shown(pin!(stream::pending::<u8>().peekable())).await);
        let late = Box::pin(stream::once(tokio::time::sleep(SHOWN * 2)));
        let mut late = pin!(late.peekable());
        assert!(!is_shown(late.as_mut()).await);
        assert!(late.next().await.is_some(), "what comes later is still taken");
    }
}
