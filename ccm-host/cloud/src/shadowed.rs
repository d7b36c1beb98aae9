//! Replaces a provider's mutations in shadow mode by reads whose answers tell what the call would do.
//!
//! In: the call that a controller decided on. Out: the answer of a call that finds everything done already, if the cloud
//! shows that; otherwise the call is held back, and the controller tries again. Nothing here mutates, and
//! [`super::connection::Link::call`] would refuse it.

use std::sync::Arc;

use tokio::{sync::Mutex, time::Instant};
use tonic::Code;

use super::{
    Accepted, CloudError, DeleteLoadBalancer, EnsureLoadBalancer, EnsureRoute, Ensured, EnsuredRoute,
    InProgress, Listed, LoadBalancer, LoadBalancerState as State, Ownership, Route, RouteState,
    connection::Link,
    load_balancers,
    method::{self, Method},
    routes,
};
use ccm_kube::{
    ObjectKey,
    shadow::{HeldCall, Shadow, ShadowSubject},
};

const SERVICES: &str = "service-lb-controller";
const ROUTES: &str = "node-route-controller";
const SSH_KEYS: &str = "ssh-keys-controller";

/// The mutations of one provider.
#[derive(Debug)]
pub(super) struct Shadowed {
    shadow: Shadow,
    /// The last list of routes, which many calls at once share.
    routes: Mutex<Option<(Instant, Arc<Listed<Route>>)>>,
}

impl Shadowed {
    pub(super) fn new(shadow: Shadow) -> Self {
        Self { shadow, routes: Mutex::default() }
    }

    pub(super) async fn ensure(
        &self,
        link: &Link,
        wanted: EnsureLoadBalancer,
    ) -> Result<Ensured, CloudError> {
        let service = &wanted.service;
        let subject = balancer(&service.key);
        let found = load_balancers::get(link, &service.key, &service.uid).await?;
        if found.whole_digest() == Some(wanted.desired_digest.as_str()) {
            self.shadow.agreed(SERVICES, &subject);
            return Ok(ensured(found));
        }
        let (takes_over, what) = seen(&found, wanted.adopt);
        let held = self.hold(SERVICES, subject, &method::ENSURE_LOAD_BALANCER, what, takes_over);
        if takes_over { Ok(ensured(found)) } else { Err(held) }
    }

    pub(super) async fn delete(
        &self,
        link: &Link,
        wanted: &DeleteLoadBalancer,
    ) -> Result<Accepted, CloudError> {
        let subject = balancer(&wanted.key);
        let found = load_balancers::get(link, &wanted.key, &wanted.uid).await?;
        if found.state == State::Absent {
            self.shadow.agreed(SERVICES, &subject);
            return Ok(Accepted::default());
        }
        let what = format!("would delete the load balancer, which is {:?}", found.state);
        Err(self.hold(SERVICES, subject, &method::DELETE_LOAD_BALANCER, what, false))
    }

    pub(super) async fn ensure_route(
        &self,
        link: &Link,
        wanted: &EnsureRoute,
    ) -> Result<EnsuredRoute, CloudError> {
        let (destination, node) = (wanted.destination, &wanted.node);
        let subject = subject("Route", "", &destination.to_string());
        let list = self.listed(link).await?;
        let leads = |route: &&Route| route.destination == destination && leads_to(route, node);
        if let Some(route) = list.items.iter().find(leads) {
            self.shadow.agreed(ROUTES, &subject);
            return Ok(EnsuredRoute { route: Some(route.clone()), in_progress: None, events: Vec::new() });
        }
        let what = format!("would make the route lead to node {}", node.name);
        Err(self.hold(ROUTES, subject, &method::BATCH_ENSURE_ROUTES, what, false))
    }

    pub(super) async fn delete_route(
        &self,
        link: &Link,
        listed: &Route,
    ) -> Result<Option<InProgress>, CloudError> {
        let subject = subject("Route", "", &format!("{} ({})", listed.destination, listed.id));
        let list = self.listed(link).await?;
        if list.complete && !list.items.iter().any(|route| route.id == listed.id) {
            self.shadow.agreed(ROUTES, &subject);
            return Ok(None);
        }
        let what = "would delete the route".to_owned();
        Err(self.hold(ROUTES, subject, &method::BATCH_DELETE_ROUTES, what, false))
    }

