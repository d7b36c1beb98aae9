//! Reports each notice once while it lasts, and passes on a provider's Events.

use std::collections::HashMap;

use crate::{
    cloud::ProviderEvent,
    kube::events::{Recorder, Regarding},
};

/// The topics reported for each object. Only objects with current topics take memory.
#[derive(Debug)]
pub struct ToldOnce<Topic>(HashMap<String, Vec<Topic>>);

impl<Topic> Default for ToldOnce<Topic> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<Topic: PartialEq> ToldOnce<Topic> {
    /// Returns those of an object's current notices that were not reported before. A notice missing from `all` will
    /// be new again.
    pub fn news<T>(&mut self, object: &str, all: Vec<T>, topic: impl Fn(&T) -> Topic) -> Vec<T> {
        let before = self.0.remove(object).unwrap_or_default();
        if all.is_empty() {
            return all;
        }
        self.0.insert(object.to_owned(), all.iter().map(&topic).collect());
        all.into_iter().filter(|one| !before.contains(&topic(one))).collect()
    }

    /// The topics that were reported and still hold.
    pub fn told(&self, object: &str) -> &[Topic] {
        self.0.get(object).map_or(&[], Vec::as_slice)
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, object: &str) {
        self.0.remove(object);
    }
}

/// Records the Events that a provider attached to its answer.
pub fn pass_on(recorder: &Recorder, object: impl Into<Regarding>, events: &[ProviderEvent]) {
    let object = object.into();
    for ProviderEvent { kind, reason, message } in events {
        recorder.record(&object, *kind, reason.clone(), message.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_once_for_as_long_as_it_stays() {
        let mut told = ToldOnce::default();
        let mut news = |object, all: &[&'static str]| told.news(object, all.to_vec(), |one| one.to_owned());
        assert_eq!(news("n", &["a"]), ["a"]);
        assert!(news("n", &["a"]).is_empty());
        assert_eq!(news("n", &["a", "b"]), ["b"], "another topic");
        assert_eq!(news("m", &["a"]), ["a"], "another object");
        assert!(news("n", &[]).is_empty());
        assert_eq!(news("n", &["a"]), ["a"], "it came back");
        assert_eq!(told.told("n"), ["a"]);
        told.forget("n");
        assert!(told.told("n").is_empty());
    }
}
