//! Calls about one balancer, and the walk over all.

use std::collections::{HashMap, HashSet};

use cloudprovider_proto::{defaults, v1alpha1 as pb};
use prost::Message as _;

use super::{
    CloudError, DeleteLoadBalancer, Deleted, EnsureLoadBalancer, Ensured, ErrorReason, LoadBalancer,
    LoadBalancerList,
    check::{self, Findings, rule},
    link::Link,
    method,
    session::Session,
    status, wanted,
};
use crate::kube::Service;

/// A walk that does not end.
const MOST_PAGES: usize = 10_000;
/// How often a walk starts anew since its token was refused.
const MOST_RESTARTS: u32 = 3;

pub(super) async fn get(link: &Link, service: &Service) -> Result<LoadBalancer, CloudError> {
    let method = &method::GET_LOAD_BALANCER;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let message = pb::GetLoadBalancerRequest {
        cluster: Some(link.config.cluster.message()),
        service: Some(wanted::service_ref(&service.key, &service.uid)),
    };
    let mut client = session.load_balancers();
    let response = link
        .call(&session, method, None, message, async |request| client.get_load_balancer(request).await)
        .await?;
    let mut findings = Findings::default();
    let balancer = check::balancer(response.load_balancer, &service.key, &service.uid, &mut findings);
    link.metrics.findings(&findings);
    Ok(balancer)
}

pub(super) async fn ensure(link: &Link, given: EnsureLoadBalancer) -> Result<Ensured, CloudError> {
    let method = &method::ENSURE_LOAD_BALANCER;
    let _permit = link.permit(method).await?;
    let session = link.session(method)?;
    let wants = &session.wants;
    let message = pb::EnsureLoadBalancerRequest {
        cluster: Some(link.config.cluster.message()),
        fencing: Some(link.fencing()),
        service: Some(wanted::service(&given.service, &wants.service.clone().unwrap_or_default())),
        backends: Some(wanted::backend_message(&given.backends, &wants.backend.clone().unwrap_or_default())),
        desired_digest: given.desired_digest,
        revision: given.revision,
        adoption: adoption(given.adopt).into(),
    };
    let bytes = message.encoded_len();
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
    let mut client = session.load_balancers();
    let response = link
        .call(&session, method, None, message, async |request| client.ensure_load_balancer(request).await)
        .await?;
    let mut findings = Findings::default();
    let prefixes = &wants.service_annotation_writes;
    let ensured = check::ensured(response, &given.service.key, &given.service.uid, prefixes, &mut findings);
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

/// All of them. The session is held, so the walk ends with the process that it began with.
pub(super) async fn list(link: &Link) -> Result<LoadBalancerList, CloudError> {
    let session = link.session(&method::LIST_LOAD_BALANCERS)?;
    let mut restarts = 0;
    loop {
        match walk(link, &session).await {
            Ok(mut list) => {
                list.complete &= restarts == 0;
                return Ok(list);
            }
            Err(error) if restarts < MOST_RESTARTS && is_about_token(&error) => {
                restarts += 1;
                if error.is(ErrorReason::InvalidToken) {
                    link.metrics.violation(rule::TOKEN_ISSUED);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_about_token(error: &CloudError) -> bool {
    error.is(ErrorReason::PageTokenExpired) || error.is(ErrorReason::InvalidToken)
}

#[derive(Default)]
struct Walk {
    found: HashMap<String, LoadBalancer>,
    order: Vec<String>,
    unreachable: Vec<(String, CloudError)>,
    broken: bool,
}

async fn walk(link: &Link, session: &Session) -> Result<LoadBalancerList, CloudError> {
    let mut walk = Walk::default();
    let mut tokens = HashSet::new();
    let mut token = String::new();
    let mut size = page_size(session);
    loop {
        let page = match page(link, session, size, token.clone()).await {
            Ok(page) => page,
            // A smaller page of the same walk.
            Err(error) if error.is_too_large() && size > 1 => {
                size /= 2;
                continue;
            }
            Err(error) => return Err(error),
        };
        token = walk.take(link, page);
        if token.is_empty() {
            break;
        }
        if !tokens.insert(token.clone()) || tokens.len() > MOST_PAGES {
            link.metrics.violation(rule::PAGE_WALK_ENDS);
            walk.broken = true;
            break;
        }
    }
    Ok(walk.list())
}

async fn page(
    link: &Link,
    session: &Session,
    page_size: i32,
    page_token: String,
) -> Result<pb::ListLoadBalancersResponse, CloudError> {
    let method = &method::LIST_LOAD_BALANCERS;
    let _permit = link.permit(method).await?;
    let message =
        pb::ListLoadBalancersRequest { cluster: Some(link.config.cluster.message()), page_size, page_token };
    let mut client = session.load_balancers();
    link.call(session, method, None, message, async |request| client.list_load_balancers(request).await).await
}

fn page_size(session: &Session) -> i32 {
    let most = match session.limits.max_page_size {
        0 => defaults::MAX_PAGE_SIZE,
        most => most,
    };
    i32::try_from(most).unwrap_or(i32::MAX)
}

impl Walk {
    /// Returns the token of the next page.
    fn take(&mut self, link: &Link, page: pb::ListLoadBalancersResponse) -> String {
        for given in page.load_balancers.into_iter().filter(|given| !check::is_nobodys(given)) {
            let mut findings = Findings::default();
            match check::listed(given, &mut findings) {
                None => self.broken = true,
                Some(balancer) => {
                    let uid = balancer.service_uid.clone();
                    if self.found.insert(uid.clone(), balancer).is_some() {
                        // Two balancers for one Service, or one that moved between pages.
                        findings.count(rule::LIST_KEYS);
                        self.broken = true;
                    } else {
                        self.order.push(uid);
                    }
                }
            }
            link.metrics.findings(&findings);
        }
        for part in page.unreachable {
            if part.error.is_none() {
                link.metrics.violation(rule::LIST_UNREACHABLE);
            }
            let error = status::item_error(method::LIST_LOAD_BALANCERS.name, part.error.unwrap_or_default());
            self.unreachable.push((check::shown(&part.location, 253), error));
        }
        page.next_page_token
    }

    fn list(mut self) -> LoadBalancerList {
        let load_balancers = self.order.iter().filter_map(|uid| self.found.remove(uid)).collect();
        LoadBalancerList {
            load_balancers,
            complete: !self.broken && self.unreachable.is_empty(),
            unreachable: self.unreachable,
        }
    }
}

fn adoption(adopt: bool) -> pb::Adoption {
    if adopt { pb::Adoption::AdoptByLegacyName } else { pb::Adoption::Refuse }
}
