//! Selects cases: by a part of the id, by profile, or by rule.

use anyhow::{Result, bail};

use crate::{case::Case, cases};

/// Passes the cases that any of its words means; without words, all.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    words: Vec<String>,
}

impl Filter {
    /// Parses words: a part of an id (`INST-0`), a profile (`routes`), or a rule's tag (`batch-keys`).
    ///
    /// # Errors
    ///
    /// A word means no case.
    pub fn new(mut words: Vec<String>) -> Result<Self> {
        // As after the comma in `routes,`: it would mean every case.
        words.retain(|word| !word.is_empty());
        if let Some(word) = words.iter().find(|word| !cases::all().any(|case| means(word, case))) {
            bail!(
                "--filter {word:?} is no part of a case's id, no profile and no rule; `list` prints all cases"
            );
        }
        Ok(Self { words })
    }

    /// Its words.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Whether to run the case.
    pub fn lets_pass(&self, case: &Case) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| means(word, case))
    }
}

fn means(word: &str, case: &Case) -> bool {
    case.id.contains(&word.to_ascii_uppercase()) || case.profile.name() == word || case.rules.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_means_no_case_is_refused() {
        for word in ["routes", "inst-0", "LEAD-05", "batch-keys"] {
            assert!(Filter::new(vec![word.to_owned()]).is_ok(), "{word}");
        }
        let routes = Filter::new(vec!["routes".to_owned(), String::new()]).unwrap();
        assert!(!cases::all().all(|case| routes.lets_pass(case)), "an empty word means nothing");
        let error = Filter::new(vec!["LEAD-05".to_owned(), "balancers".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("\"balancers\""), "{error}");
    }
}
