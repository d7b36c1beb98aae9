//! Selects the wanted labels, annotations and taints: by key, or by a prefix that ends in "/" or "*".

use std::collections::{BTreeSet, HashMap};

use crate::kube::Pairs;

pub(super) fn pick(pairs: &Pairs, patterns: &[String]) -> HashMap<String, String> {
    pairs
        .iter()
        .filter(|(key, _)| patterns.iter().any(|pattern| is_wanted(pattern, key)))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// All patterns of these lists, sorted.
pub(in crate::cloud) fn union<'a>(lists: impl IntoIterator<Item = &'a [String]>) -> Vec<String> {
    let all: BTreeSet<&String> = lists.into_iter().flatten().filter(|pattern| !pattern.is_empty()).collect();
    all.into_iter().cloned().collect()
}

pub(super) fn is_wanted(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None if pattern.ends_with('/') => key.starts_with(pattern),
        None => key == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_keys_or_prefixes() {
        let rows = [
            ("a", "a", true),
            ("a", "ab", false),
            ("a/", "a/b", true),
            ("a/", "a", false),
            ("a*", "ab", true),
            ("*", "anything", true),
            ("", "a", false),
        ];
        for (pattern, key, want) in rows {
            assert_eq!(is_wanted(pattern, key), want, "{pattern:?} {key:?}");
        }
    }

    #[test]
    fn a_union_is_sorted_and_holds_each_once() {
        let (a, b) = (["y".to_owned(), "x".to_owned()], ["x".to_owned(), String::new()]);
        assert_eq!(union([&a[..], &b[..]]), ["x", "y"]);
    }
}
