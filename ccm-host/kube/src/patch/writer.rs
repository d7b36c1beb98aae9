//! Sends patches and deletions, reads single objects from the apiserver, and says what a failure means.

use std::{fmt::Debug, time::Duration};

use http::{Request, header};
use kube::{
    Api, Client, Error, Resource,
    api::{DeleteParams, GetParams, Preconditions},
    core::Status,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{Body, Patch, Target};
use crate::{
    cache::{Named, Slim},
    client::is_absent,
    election::Leadership,
    keep::{Interner, Keep},
    shadow::{Shadow, ShadowSubject},
};
use ccm_base::text::with_sources;

/// Requests a metadata-only response: cheaper to send and to decode.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Writes on behalf of controllers. Cheap to clone.
///
/// All its requests count as pressure, so that events wait. Cancelling a write drops the request; whether it was
/// applied is then unknown.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    pressure: WritePressure,
    leadership: Leadership,
    shadow: Option<Shadow>,
    /// The controller that writes; empty if that is not recorded.
    controller: &'static str,
}

impl Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("pressure", &self.pressure.held()).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer that counts into `pressure`, for a process without leader election.
    pub fn new(client: Client, pressure: WritePressure) -> Self {
        Self { client, pressure, leadership: Leadership::always(), shadow: None, controller: "" }
    }

    /// Restricts writes to the time while this process leads: after a pause past its lease, writes are cancelled.
    #[must_use]
    pub fn while_leading(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    /// Holds every write back, and notes it here.
    #[must_use]
    pub fn in_shadow(self, shadow: Option<Shadow>) -> Self {
        Self { shadow, ..self }
    }

    /// Through this client, which has an identity of its own.
    #[must_use]
    pub fn through(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// On behalf of this controller.
    #[must_use]
    pub fn of(self, controller: &'static str) -> Self {
        Self { controller, ..self }
    }

    /// Sends a patch of an object, and returns the resource version that it then has.
    pub async fn patch<T: Slim>(&self, key: &T::Key, patch: &Patch) -> Result<String, WriteError> {
        let (api, name) = T::place(key, &self.client);
        self.patch_in(&api, &name, patch).await
    }

    /// Deletes the object of this name if it still has this uid.
    pub async fn delete<T: Slim>(&self, key: &T::Key, uid: &str) -> Result<(), WriteError> {
        let (api, name) = T::place(key, &self.client);
        if let Some(shadow) = &self.shadow {
            shadow.hold_deletion(self.controller, &subject(&api, &name), uid);
            return Err(WriteError::HeldBack(shadow.again()));
        }
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let request = ::kube::core::Request::new(api.resource_url())
            .delete(&name, &params)
            .map_err(|error| WriteError::Other(Box::new(Error::BuildRequest(error))))?;
        let sent = self.client.request::<IgnoredAny>(request);
        self.while_it_leads(async { sent.await.map(drop).map_err(WriteError::of_delete) }).await
    }

    /// Reads an object from the apiserver; `None` if it does not exist.
    pub async fn get<T: Slim>(&self, key: &T::Key, keep: &Keep) -> Result<Option<T>, WriteError> {
        let (api, name) = T::place(key, &self.client);
        let wire: Option<T::Wire> = self.get_in(&api, &name).await?;
        Ok(wire.map(|wire| T::project(wire, keep, &Interner::default())))
    }

    /// Reads as much of an object as a `T` holds; `None` if it does not exist.
    pub(super) async fn get_in<K: Resource, T: DeserializeOwned>(
        &self,
        api: &Api<K>,
        name: &str,
    ) -> Result<Option<T>, WriteError> {
        let _held = self.pressure.hold();
        let request = ::kube::core::Request::new(api.resource_url())
            .get(name, &GetParams::default())
            .map_err(|error| WriteError::Other(Box::new(Error::BuildRequest(error))))?;
        match self.client.request(request).await.map_err(WriteError::of_request) {
            Err(WriteError::NotFound) => Ok(None),
            read => read.map(Some),
        }
    }

    pub(super) fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The way of every patch: in shadow mode it ends here.
    pub(super) async fn patch_in<K: Resource<DynamicType = ()>>(
        &self,
        api: &Api<K>,
        name: &str,
        patch: &Patch,
    ) -> Result<String, WriteError> {
        if let Some(shadow) = &self.shadow {
            let (uid, fields) = patch.fields();
            shadow.hold_write(self.controller, &subject(api, name), &uid, fields);
            return Err(WriteError::HeldBack(shadow.again()));
        }
        let subresource = match patch.target {
            Target::Main => "",
            Target::Status => "/status",
            Target::Approval => "/approval",
        };
        let request = Request::patch(format!("{}/{name}{subresource}", api.resource_url()))
            .header(header::CONTENT_TYPE, patch.body.content_type());
        self.send(request, &patch.body).await
    }

    pub(super) async fn send(
        &self,
        request: http::request::Builder,
        body: &Body,
    ) -> Result<String, WriteError> {
        let request = request
            .header(header::ACCEPT, METADATA_ONLY)
            .body(body.value().to_string().into_bytes())
            .map_err(|error| WriteError::Other(Box::new(Error::HttpError(error))))?;
        let sent = self.client.request::<Named>(request);
        self.while_it_leads(async {
            let answer = sent.await.map_err(|error| WriteError::of_patch(error, body))?;
            Ok(answer.metadata.resource_version)
        })
        .await
    }

    async fn while_it_leads<R>(
        &self,
        write: impl Future<Output = Result<R, WriteError>>,
    ) -> Result<R, WriteError> {
        let _held = self.pressure.hold();
        tokio::select! {
            biased;
            () = self.leadership.lost() => Err(WriteError::NotLeading),
            result = write => result,
        }
    }
}

/// The important writes that are waiting or in flight: writers hold a `Hold` for the length of a write; less urgent work
/// (events) waits for [`WritePressure::calm`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WritePressure(watch::Sender<Pressure>);

#[derive(Debug, Clone, Copy, Default)]
struct Pressure {
    held: usize,
    /// When the last one ended.
    ended: Option<Instant>,
}

impl Default for WritePressure {
    fn default() -> Self {
        Self(watch::Sender::new(Pressure::default()))
    }
}

impl WritePressure {
    /// Counts one write until the returned value is dropped.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.send_modify(|pressure| pressure.held += 1);
        Hold(self.clone())
    }

    /// The number of writes waiting or in flight.
    pub fn held(&self) -> usize {
        self.0.borrow().held
    }

    /// Returns when no write has been waiting or in flight for this long: between two writes of one object there is none,
    /// and the next is about to come.
    pub async fn calm(&self, quiet: Duration) {
        let mut pressure = self.0.subscribe();
        loop {
            // The sender lives in self, so the channel cannot be closed here.
            let Ok(Pressure { ended, .. }) =
                pressure.wait_for(|pressure| pressure.held == 0).await.map(|now| *now)
            else {
                return;
            };
            let Some(ended) = ended else { return };
            tokio::select! {
                biased;
                _ = pressure.changed() => {}
                () = sleep_until(ended + quiet) => return,
            }
        }
    }
}