    /// A provider cannot say which keys are where.
    pub(super) fn add_ssh_key(&self, user: &str) -> CloudError {
        let what = "would add a key of this user to all instances; whether they have it already is not known";
        self.hold(
            SSH_KEYS,
            subject("SSHKey", "", user),
            &method::ADD_SSH_KEY_TO_ALL_INSTANCES,
            what.to_owned(),
            true,
        )
    }

    /// The cloud's routes, no older than half the pause until a controller tries again.
    async fn listed(&self, link: &Link) -> Result<Arc<Listed<Route>>, CloudError> {
        let mut last = self.routes.lock().await;
        if let Some((at, list)) = &*last
            && at.elapsed() < self.shadow.again() / 2
        {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(routes::list(link, &[]).await?);
        *last = Some((Instant::now(), Arc::clone(&list)));
        Ok(list)
    }

    fn hold(
        &self,
        controller: &'static str,
        subject: ShadowSubject,
        method: &'static Method,
        what: String,
        takes_over: bool,
    ) -> CloudError {
        let message = format!("held back: this host runs in shadow mode; it {what}");
        let error = CloudError {
            retry_after: Some(self.shadow.again()),
            ..CloudError::without_reason(method.name, Code::FailedPrecondition, message)
        };
        self.shadow.hold_call(HeldCall { controller, subject, method: method.name, what, takes_over });
        error
    }
}

fn subject(kind: &str, namespace: &str, name: &str) -> ShadowSubject {
    ShadowSubject { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

fn balancer(service: &ObjectKey) -> ShadowSubject {
    subject("LoadBalancer", &service.namespace, &service.name)
}

/// Whether an Ensure would take over what is there, and what is known of it.
fn seen(found: &LoadBalancer, adopt: bool) -> (bool, String) {
    match found.state {
        State::Active if found.ownership == Ownership::ByLegacyName && !adopt => (
            false,
            "would be refused the load balancer, which has only the name that a former controller gave it: \
             --adopt-load-balancers lets the host take it over"
                .to_owned(),
        ),
        State::Active => (
            true,
            "would call EnsureLoadBalancer once: the load balancer exists; whether its ports, backends and settings \
             match is not known without the call"
                .to_owned(),
        ),
        State::Absent => {
            (false, "would create a load balancer: the provider finds none of this Service".to_owned())
        }
        State::NotOwned => {
            (false, "would be refused the load balancer: it belongs to another owner".to_owned())
        }
        State::Unspecified => {
            (false, "would call EnsureLoadBalancer: the load balancer is Unknown".to_owned())
        }
        state @ (State::Pending | State::Deleting) => {
            (false, format!("would call EnsureLoadBalancer: the load balancer is {state:?}"))
        }
    }
}

/// What the call would answer if it found nothing to do.
fn ensured(found: LoadBalancer) -> Ensured {
    Ensured { load_balancer: found, in_progress: None, effects: Default::default() }
}

fn leads_to(route: &Route, node: &ccm_kube::Node) -> bool {
    let is_node = |target: &super::RouteTarget| match &node.provider_id {
        Some(id) if !target.provider_id.is_empty() => target.provider_id == *id,
        _ => target.name == node.name,
    };
    route.state == RouteState::Active && route.target.as_ref().is_some_and(is_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_ensure_would_do_is_told_from_what_is_there() {
        let found = |state, ownership| LoadBalancer {
            key: ObjectKey::new("default", "web"),
            service_uid: "uid".to_owned(),
            id: String::new(),
            name: String::new(),
            state,
            ingress: Vec::new(),
            applied_digest: None,
            sync_state: crate::SyncState::Unspecified,
            ownership,
            rejected: Vec::new(),
        };
        let rows = [
            (State::Active, Ownership::ByUid, false, (true, "once")),
            (State::Active, Ownership::Unspecified, false, (true, "once")),
            (State::Active, Ownership::ByLegacyName, true, (true, "once")),
            (State::Active, Ownership::ByLegacyName, false, (false, "--adopt-load-balancers")),
            (State::Absent, Ownership::Unspecified, true, (false, "create")),
            (State::NotOwned, Ownership::Unspecified, true, (false, "another owner")),
            (State::Pending, Ownership::ByUid, true, (false, "Pending")),
            (State::Deleting, Ownership::ByUid, true, (false, "Deleting")),
            (State::Unspecified, Ownership::ByUid, true, (false, "Unknown")),
        ];
        for (state, ownership, adopt, (takes_over, word)) in rows {
            let (seen, what) = seen(&found(state, ownership), adopt);
            assert_eq!((seen, what.contains(word)), (takes_over, true), "{state:?} {ownership:?}: {what}");
        }
    }
}
