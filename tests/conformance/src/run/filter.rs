//! Selects cases: by a part of the id, by profile, or by rule.

use crate::case::Case;

/// Passes the cases that any of its words means; without words, all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    words: Vec<String>,
}

impl Filter {
    /// Parses words: a part of an id (`INST-0`), a profile (`routes`), or a rule's tag (`batch-keys`).
    #[must_use]
    pub fn new(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect() }
    }

    /// Whether to run the case.
    #[must_use]
    pub fn lets_pass(&self, case: &Case) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| means(word, case))
    }
}

fn means(word: &str, case: &Case) -> bool {
    case.id.contains(&word.to_ascii_uppercase()) || case.profile.name() == word || case.rules.contains(&word)
}
