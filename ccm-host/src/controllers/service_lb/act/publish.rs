//! Writes finalizer, status, annotations and conditions of a Service: only what differs, and only to the Service that
//! was observed.

use std::sync::Arc;

use super::{Act, Step, lane_of};
use crate::{
    cloud::{self, LoadBalancer, ServiceCondition},
    controllers::service_lb::{
        decide::Difference,
        events::Warning,
        lane::{Lane, Presence, Taken},
        needs::{FINALIZER, has_finalizer, is_load_balancer},
    },
    kube::{
        patch::{
            Patch, WantedCondition, WriteError, service_annotations, service_condition, service_finalizer,
            service_ingress,
        },
        queue::Outcome,
        service::{Ingress, PortStatus, Service},
    },
};

impl Act<'_> {
    /// Brings finalizer, status and annotations in line with what is applied.
    pub(super) async fn publish(&self, lane: &mut Taken) -> Step {
        let Some(service) = self.seen.service.clone() else { return Step::End(Outcome::Done) };
        let lane = lane_of(lane, &service);
        if let Err(error) = self.set_finalizer(&service, true).await {
            return self.unwritten(lane, &service, "finalizer", &error);
        }
        if let Err(error) = self.write_answer(lane).await {
            return self.unwritten(lane, &service, "status", &error);
        }
        lane.settled = true;
        Step::End(Outcome::Done)
    }

    /// Publishes what is applied: a balancer that works is usable even while a change has to wait.
    pub(super) async fn wait(&self, lane: &mut Taken, outcome: Outcome) -> Step {
        if let (Some(service), Some(lane)) = (&self.seen.service, lane.as_mut())
            && is_load_balancer(service)
            && lane.applied.is_some()
            && let Err(error) = self.write_answer(lane).await
        {
            return self.unwritten(lane, service, "status", &error);
        }
        Step::End(outcome)
    }

    /// Ensures that the finalizer is present before the balancer is. Where the balancer may be gone, a finalizer in
    /// the cache proves nothing: the cache may not have seen yet that the finalizer, or the Service, was removed with
    /// it.
    pub(super) async fn guard(&self, service: &Service, lane: &Lane) -> Result<(), WriteError> {
        let stands = lane.presence == Presence::Present && lane.doubt != Difference::Service;
        if stands || !has_finalizer(service) {
            return self.set_finalizer(service, true).await;
        }
        let parts = &self.controller.parts;
        match parts.writer.get_service(self.key, &parts.services.keep()).await? {
            None => Err(WriteError::NotFound),
            Some(fresh) if fresh.uid != service.uid => Err(WriteError::Gone),
            Some(fresh) => self.set_finalizer(&fresh, true).await,
        }
    }

    /// Adds or removes our finalizer and leaves the others. On a conflict, reads the Service live and retries once.
    pub(super) async fn set_finalizer(&self, service: &Service, present: bool) -> Result<(), WriteError> {
        let first = self.write(service_finalizer(service, FINALIZER, present)).await;
        if !matches!(first, Err(WriteError::Conflict)) {
            return first;
        }
        let parts = &self.controller.parts;
        match parts.writer.get_service(self.key, &parts.services.keep()).await? {
            None => Err(WriteError::NotFound),
            Some(fresh) if fresh.uid != service.uid => Err(WriteError::Gone),
            Some(fresh) if present && fresh.is_deleting() => Err(WriteError::Conflict),
            Some(fresh) => self.write(service_finalizer(&fresh, FINALIZER, present)).await,
        }
    }

    /// Replaces the entries in the status.
    pub(super) async fn set_status(&self, service: &Service, ingress: &[Ingress]) -> Result<(), WriteError> {
        self.write(service_ingress(service, ingress)).await
    }

    /// Writes what the provider answered; the client has checked that the annotations are the provider's own.
    pub(super) async fn write_answer(&self, lane: &mut Lane) -> Result<(), WriteError> {
        let Some(service) = &self.seen.service else { return Ok(()) };
        if let Some(ingress) = &lane.ingress {
            self.set_status(service, ingress).await?;
        }
        let written = self.write(service_annotations(service, &lane.annotations)).await;
        self.unless_refused("annotations", lane, service, written)?;
        lane.annotations.clear();
        while let Some((type_, ServiceCondition { status, reason, message })) =
            lane.conditions.first_key_value()
        {
            let wanted = WantedCondition { type_, status, reason, message };
            let written = self.write(service_condition(service, &wanted, crate::clock::now())).await;
            self.unless_refused("a condition", lane, service, written)?;
            lane.conditions.pop_first();
        }
        Ok(())
    }

    /// Turns a refusal by the apiserver into a warning: it is final, and nothing else should wait for it.
    fn unless_refused(
        &self,
        what: &str,
        lane: &mut Lane,
        service: &Service,
        written: Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        match written {
            Err(WriteError::Invalid(why)) => {
                let why = format!("the apiserver refuses {what} of the provider: {why}");
                self.controller.events.warn(lane, service, Warning::sync(why));
                Ok(())
            }
            written => written,
        }
    }

    async fn write(&self, patch: Option<Patch>) -> Result<(), WriteError> {
        let Some(patch) = patch else { return Ok(()) };
        self.controller.parts.writer.patch_service(self.key, &patch).await.map(drop)
    }

    /// Handles a failed write.
    pub(super) fn unwritten(
        &self,
        lane: &mut Lane,
        service: &Arc<Service>,
        what: &str,
        error: &WriteError,
    ) -> Step {
        lane.settled = false;
        Step::End(match error {
            // The watch will report the change and so requeue the Service; if it does not, the sweep does.
            WriteError::NotFound | WriteError::Gone | WriteError::NotLeading => Outcome::Done,
            WriteError::HeldBack(again) => Outcome::RetryAfter(*again),
            WriteError::Conflict => {
                Outcome::retry(format_args!("failed to update load balancer {what}: {error}"))
            }
            WriteError::Invalid(_) | WriteError::Other(_) => {
                let why = format!("failed to update load balancer {what}: {error}");
                self.controller.events.warn(lane, service, Warning::sync(&why));
                Outcome::Retry(why)
            }
        })
    }
}

