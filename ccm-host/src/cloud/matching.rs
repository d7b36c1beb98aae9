//! Matches the answers of a batch to its questions by the echoed key.

use std::collections::{HashMap, HashSet, hash_map::Entry};

/// The answers of a batch, matched by key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Matched<A> {
    /// The answer to each key that was answered exactly once.
    pub(super) answers: HashMap<String, A>,
    /// Keys without an answer, with several answers, or never asked for.
    pub(super) wrong: usize,
    /// All answers are present, in another order.
    pub(super) reordered: bool,
}

/// Matches answers to keys. A key with a missing or duplicate answer has none.
pub(super) fn matched<A>(keys: &[String], given: Vec<(String, A)>) -> Matched<A> {
    let asked: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let in_order = keys.len() == given.len() && keys.iter().zip(&given).all(|(key, (other, _))| key == other);
    let mut answers = HashMap::with_capacity(given.len());
    let mut doubled = HashSet::new();
    let mut wrong = 0;
    for (key, answer) in given {
        if !asked.contains(key.as_str()) {
            wrong += 1;
            continue;
        }
        match answers.entry(key) {
            Entry::Vacant(place) => {
                place.insert(answer);
            }
            Entry::Occupied(place) => {
                doubled.insert(place.key().clone());
            }
        }
    }
    for key in &doubled {
        answers.remove(key);
    }
    // Duplicate answers count as missing.
    wrong += asked.len() - answers.len();
    Matched { answers, wrong, reordered: wrong == 0 && !in_order }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_matched_by_key() {
        type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str], usize, bool);
        let rows: [Row<'_>; 8] = [
            ("in order", &["a", "b"], &["a", "b"], 0, false),
            ("reordered", &["b", "a"], &["a", "b"], 0, true),
            ("short", &["a"], &["a"], 1, false),
            ("empty", &[], &[], 2, false),
            ("long", &["a", "b", "c"], &["a", "b"], 1, false),
            ("doubled", &["a", "b", "a"], &["b"], 1, false),
            ("tripled", &["a", "a", "a", "b"], &["b"], 1, false),
            ("other keys", &["x", "y"], &[], 4, false),
        ];
        for (name, given, want, wrong, reordered) in rows {
            let keys = ["a", "b"].map(str::to_owned);
            let given = given.iter().enumerate().map(|(i, key)| ((*key).to_owned(), i)).collect();
            let matched = matched(&keys, given);
            let mut answered: Vec<_> = matched.answers.keys().cloned().collect();
            answered.sort();
            assert_eq!(answered, want, "{name}");
            assert_eq!((matched.wrong, matched.reordered), (wrong, reordered), "{name}");
        }
    }
}
