//! Follows the volumes and the providers, and asks these.
//!
//! In: changes of volumes that a provider may know, and connections of providers. Out: names for the queue, and the
//! providers' answers.

use futures::future::join_all;

use super::{
    Controller,
    decide::{self, Known},
};
use ccm_cloud::{Providers, VolumeQuery};
use ccm_kube::persistent_volume::PersistentVolume;

impl Controller {
    /// Looks at the volume again, unless no provider can know it.
    pub(super) fn add(&self, volume: &PersistentVolume) {
        if volume.disk.is_some() {
            self.shell.queue.add(volume.name.clone());
        }
    }
}

/// Asks all providers that know volumes.
pub(super) async fn ask(providers: &Providers, query: VolumeQuery) -> Known {
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