#[derive(Debug)]
pub struct Hold(WritePressure);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.0.send_modify(|pressure| {
            pressure.held = pressure.held.saturating_sub(1);
            pressure.ended = Some(Instant::now());
        });
    }
}

fn subject<K: Resource<DynamicType = ()>>(api: &Api<K>, name: &str) -> ShadowSubject {
    ShadowSubject {
        kind: K::kind(&()).into_owned(),
        namespace: api.namespace().unwrap_or_default().to_owned(),
        name: name.to_owned(),
    }
}

/// A write that was not applied, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is no object of that name: nothing to do.
    #[error("the object does not exist")]
    NotFound,
    /// The object with that uid is gone and another one has its name: decide again.
    #[error("the object was replaced by another one of the same name")]
    Gone,
    /// Somebody changed the basis of the write: read again and decide again.
    #[error("the object was changed in the meantime")]
    Conflict,
    /// The apiserver refuses the value: retrying will not help until the input changes.
    #[error("the apiserver refuses the value: {0}")]
    Invalid(String),
    /// This process does not lead any more. The write may have been applied.
    #[error("this process does not lead any more")]
    NotLeading,
    /// Shadow mode: certainly not applied. Decide again after this long.
    #[error("held back: this host runs in shadow mode")]
    HeldBack(Duration),
    /// Everything else, timeouts included. It may have been applied.
    #[error("the apiserver refuses or does not answer: {}", said(.0))]
    Other(Box<Error>),
}

