//! A bounded cache of answers.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// Bounds the memory that made-up tokens can take.
const MOST: usize = 1024;

/// The digest of a question, so that no token is kept.
pub(super) type Key = [u8; 32];

/// The key of a question of several words.
pub(super) fn key<'a>(words: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for word in words {
        // With its length, so that no two questions have the same digest input.
        digest.update(word.len().to_be_bytes());
        digest.update(word);
    }
    digest.finalize().into()
}

#[derive(Debug)]
pub(super) struct Memory<V> {
    answers: Mutex<HashMap<Key, (V, Instant)>>,
}

impl<V> Default for Memory<V> {
    fn default() -> Self {
        Self { answers: Mutex::default() }
    }
}

impl<V: Clone> Memory<V> {
    pub(super) fn get(&self, key: &Key) -> Option<V> {
        let answers = self.answers.lock();
        let (answer, until) = answers.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    pub(super) fn put(&self, key: Key, answer: V, ttl: Duration) {
        let mut answers = self.answers.lock();
        let now = Instant::now();
        if answers.len() >= MOST {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, (answer, now + ttl));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_forgotten_in_time() {
        let memory = Memory::default();
        memory.put(key(["a"]), 1, Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(memory.get(&key(["a"])), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memory.get(&key(["a"])), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_are_kept() {
        let memory = Memory::default();
        for number in 0..10 * MOST {
            memory.put(key([number.to_string().as_str()]), number, Duration::from_secs(10));
        }
        assert!(memory.answers.lock().len() <= MOST);
        let last = 10 * MOST - 1;
        assert_eq!(memory.get(&key([last.to_string().as_str()])), Some(last));
    }

    #[test]
    fn questions_differ_where_their_words_do() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_ne!(key(["a"]), key(["a", ""]));
    }
}
