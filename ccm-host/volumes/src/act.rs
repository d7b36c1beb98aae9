//! Follows the volumes that a provider may know, asks about one, and labels it.
//!
//! In: changes of volumes, connections of providers; a name from the queue. Out: names for the queue; at most one patch with
//! its Event, or reports.

use futures::future::join_all;

use super::{
    Controller, count,
    decide::{self, Basis, Known, Plan},
};
use ccm_cloud::{Providers, VolumeQuery};
use ccm_kube::{
    events::EventType,
    patch::{WriteError, volume_topology},
    persistent_volume::PersistentVolume,
    queue::Outcome,
};
use ccm_reconcile::unwritten;

const LABELLED: &str = "VolumeLabelled";

impl Controller {
    pub(super) async fn label(&self, name: &String) -> Outcome {
        let shell = &self.shell;
        let Some(volume) = shell.parts.volumes.get(name) else { return shell.reports.clear(name) };
        let known = match decide::basis(&volume) {
            Basis::Nothing => Err(Vec::new()),
            Basis::Trusted(labels) => Ok((labels, Vec::new())),
            Basis::Ask(query) => ask(&shell.parts.providers, query).await,
        };
        let plan = known.and_then(|(labels, rejected)| {
            let plan = decide::plan(&volume, labels).map_err(|why| vec![decide::refused(why)])?;
            Ok((plan, rejected))
        });
        let reports = match plan {
            Err(reports) => reports,
            Ok((plan, rejected)) => match self.write(&volume, &plan).await {
                Ok(()) => decide::left_out(&plan, &rejected),
                Err(WriteError::Invalid(why)) => {
                    vec![decide::refused(format!("the apiserver refuses its labels or node affinity: {why}"))]
                }
                Err(error) => return unwritten(error),
            },
        };
        shell.reports.set(name, Some((&*volume).into()), reports)
    }

    async fn write(&self, volume: &PersistentVolume, plan: &Plan) -> Result<(), WriteError> {
        let affinity = plan.affinity(None);
        let Some(patch) = volume_topology(volume, &plan.labels, affinity.as_ref()) else { return Ok(()) };
        self.shell.patch::<PersistentVolume>(&volume.name, &patch).await?;
        count(&self.results, "labelled");
        let labels: Vec<_> = plan.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        tracing::info!(volume = volume.name, labels = labels.join(","), "volume labelled");
        let message = match (volume.affinity_keys.is_some(), affinity) {
            (true, Some(_)) => "its node affinity can no longer be changed",
            (false, Some(_)) => "its node affinity says the same",
            (_, None) => "its node affinity stays",
        };
        let labels = if labels.is_empty() { "as before".to_owned() } else { labels.join(", ") };
        self.shell.recorder.record(
            volume,
            EventType::Normal,
            LABELLED,
            format!("labels: {labels}; {message}"),
        );
        Ok(())
    }

    /// Looks at the volume again, unless no provider can know it.
    pub(super) fn add(&self, volume: &PersistentVolume) {
        if volume.disk.is_some() {
            self.shell.queue.add(volume.name.clone());
        }
    }
}

/// Asks all providers that know volumes.
pub(super) async fn ask(providers: &Providers, query: VolumeQuery) -> Known {
    if providers.all().iter().any(|provider| provider.info().is_none()) {
        // Whatever the others say, it may know the volume, too.
        return Err(vec![decide::undecided(&query)]);
    }
    let asked = providers.all().iter().filter(|provider| provider.info().is_some_and(|info| info.volumes));
    let answers =
        asked.map(async |provider| (provider.name().to_owned(), provider.volume_labels(query.clone()).await));
    let answers = join_all(answers).await;
    decide::verdict(&query, answers)
}
