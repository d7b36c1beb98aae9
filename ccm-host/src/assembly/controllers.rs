//! Starts the controllers that the flags enable, each with its dependencies.

use std::sync::Arc;

use futures::future::select_all;

use super::Shared;
use crate::{
    cloud::Providers,
    controllers::{
        cloud_node, cloud_node_lifecycle, node_ipam, node_ipam::settings::Allocation, node_route, service_lb,
    },
    manager::{controller::Controller, flags::Settings, process::Process},
};

/// Controllers that call providers, and those that never do; both in start order.
pub(super) fn by_need(settings: &Settings) -> (Vec<Controller>, Vec<Controller>) {
    settings.controllers.iter().partition(|controller| is_asking(**controller, settings))
}

fn is_asking(controller: Controller, settings: &Settings) -> bool {
    let from_cloud = matches!(settings.cidrs.allocation, Some(Allocation::Cloud { .. }));
    controller != Controller::NodeIpam || from_cloud
}

/// Starts these controllers; each waits for its own caches.
pub(super) fn start(controllers: &[Controller], process: &Process, shared: &Arc<Shared>) {
    for controller in controllers {
        match controller {
            Controller::CloudNode => cloud_node(process, shared),
            Controller::CloudNodeLifecycle => cloud_node_lifecycle(process, shared),
            Controller::ServiceLb => service_lb(process, shared),
            Controller::NodeIpam => node_ipam(process, shared),
            Controller::NodeRoute => node_route(process, shared),
        }
    }
}

/// Returns once some provider serves the controller. Until then the controller is skipped, which the log and a metric
/// report: a provider may be upgraded while the host runs.
fn due(
    controller: Controller,
    process: &Process,
    shared: &Shared,
) -> impl Future<Output = ()> + Send + 'static {
    let (providers, metrics) = (shared.providers.clone(), process.metrics().clone());
    let needed = is_asking(controller, process.settings());
    async move {
        if !needed || is_served(controller, &providers) {
            return;
        }
        let _skipped = metrics.skipped(controller);
        tracing::warn!(
            controller = controller.name(),
            "skipped: no connected provider serves this controller; it starts when one does"
        );
        let mut statuses: Vec<_> = providers.all().iter().map(|provider| provider.status()).collect();
        while !is_served(controller, &providers) {
            let changes = statuses.iter_mut().map(|status| Box::pin(status.changed()));
            if select_all(changes).await.0.is_err() {
                // The providers' connections ended with the process.
                std::future::pending::<()>().await;
            }
        }
        tracing::info!(controller = controller.name(), "starts: a provider serves this controller now");
    }
}

fn is_served(controller: Controller, providers: &Providers) -> bool {
    providers.all().iter().filter_map(|provider| provider.info()).any(|info| match controller {
        Controller::CloudNode | Controller::CloudNodeLifecycle => info.instances,
        Controller::ServiceLb => info.load_balancers,
        Controller::NodeIpam => info.pod_cidrs,
        Controller::NodeRoute => info.routes,
    })
}

fn cloud_node(process: &Process, shared: &Shared) {
    let controller = cloud_node::Controller::new(cloud_node::Context {
        nodes: shared.caches.nodes.clone(),
        writer: shared.writer.clone(),
        providers: shared.providers.clone(),
        recorder: shared.events.recorder(cloud_node::COMPONENT),
        metrics: process.metrics().register(cloud_node::CloudNodeMetrics::register),
        cloud_metrics: shared.cloud_metrics.clone(),
        queue_metrics: shared.metrics.queue.clone(),
        settings: process.settings().nodes.clone(),
    });
    process.spawn_controller(Controller::CloudNode, due(Controller::CloudNode, process, shared), |stop| {
        controller.run(stop)
    });
}

fn cloud_node_lifecycle(process: &Process, shared: &Shared) {
    let controller = cloud_node_lifecycle::Controller::new(cloud_node_lifecycle::Context {
        nodes: shared.caches.nodes.clone(),
        writer: shared.writer.clone(),
        providers: shared.providers.clone(),
        recorder: shared.events.recorder(cloud_node_lifecycle::COMPONENT),
        metrics: process.metrics().register(cloud_node_lifecycle::LifecycleMetrics::register),
        settings: process.settings().lifecycle.clone(),
        selector: process.settings().nodes.node_selector.clone(),
    });
    process.spawn_controller(
        Controller::CloudNodeLifecycle,
        due(Controller::CloudNodeLifecycle, process, shared),
        |stop| controller.run(stop),
    );
}

fn service_lb(process: &Process, shared: &Shared) {
    let controller = service_lb::Controller::new(service_lb::Context {
        services: shared.caches.services.clone(),
        nodes: shared.caches.nodes.clone(),
        writer: shared.writer.clone(),
        providers: shared.providers.clone(),
        recorder: shared.events.recorder(service_lb::COMPONENT),
        metrics: process.metrics().register(service_lb::Metrics::register),
        queue_metrics: shared.metrics.queue.clone(),
        settings: process.settings().services,
    });
    process.spawn_controller(Controller::ServiceLb, due(Controller::ServiceLb, process, shared), |stop| {
        controller.run(stop)
    });
}

fn node_ipam(process: &Process, shared: &Shared) {
    let settings = process.settings();
    let Some(allocation) = settings.cidrs.allocation.clone() else {
        tracing::info!("nodes are given no pod CIDRs: --allocate-node-cidrs is false");
        return;
    };
    let controller = node_ipam::Controller::new(node_ipam::Context {
        nodes: shared.caches.nodes.clone(),
        writer: shared.writer.clone(),
        providers: shared.providers.clone(),
        recorder: shared.events.recorder(node_ipam::COMPONENT),
        metrics: process.metrics().register(node_ipam::IpamMetrics::register),
        queue_metrics: shared.metrics.queue.clone(),
        allocation,
        workers: settings.nodes.concurrent_node_syncs,
        selector: settings.nodes.node_selector.clone(),
    });
    process.spawn_controller(Controller::NodeIpam, due(Controller::NodeIpam, process, shared), |stop| {
        controller.run(stop)
    });
}

/// Unlike upstream, a missing cluster CIDR disables only this controller, not the whole process.
fn node_route(process: &Process, shared: &Shared) {
    let settings = process.settings();
    let controller = Controller::NodeRoute.name();
    if !settings.routes.configure_cloud_routes {
        tracing::info!(controller, "not started: --configure-cloud-routes=false");
        return;
    }
    if settings.cidrs.cluster.is_empty() {
        tracing::warn!(
            controller,
            "not started: --cluster-cidr is empty; give the networks of the pods, or --configure-cloud-routes=false"
        );
        return;
    }
    let controller = node_route::Controller::new(node_route::Context {
        nodes: shared.caches.nodes.clone(),
        writer: shared.writer.clone(),
        providers: shared.providers.clone(),
        recorder: shared.events.recorder(node_route::COMPONENT),
        metrics: process.metrics().register(node_route::RouteMetrics::register),
        queue_metrics: shared.metrics.queue.clone(),
        cluster_cidrs: settings.cidrs.cluster.clone(),
        selector: settings.nodes.node_selector.clone(),
        settings: settings.routes,
    });
    process.spawn_controller(Controller::NodeRoute, due(Controller::NodeRoute, process, shared), |stop| {
        controller.run(stop)
    });
}
