//! Serves the webhooks of controllers on every replica, also on one that stands by.

use anyhow::Result;

use crate::{
    controllers::Parts,
    election::Leadership,
    manager::{
        process::Process,
        webhooks::{Server, Upkeep, WebhookMetrics},
    },
};

/// Binds the port, if there is anything to serve.
pub(super) fn start(process: &Process, parts: &Parts, leadership: Leadership) -> Result<()> {
    let settings = process.settings();
    let routes = process.metrics().register(|registry| {
        let admitting = settings.admitting.iter().filter_map(|controller| controller.admit);
        admitting.map(|admit| admit(parts, registry)).reduce(axum::Router::merge)
    });
    let Some(routes) = routes else { return Ok(()) };
    let metrics = process.metrics().register(WebhookMetrics::register);
    let server = Server::bind(settings.webhooks.clone(), parts.writer.clone(), metrics)?;
    process.spawn_support("webhooks", |stop| server.serve(routes, stop));
    let upkeep = Upkeep { settings: settings.webhooks.clone(), writer: parts.writer.clone() };
    process.spawn_support("webhook-certificate", |stop| async move {
        upkeep.run(leadership, stop).await;
        Ok(())
    });
    Ok(())
}
