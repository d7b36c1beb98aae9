//! Calls about one balancer, and the list of all balancers.

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;

use super::{
    CloudError, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, LoadBalancer, LoadBalancerList,
    call::{
        list, method,
        sets::{self, Spliced},
    },
    check::{self, Findings},
    connection::{Link, session::Session},
    status, wanted,
};
use crate::kube::ObjectKey;

/// `EnsureLoadBalancerRequest.backends`.
const BACKENDS: u32 = 4;

pub(super) async fn get(link: &Link, key: &ObjectKey, uid: &str) -> Result<LoadBalancer, CloudError> {
    let service = Some(wanted::service_ref(key, uid));
    let answer = link.ask(pb::GetLoadBalancerRequest { cluster: Some(link.cluster()), service }).await?;
    Ok(link.metrics.checked(|findings| check::balancer(answer.load_balancer, key, uid, findings)))
}

pub(super) async fn ensure(link: &Link, given: EnsureLoadBalancer) -> Result<Ensured, CloudError> {
    let method = &method::ENSURE_LOAD_BALANCER;
    let (_permit, session) = link.ready(method).await?;
    let wants = &session.wants;
    let message = || pb::EnsureLoadBalancerRequest {
        cluster: Some(link.cluster()),
        fencing: Some(link.fencing()),
        service: Some(wanted::service(&given.service, &wants.service.clone().unwrap_or_default())),
        backends: None,
        desired_digest: given.desired_digest.clone(),
        revision: given.revision,
        adoption: adoption(given.adopt).into(),
    };
    // Size check against the whole set: a provider that forgot the set gets all of it.
    let whole = Spliced { message: message(), tag: BACKENDS, entries: vec![given.backends.encoded.clone()] };
    let bytes = whole.encoded_len();
    if bytes > session.message_bytes {
        let nodes = given.backends.nodes.len();
        let most = session.message_bytes;
        return Err(status::too_large(
            method.name,
            format!("{nodes} nodes take {bytes} bytes, the provider accepts {most}: a set cannot be split"),
        ));
    }
    let sets = (BACKENDS, &[&*given.backends][..]);
    let response = sets::call(link, &session, None, sets, message).await?;
    let of = &given.service;
    Ok(link.metrics.checked(|findings| check::ensured(response, &of.key, &of.uid, wants, findings)))
}

pub(super) async fn delete(link: &Link, given: DeleteLoadBalancer) -> Result<Deleted, CloudError> {
    let (_permit, session) = link.ready(&method::DELETE_LOAD_BALANCER).await?;
    let fields = session.wants.service.clone().unwrap_or_default();
    let message = pb::DeleteLoadBalancerRequest {
        cluster: Some(link.cluster()),
        fencing: Some(link.fencing()),
        service: Some(wanted::service_ref(&given.key, &given.uid)),
        last_known: given.last_known.as_deref().map(|service| wanted::service(service, &fields)),
        adoption: adoption(given.adopt).into(),
        revision: given.revision,
    };
    let response = link.call(&session, None, message).await?;
    Ok(link.metrics.checked(|findings| Deleted {
        in_progress: response.in_progress.map(|given| check::in_progress(given, findings)),
        events: check::events(response.events, findings),
    }))
}

pub(super) async fn list(link: &Link) -> Result<LoadBalancerList, CloudError> {
    let read = |_: &Session, given, findings: &mut Findings| {
        check::listed(given, findings).map(|balancer| (balancer.service_uid.clone(), balancer))
    };
    list::walk(link, pb::ListLoadBalancersRequest::default(), |given| !check::has_no_service(given), read)
        .await
}

fn adoption(adopt: bool) -> pb::Adoption {
    if adopt { pb::Adoption::AdoptByLegacyName } else { pb::Adoption::Refuse }
}
