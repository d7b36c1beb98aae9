//! The actions of users, autoscalers, the cloud and its operators.

use std::time::Duration;

use ccm_cloud::PROVIDER_ANNOTATION;
use k8s_openapi::api::core::v1::{Node, Service, Taint};
use provider_mock::cloud::{Address, AddressKind, NewInstances, NewRoute, State};
use serde_json::json;

use super::{AUTOSCALER, OTHER_FINALIZER, World, node, service};
use crate::{generate::NODES, plan::Step};

impl World {
    pub(super) fn join(&self, number: u8) {
        let name = node(number);
        // The generated ones are the same in both clouds, and a node that was not named yet is found by them.
        let address = |kind, address| Address { kind, address };
        let addresses = (number >= NODES).then(|| {
            let ip = format!("10.9.0.{number}");
            vec![address(AddressKind::InternalIp, ip), address(AddressKind::Hostname, name.clone())]
        });
        let new = NewInstances { addresses, ..NewInstances::named(name.clone()) };
        let made = self.alter_of(number, |state, now| match state.instance(&name) {
            Some(_) => Ok(Vec::new()),
            None => state.create_instances(&new, now),
        });
        if let Ok([machine, ..]) = made.as_deref() {
            self.kubelets.lock().boot(&name, &machine.provider_id);
        }
    }

    pub(super) fn terminate(&self, number: u8) {
        let _none_is_fine =
            self.alter_of(number, |state, now| state.terminate_instance(&node(number), None, now));
    }

    pub(super) fn scale_down(&self, numbers: Vec<u8>) {
        let objects = self.objects().named("autoscaler");
        for number in &numbers {
            let _none_is_fine = objects.change::<Node>("", &node(*number), |node| {
                let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
                taints.retain(|taint| taint.key != AUTOSCALER);
                let (key, effect) = (AUTOSCALER.to_owned(), "NoSchedule".to_owned());
                taints.push(Taint { key, effect, ..Taint::default() });
            });
        }
        self.later(Duration::from_secs(10), move |world| {
            numbers.iter().for_each(|number| world.terminate(*number));
        });
    }

    pub(super) fn label(&self, number: u8, key: &str, value: Option<&str>) {
        let _none_is_fine = self.objects().named("user").change::<Node>("", &node(number), |node| {
            let labels = node.metadata.labels.get_or_insert_default();
            match value {
                Some(value) => drop(labels.insert(key.to_owned(), value.to_owned())),
                None => drop(labels.remove(key)),
            }
        });
    }

    /// Each time with another key: whoever remembers them all grows.
    pub(super) fn scribble(&self, number: u8) {
        let key = format!("example.com/at-{}", self.record.elapsed().as_millis());
        let note = |annotations: &mut std::collections::BTreeMap<String, String>| {
            annotations.retain(|key, _| !key.starts_with("example.com/at-"));
            annotations.insert(key.clone(), "x".repeat(1_000));
        };
        let _none_is_fine =
            self.objects().named("tenant").change::<Service>("default", &service(number), |one| {
                note(one.metadata.annotations.get_or_insert_default());
            });
        let _none_is_fine = self.objects().named("kubelet").change::<Node>("", &node(number), |one| {
            note(one.metadata.annotations.get_or_insert_default());
        });
    }

    pub(super) fn create(&self, number: u8) {
        let _there_is_fine = self.objects().named("user").create_value(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": service(number), "namespace": "default" },
            "spec": {
                "type": "LoadBalancer", "selector": { "app": service(number) },
                "ports": [{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080 }],
            },
        }));
    }

    pub(super) fn edit(&self, step: &Step) {
        let objects = self.objects().named("user");
        let change = |number: u8, act: &dyn Fn(&mut Service)| {
            let _none_is_fine = objects.change::<Service>("default", &service(number), act);
        };
        match step {
            Step::Edit(number, port) => change(*number, &|service| {
                let ports = service.spec.get_or_insert_default().ports.get_or_insert_default();
                ports.iter_mut().for_each(|one| one.port = i32::from(*port));
            }),
            Step::Retype(number, balanced) => change(*number, &|service| {
                let type_ = if *balanced { "LoadBalancer" } else { "ClusterIP" };
                service.spec.get_or_insert_default().type_ = Some(type_.to_owned());
                if !balanced {
                    // As the apiserver does.
                    service.status.get_or_insert_default().load_balancer = None;
                }
            }),
            Step::Finalizer(number, on) => change(*number, &|service| {
                let finalizers = service.metadata.finalizers.get_or_insert_default();
                finalizers.retain(|one| one != OTHER_FINALIZER);
                if *on && service.metadata.deletion_timestamp.is_none() {
                    finalizers.push(OTHER_FINALIZER.to_owned());
                }
            }),
            Step::Move(number, away) => change(*number, &|service| {
                let annotations = service.metadata.annotations.get_or_insert_default();
                let name = if *away { "edge" } else { "mock" };
                annotations.insert(PROVIDER_ANNOTATION.to_owned(), name.to_owned());
            }),
            Step::Delete(number) => drop(objects.delete::<Service>("default", &service(*number))),
            _ => {}
        }
    }

    /// Somebody's actions in the cloud's own console.
    pub(super) fn meddle(&self, step: &Step) {
        let cluster = self.cluster();
        let balancer = |state: &State, number: u8| {
            let mut ours = state.balancers().filter(|one| one.cluster_uid == cluster);
            ours.find(|one| one.service_name == service(number)).map(|one| one.id.clone())
        };
        self.alter(|state, _| match step {
            Step::Drift(number) => {
                let patch = json!({"ports": []});
                let _none_is_fine = balancer(state, *number).map(|id| state.patch_balancer(&id, &patch));
            }
            Step::DropBalancer(number) => {
                let _none_is_fine = balancer(state, *number).map(|id| state.remove_balancer_outside(&id));
            }
            Step::StrayRoute(third) => {
                let destination_cidr = format!("10.244.{third}.0/24");
                let wish = NewRoute { cluster_uid: cluster.clone(), destination_cidr, target: None };
                let taken =
                    state.routes().any(|one| one.route.destination_cidr.to_string() == wish.destination_cidr);
                let _refused_is_fine = (!taken).then(|| state.create_route_outside(wish));
            }
            Step::DropRoute(number) => {
                let name = node(*number);
                let is_its = |route: &provider_mock::cloud::ListedRoute| {
                    route.route.target.as_ref().is_some_and(|target| target.node == name)
                };
                let found = state.routes().find(is_its).map(|route| route.route.id);
                let _none_is_fine = found.map(|id| state.remove_route_outside(&id));
            }
            _ => {}
        });
    }
}
