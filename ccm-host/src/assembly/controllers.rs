//! Starts the controllers that the flags enable, each once a provider serves it.

use futures::{FutureExt as _, future::select_all};

use super::accounts::Accounts;
use crate::{
    cloud::Providers,
    controllers::{Parts, Registration, Serves},
    manager::process::Process,
};

/// Starts these controllers; each waits for its own caches.
pub(super) fn start(
    controllers: &[&'static Registration],
    process: &Process,
    parts: &Parts,
    accounts: &Accounts,
) {
    for controller in controllers {
        let parts = Parts { writer: accounts.writer(controller, &parts.writer), ..parts.clone() };
        let due = due(controller, process, &parts, accounts);
        if let Some(run) = process.metrics().register(|registry| (controller.start)(parts, registry)) {
            process.spawn_controller(controller, due, |stop| run(stop).map(Ok));
        }
    }
}

/// Returns once the controller can write under its own identity and some provider serves it. Without a provider it is
/// skipped, which the log and a metric report: a provider may be upgraded while the host runs.
fn due(
    controller: &'static Registration,
    process: &Process,
    parts: &Parts,
    accounts: &Accounts,
) -> impl Future<Output = ()> + Send + 'static {
    let (providers, metrics) = (parts.providers.clone(), process.metrics().clone());
    let served_by = (controller.served_by)(&parts.settings);
    let accounts = accounts.clone();
    async move {
        accounts.ready(controller).await;
        let Some(served_by) = served_by else { return };
        if is_served(served_by, &providers) {
            return;
        }
        let _skipped = metrics.skipped(controller);
        tracing::warn!(
            controller = controller.name,
            "skipped: no connected provider serves this controller; it starts when one does"
        );
        let mut statuses: Vec<_> = providers.all().iter().map(|provider| provider.status()).collect();
        while !is_served(served_by, &providers) {
            let changes = statuses.iter_mut().map(|status| Box::pin(status.changed()));
            if select_all(changes).await.0.is_err() {
                // The providers' connections ended with the process.
                std::future::pending::<()>().await;
            }
        }
        tracing::info!(controller = controller.name, "starts: a provider serves this controller now");
    }
}

fn is_served(served_by: Serves, providers: &Providers) -> bool {
    providers.all().iter().filter_map(|provider| provider.info()).any(|info| served_by(&info))
}