/// The client's errors, but for those of who it is, of time, and of too many requests.
fn is_judgment(code: u16) -> bool {
    (400..500).contains(&code) && ![401, 408, 409, 429].contains(&code)
}

/// A refusal in the apiserver's own words, those of a webhook among them.
fn said(error: &Error) -> String {
    match error {
        Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => with_sources(other),
    }
}

impl WriteError {
    /// Whether to read again and decide again.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Conflict | Self::Gone)
    }

    /// Whether the apiserver, or a webhook of its, judged what was sent, and does not take it: a part of it may pass.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Invalid(_) => true,
            Self::Other(error) => matches!(**error, Error::Api(ref status) if is_judgment(status.code)),
            Self::NotFound | Self::Gone | Self::Conflict | Self::NotLeading | Self::HeldBack(_) => false,
        }
    }

    /// Interprets the error of a patch.
    fn of_patch(error: Error, body: &Body) -> Self {
        match error {
            Error::Api(status) if status.code == 422 => of_invalid(&status, body),
            Error::Api(status) if status.code == 409 => Self::Conflict,
            other => Self::of_request(other),
        }
    }

    /// Interprets the error of a deletion with a uid precondition.
    fn of_delete(error: Error) -> Self {
        match error {
            Error::Api(status) if status.code == 409 => Self::Gone,
            other => Self::of_request(other),
        }
    }

    fn of_request(error: Error) -> Self {
        match error {
            Error::Api(status) if is_absent(&status) => Self::NotFound,
            other => Self::Other(Box::new(other)),
        }
    }
}

/// A 422 names the fields it refuses, except if an operation of a JSON patch could not be applied: then a `test`
/// failed, or a key to remove no longer exists. An admission webhook that refuses names none either.
fn of_invalid(status: &Status, body: &Body) -> WriteError {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    if causes.iter().any(|cause| cause.field == "metadata.uid") {
        return WriteError::Gone;
    }
    match body {
        Body::Json(_) if causes.is_empty() && !status.message.starts_with("admission webhook") => {
            WriteError::Conflict
        }
        _ => WriteError::Invalid(status.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Only what the apiserver itself says of a patch means that the object has changed in the meantime.
    #[test]
    fn a_webhook_that_refuses_is_no_conflict() {
        let status = |message: &str| Status { code: 422, message: message.to_owned(), ..Status::default() };
        let read = |message: &str| of_invalid(&status(message), &Body::Json(serde_json::Value::Null));
        let failed = "the server rejected our request due to an error in our request";
        assert!(matches!(read(failed), WriteError::Conflict));
        let refused = r#"admission webhook "policy.example.com" denied the request: no"#;
        assert!(matches!(read(refused), WriteError::Invalid(why) if why == refused));
    }

    #[tokio::test(start_paused = true)]
    async fn calm_waits_for_the_last_write_and_a_while_longer() {
        const QUIET: Duration = Duration::from_millis(100);
        let pressure = WritePressure::default();
        pressure.calm(QUIET).await;
        let (first, second) = (pressure.hold(), pressure.hold());
        let mut calm = Box::pin(pressure.calm(QUIET));
        assert!(calm.as_mut().now_or_never().is_none());
        drop(first);
        assert!(calm.as_mut().now_or_never().is_none(), "one of two is still held");
        drop(second);
        assert!(calm.as_mut().now_or_never().is_none(), "the next one may be about to come");
        let begun = Instant::now();
        calm.await;
        assert_eq!((begun.elapsed(), pressure.held()), (QUIET, 0));
    }
}
