//! Sends patches and deletions, and reads single objects from the apiserver.

use ::kube::{
    Api, Client, Resource,
    api::{DeleteParams, Preconditions},
};
use http::{Request, header};
use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::PersistentVolume};
use serde::{Deserialize, de::IgnoredAny};

use super::{Body, Patch, Target, WriteError};
use crate::{
    election::Leadership,
    kube::{
        cache::Slim,
        keep::Keep,
        node::{Node, NodeWire},
        pairs::Interner,
        pressure::WritePressure,
        service::{ObjectKey, Service, ServiceWire},
    },
    shadow::{Shadow, Subject},
};

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
    /// The controller that writes; empty if nobody asks.
    controller: &'static str,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("pressure", &self.pressure.held()).finish_non_exhaustive()
    }
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The object's resource version after the write.
    pub resource_version: String,
}

#[derive(Deserialize)]
struct Answer {
    metadata: AnswerMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerMeta {
    #[serde(default)]
    resource_version: String,
}

impl Writer {
    /// A writer that counts into `pressure`, for a process without leader election.
    #[must_use]
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

    /// Sends a patch of a Node.
    pub async fn patch_node(&self, name: &str, patch: &Patch) -> Result<Written, WriteError> {
        self.patch::<NodeWire>(None, name, patch).await
    }

    /// Sends a patch of a Service.
    pub async fn patch_service(&self, key: &ObjectKey, patch: &Patch) -> Result<Written, WriteError> {
        self.patch::<ServiceWire>(Some(&key.namespace), &key.name, patch).await
    }

    /// Sends a patch of a CertificateSigningRequest.
    pub async fn patch_certificate_request(&self, name: &str, patch: &Patch) -> Result<Written, WriteError> {
        self.patch::<CertificateSigningRequest>(None, name, patch).await
    }

    /// Sends a patch of a PersistentVolume.
    pub async fn patch_persistent_volume(&self, name: &str, patch: &Patch) -> Result<Written, WriteError> {
        self.patch::<PersistentVolume>(None, name, patch).await
    }

    /// Deletes the Node of this name if it still has this uid.
    pub async fn delete_node(&self, name: &str, uid: &str) -> Result<(), WriteError> {
        if let Some(shadow) = &self.shadow {
            shadow.hold_deletion(self.controller, &subject::<NodeWire>(None, name), uid);
            return Err(WriteError::HeldBack(shadow.again()));
        }
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::default().preconditions(preconditions);
        let path = NodeWire::url_path(&(), None);
        let request = ::kube::core::Request::new(path)
            .delete(name, &params)
            .map_err(|error| WriteError::Other(Box::new(::kube::Error::BuildRequest(error))))?;
        let sent = self.client.request::<IgnoredAny>(request);
        self.while_it_leads(async { sent.await.map(drop).map_err(WriteError::of_delete) }).await
    }

    /// Reads a Node from the apiserver.
    pub async fn get_node(&self, name: &str, keep: &Keep) -> Result<Option<Node>, WriteError> {
        self.get(&Api::all(self.client.clone()), name, keep).await
    }

    /// Reads a Service from the apiserver.
    pub async fn get_service(&self, key: &ObjectKey, keep: &Keep) -> Result<Option<Service>, WriteError> {
        let api = Api::namespaced(self.client.clone(), &key.namespace);
        self.get(&api, &key.name, keep).await
    }

    async fn get<T: Slim>(
        &self,
        api: &Api<T::Wire>,
        name: &str,
        keep: &Keep,
    ) -> Result<Option<T>, WriteError> {
        let _held = self.pressure.hold();
        let wire = api.get_opt(name).await.map_err(WriteError::of_request)?;
        Ok(wire.map(|wire| T::project(wire, keep, &Interner::default())))
    }

    pub(super) fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn pressure(&self) -> &WritePressure {
        &self.pressure
    }

    /// The way of every patch: in shadow mode it ends here.
    pub(super) async fn patch<K: Resource<DynamicType = ()>>(
        &self,
        namespace: Option<&str>,
        name: &str,
        patch: &Patch,
    ) -> Result<Written, WriteError> {
        if let Some(shadow) = &self.shadow {
            let (uid, fields) = patch.fields();
            shadow.hold_write(self.controller, &subject::<K>(namespace, name), &uid, fields);
            return Err(WriteError::HeldBack(shadow.again()));
        }
        let collection = K::url_path(&(), namespace);
        let subresource = match patch.target {
            Target::Main => "",
            Target::Status => "/status",
            Target::Approval => "/approval",
        };
        let request = Request::patch(format!("{collection}/{name}{subresource}"))
            .header(header::CONTENT_TYPE, patch.body.content_type());
        self.send(request, &patch.body).await
    }

    pub(super) async fn send(
        &self,
        request: http::request::Builder,
        body: &Body,
    ) -> Result<Written, WriteError> {
        let request = request
            .header(header::ACCEPT, METADATA_ONLY)
            .body(body.value().to_string().into_bytes())
            .map_err(|error| WriteError::Other(Box::new(::kube::Error::HttpError(error))))?;
        let sent = self.client.request::<Answer>(request);
        self.while_it_leads(async {
            let answer = sent.await.map_err(|error| WriteError::of_patch(error, body))?;
            Ok(Written { resource_version: answer.metadata.resource_version })
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

fn subject<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> Subject {
    Subject {
        kind: K::kind(&()).into_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
        name: name.to_owned(),
    }
}