/// The entries of the status, in the provider's order. Whether they differ from the current ones is up to
/// [`service_ingress`], which knows what the apiserver defaults.
pub(in crate::controllers::service_lb) fn published(balancer: &LoadBalancer) -> Vec<Ingress> {
    balancer.ingress.iter().map(entry).collect()
}

fn entry(ingress: &cloud::Ingress) -> Ingress {
    let cloud::Ingress { ip, hostname, ip_mode, ports } = ingress;
    Ingress {
        ip: ip.map(|ip| ip.to_string()).unwrap_or_default(),
        hostname: hostname.clone().unwrap_or_default(),
        ip_mode: ip_mode.map(str::to_owned),
        ports: ports
            .iter()
            .map(|port| PortStatus {
                port: port.port.into(),
                protocol: port.protocol.to_owned(),
                error: port.error.clone(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{fixtures::service, patch::service_ingress, service::Service};

    fn ip(ip: &str, mode: Option<&'static str>) -> cloud::Ingress {
        cloud::Ingress { ip: Some(ip.parse().unwrap()), hostname: None, ip_mode: mode, ports: Vec::new() }
    }

    fn port(protocol: &'static str) -> cloud::IngressPort {
        cloud::IngressPort { port: 80, protocol, error: None }
    }

    fn with_ports(ports: Vec<cloud::IngressPort>) -> cloud::Ingress {
        cloud::Ingress { ports, ..ip("8.8.8.8", None) }
    }

    fn stored(entries: &[cloud::Ingress]) -> Service {
        let mut service = service("web").load_balancer();
        service.ingress = entries.iter().map(entry).collect();
        service
    }

    #[test]
    fn a_status_is_written_only_if_it_differs() {
        let rows = [
            ("STAT-1", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", Some("VIP"))], false),
            ("STAT-2", vec![], vec![ip("8.8.8.8", None)], true),
            ("STAT-3", vec![], vec![], false),
            ("STAT-4", vec![ip("8.8.8.8", Some("VIP"))], vec![], true),
            // Differs from upstream on purpose (SW-19): the apiserver fills in the mode.
            ("STAT-5", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", None)], false),
            ("HLP-25", vec![], vec![], false),
            ("HLP-26", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.9", Some("VIP"))], true),
            ("HLP-27", vec![ip("8.8.8.8", Some("Proxy"))], vec![ip("8.8.8.8", Some("Proxy"))], false),
            ("HLP-27", vec![ip("8.8.8.8", Some("Proxy"))], vec![ip("8.8.8.8", None)], true),
            ("HLP-27", vec![ip("8.8.8.8", Some("VIP"))], vec![ip("8.8.8.8", Some("Proxy"))], true),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![port("TCP")])], false),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![port("UDP")])], true),
            ("HLP-28", vec![with_ports(vec![port("TCP")])], vec![with_ports(vec![])], true),
            (
                "HLP-29",
                vec![ip("8.8.8.8", None), ip("8.8.8.9", None)],
                vec![ip("8.8.8.9", None), ip("8.8.8.8", None)],
                true,
            ),
        ];
        for (id, before, after, want) in rows {
            let wanted: Vec<_> = after.iter().map(entry).collect();
            assert_eq!(service_ingress(&stored(&before), &wanted).is_some(), want, "{id}");
        }
    }

    #[test]
    fn a_host_name_has_no_mode_and_no_address() {
        let named = cloud::Ingress {
            ip: None,
            hostname: Some("lb.example".to_owned()),
            ip_mode: None,
            ports: vec![cloud::IngressPort { port: 443, protocol: "TCP", error: Some("Closed".to_owned()) }],
        };
        let written = serde_json::to_value(entry(&named)).unwrap();
        let want = serde_json::json!({
            "hostname": "lb.example",
            "ports": [{"port": 443, "protocol": "TCP", "error": "Closed"}],
        });
        assert_eq!(written, want);
    }
}
