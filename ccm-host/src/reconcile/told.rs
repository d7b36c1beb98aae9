//! What people are told: once for as long as it stays so, and what a provider wants told.

use std::collections::HashMap;

use crate::{
    cloud::ProviderEvent,
    kube::events::{Recorder, Regarding},
};

/// What was told about each object. Only objects with something to tell take room.
#[derive(Debug)]
pub struct ToldOnce<Topic>(HashMap<String, Vec<Topic>>);

impl<Topic> Default for ToldOnce<Topic> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<Topic: PartialEq> ToldOnce<Topic> {
    /// Of everything there is to tell about an object now, what was not told before. What is not among it any more will
    /// be news again.
    pub fn news<T>(&mut self, object: &str, all: Vec<T>, topic: impl Fn(&T) -> Topic) -> Vec<T> {
        let before = self.0.remove(object).unwrap_or_default();
        if all.is_empty() {
            return all;
        }
        self.0.insert(object.to_owned(), all.iter().map(&topic).collect());
        all.into_iter().filter(|one| !before.contains(&topic(one))).collect()
    }

    /// What was told and still is so.
    pub fn told(&self, object: &str) -> &[Topic] {
        self.0.get(object).map_or(&[], Vec::as_slice)
    }

    /// The object is gone.
    pub fn forget(&mut self, object: &str) {
        self.0.remove(object);
    }
}

/// Writes the Events that a provider wants on an object.
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
