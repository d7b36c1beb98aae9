//! What is written to a Service: its finalizer, and in one patch its addresses, what providers ask for, and the record.
//!
//! In: the Service as observed, and the [`Status`] of a row. Out: the smallest patches, only to the Service that was
//! observed. [`super::run`] and [`super::remove`] decide when.

use super::{
    Controller,
    record::{CONDITION, Record},
    row::Status,
    service::{FINALIZER, has_finalizer},
};
use ccm_base::clock;
use ccm_cloud::ServiceCondition;
use ccm_kube::{
    patch::{
        Patch, WantedCondition, WriteError, service_annotations, service_condition, service_finalizer,
        service_ingress, without_service_condition,
    },
    service::Service,
};

impl Status {
    /// The patches that are missing, each by itself.
    fn patches(&self, service: &Service, record: Option<&Record>) -> Vec<(&'static str, Patch)> {
        let now = clock::now();
        let ingress = self.ingress.as_deref().and_then(|ingress| service_ingress(service, ingress));
        let annotations = service_annotations(service, &self.annotations);
        let conditions = self.conditions.iter().filter_map(|(type_, condition)| {
            let ServiceCondition { status, reason, message } = condition;
            let message = message.into();
            service_condition(service, &WantedCondition { type_, status, reason, message }, now)
        });
        let record =
            record.and_then(|record| service_condition(service, &record.condition(&service.uid), now));
        let parts = ingress.map(|patch| ("status", patch)).into_iter();
        parts
            .chain(record.map(|patch| ("record", patch)))
            .chain(annotations.map(|patch| ("annotations", patch)))
            .chain(conditions.map(|patch| ("a condition", patch)))
            .collect()
    }

    /// Whether finalizer, addresses, record, annotations and conditions are as they should be.
    pub(super) fn is_published(&self, service: &Service, record: Option<&Record>) -> bool {
        has_finalizer(service) && self.patches(service, record).is_empty()
    }
}

/// What of a provider's was not written, and why.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) why: Vec<String>,
    /// A right or a policy is in the way, which may change.
    pub(super) may_pass: bool,
}

impl Controller {
    /// Writes what differs. What is a provider's, and the apiserver or a webhook refuses, is returned: nothing else
    /// should wait for it.
    pub(super) async fn publish(
        &self,
        service: &Service,
        status: &Status,
        record: Option<&Record>,
    ) -> Result<Refused, WriteError> {
        let parts = status.patches(service, record);
        if parts.len() != 1 {
            match self.patch(service, Patch::joined(parts.iter().map(|(_, patch)| patch))).await {
                Err(error) if error.is_refusal() => {}
                written => return written.map(|()| Refused::default()),
            }
        }
        let mut refused = Refused::default();
        for (what, patch) in parts {
            match self.patch(service, Some(patch)).await {
                Err(error) if error.is_refusal() && is_of_provider(what) => {
                    refused.why.push(format!("failed to write {what} of the provider: {error}"));
                    refused.may_pass |= !matches!(error, WriteError::Invalid(_));
                }
                written => written?,
            }
        }
        Ok(refused)
    }

    /// Takes the addresses and the record from a Service that stays without a balancer.
    pub(super) async fn clear(&self, service: &Service, addresses: bool) -> Result<(), WriteError> {
        let ingress = service_ingress(service, &[]).filter(|_| addresses);
        let record = without_service_condition(service, CONDITION);
        self.patch(service, Patch::joined(ingress.iter().chain(&record))).await
    }

    /// Adds or removes our finalizer and leaves the others. On a conflict, reads the Service live and retries once.
    pub(super) async fn set_finalizer(&self, service: &Service, present: bool) -> Result<(), WriteError> {
        let first = self.patch(service, service_finalizer(service, FINALIZER, present)).await;
        if !matches!(first, Err(WriteError::Conflict)) {
            return first;
        }
        let fresh = self.fresh(service).await?;
        if present && fresh.is_deleting() {
            return Err(WriteError::Conflict);
        }
        self.patch(service, service_finalizer(&fresh, FINALIZER, present)).await
    }

    /// The Service as the API has it now.
    pub(super) async fn fresh(&self, service: &Service) -> Result<Service, WriteError> {
        match self.live(&service.key).await? {
            None => Err(WriteError::NotFound),
            Some(fresh) if fresh.uid != service.uid => Err(WriteError::Gone),
            Some(fresh) => Ok(fresh),
        }
    }

    async fn patch(&self, service: &Service, patch: Option<Patch>) -> Result<(), WriteError> {
        let Some(patch) = patch else { return Ok(()) };
        self.shell.parts.writer.patch::<Service>(&service.key, &patch).await.map(drop)
    }
}

fn is_of_provider(what: &str) -> bool {
    matches!(what, "annotations" | "a condition")
}
