//! Follows the volumes and the providers, and asks these.
//!
//! In: changes of volumes that somebody may know, and connections of providers. Out: names for the queue, and the
//! providers' answers.

use futures::future::join_all;

use super::{
    Controller,
    decide::{self, Verdict},
};
use crate::{
    cloud::{Providers, VolumeQuery},
    kube::{cache::Change, persistent_volume::PersistentVolume},
};

impl Controller {
    pub(super) fn volume_changed(&self, change: &Change<PersistentVolume>) {
        match change {
            Change::Deleted(volume) => self.told.lock().forget(&volume.uid),
            Change::Added(volume) | Change::Updated { new: volume, .. } => {
                if volume.disk.is_some() {
                    self.queue.add(volume.name.clone());
                }
            }
        }
    }

    /// Looks at all volumes again: a provider that connects may know volumes that nobody knew.
    pub(super) fn look_at_all(&self) {
        let volumes = self.parts.volumes.list();
        let with_disk = volumes.iter().filter(|volume| volume.disk.is_some());
        with_disk.for_each(|volume| self.queue.add(volume.name.clone()));
    }
}

/// Asks all providers that know volumes.
pub(super) async fn ask(providers: &Providers, query: VolumeQuery) -> Verdict {
    let mut is_undecided = false;
    let mut asked = Vec::new();
    for provider in providers.all() {
        match provider.info() {
            Some(info) if info.volumes => asked.push(provider),
            Some(_) => {}
            None => is_undecided = true,
        }
    }
    let answers = asked
        .into_iter()
        .map(async |provider| (provider.name().to_owned(), provider.volume_labels(query.clone()).await));
    let answers = join_all(answers).await;
    decide::verdict(&query, answers, is_undecided)
}
