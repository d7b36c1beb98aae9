//! Calls about one balancer, and the list of all balancers.

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;

use super::{
    CloudError, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, LoadBalancer, LoadBalancerList,
    check::{self, Findings},
    link::Link,
    method::{self, Method},
    session::Session,
    sets,
    spliced::Spliced,
    status,
    walk::{Page, Paged, Walked, walk},
    wanted,
};
use crate::kube::ObjectKey;

/// `EnsureLoadBalancerRequest.backends`.
const BACKENDS: u32 = 4;

pub(super) async fn get(link: &Link, key: &ObjectKey, uid: &str) -> Result<LoadBalancer, CloudError> {
    let method = &method::GET_LOAD_BALANCER;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let message = pb::GetLoadBalancerRequest {
        cluster: Some(link.config.cluster.message()),
        service: Some(wanted::service_ref(key, uid)),
    };
    let mut client = session.load_balancers();
    let response = link
        .call(&session, method, None, message, async |request| client.get_load_balancer(request).await)
        .await?;
    let mut findings = Findings::default();
    let balancer = check::balancer(response.load_balancer, key, uid, &mut findings);
    link.metrics.findings(&findings);
    Ok(balancer)
}

pub(super) async fn ensure(link: &Link, given: EnsureLoadBalancer) -> Result<Ensured, CloudError> {
    let method = &method::ENSURE_LOAD_BALANCER;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let wants = &session.wants;
    let message = || pb::EnsureLoadBalancerRequest {
        cluster: Some(link.config.cluster.message()),
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
            format!(
                "{nodes} nodes take {bytes} bytes, the provider takes {most}: the set is not sent in part"
            ),
        ));
    }
    let sets = (BACKENDS, &[&*given.backends][..]);
    let response: pb::EnsureLoadBalancerResponse =
        sets::call(link, &session, method, None, sets, message).await?;
    let mut findings = Findings::default();
    let ensured = check::ensured(response, &given.service.key, &given.service.uid, wants, &mut findings);
    link.metrics.findings(&findings);
    Ok(ensured)
}

pub(super) async fn delete(link: &Link, given: DeleteLoadBalancer) -> Result<Deleted, CloudError> {
    let method = &method::DELETE_LOAD_BALANCER;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let fields = session.wants.service.clone().unwrap_or_default();
    let message = pb::DeleteLoadBalancerRequest {
        cluster: Some(link.config.cluster.message()),
        fencing: Some(link.fencing()),
        service: Some(wanted::service_ref(&given.key, &given.uid)),
        last_known: given.last_known.as_deref().map(|service| wanted::service(service, &fields)),
        adoption: adoption(given.adopt).into(),
        revision: given.revision,
    };
    let mut client = session.load_balancers();
    let response = link
        .call(&session, method, None, message, async |request| client.delete_load_balancer(request).await)
        .await?;
    let mut findings = Findings::default();
    let deleted = Deleted {
        in_progress: response.in_progress.map(|given| check::in_progress(given, &mut findings)),
        events: check::events(response.events, &mut findings),
    };
    link.metrics.findings(&findings);
    Ok(deleted)
}

pub(super) async fn list(link: &Link) -> Result<LoadBalancerList, CloudError> {
    let Walked { items, complete, unreachable, .. } = walk(link, &Balancers).await?;
    Ok(LoadBalancerList { load_balancers: items, complete, unreachable })
}

struct Balancers;

impl Paged for Balancers {
    type Given = pb::LoadBalancer;
    type Key = String;
    type Item = LoadBalancer;

    fn method(&self) -> &'static Method {
        &method::LIST_LOAD_BALANCERS
    }

    async fn page(
        &self,
        link: &Link,
        session: &Session,
        page_size: i32,
        page_token: String,
    ) -> Result<Page<pb::LoadBalancer>, CloudError> {
        let method = self.method();
        let _permit = link.permit(method).await?;
        let cluster = Some(link.config.cluster.message());
        let message = pb::ListLoadBalancersRequest { cluster, page_size, page_token };
        let mut client = session.load_balancers();
        let page = link
            .call(session, method, None, message, async |request| client.list_load_balancers(request).await)
            .await?;
        let items = page.load_balancers.into_iter().filter(|given| !check::is_nobodys(given)).collect();
        Ok(Page { items, next: page.next_page_token, unreachable: page.unreachable })
    }

    fn read(&self, given: pb::LoadBalancer, findings: &mut Findings) -> Option<(String, LoadBalancer)> {
        check::listed(given, findings).map(|balancer| (balancer.service_uid.clone(), balancer))
    }
}

fn adoption(adopt: bool) -> pb::Adoption {
    if adopt { pb::Adoption::AdoptByLegacyName } else { pb::Adoption::Refuse }
}
