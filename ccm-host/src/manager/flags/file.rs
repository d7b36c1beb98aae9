//! `--config`: a YAML file keyed by flag names; the command line wins.
//!
//! In: the normalised words of the command line. Out: the same words, followed by those of the file. Flags given on the
//! command line are skipped in the file, so that lists are replaced, not joined.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgAction, Command};
use serde_json::Value;

use super::args;
use crate::flag::{FlagError, Mistakes, Wrong};

/// Flags that concern the command line itself and cannot be in a file.
pub(super) const COMMAND_LINE_ONLY: [&str; 3] = ["config", "help", "version"];

/// The file and the flags read from it, so that a mistake can name the file.
#[derive(Debug, Default)]
pub(super) struct File {
    path: PathBuf,
    names: Vec<String>,
}

impl File {
    /// Appends the words of the file, if the command line names one.
    pub(super) fn append(command: &Command, words: &mut Vec<String>, mistakes: &mut Mistakes) -> Self {
        let Some(path) = words.iter().rev().find_map(|word| word.strip_prefix("--config=")) else {
            return Self::default();
        };
        let mut file = Self { path: PathBuf::from(path), names: Vec::new() };
        let given: Vec<String> = words.iter().map(|word| name_of(word).to_owned()).collect();
        for (key, value) in mistakes.keep(file.read()).unwrap_or_default() {
            let name = key.replace('_', "-");
            if given.contains(&name) {
                continue;
            }
            if let Some(more) = mistakes.keep(file.words(command, &name, &value)) {
                words.extend(more);
                file.names.push(name);
            }
        }
        file
    }

    /// Adds the file's path to a mistake that came from the file.
    pub(super) fn locate(&self, mistake: FlagError) -> FlagError {
        match self.names.iter().any(|name| name == name_of(&mistake.given)) {
            true => FlagError { given: format!("{}: {}", self.path.display(), mistake.given), ..mistake },
            false => mistake,
        }
    }

    fn read(&self) -> Result<BTreeMap<String, Value>, FlagError> {
        let path = self.path.display().to_string();
        if path.is_empty() {
            return Ok(BTreeMap::new());
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| {
            let problem = format!("cannot be read: {error}");
            Wrong::new(problem, "give a file that this process may read").of("config", &path)
        })?;
        // An empty file, or one with only comments, sets nothing.
        let map: Option<BTreeMap<String, Value>> = serde_saphyr::from_str(&text).map_err(|error| {
            let problem =
                format!("is not a YAML map: {}", error.to_string().lines().next().unwrap_or_default());
            Wrong::new(problem, "write lines such as \"cluster-name: shop\"").of("config", &path)
        })?;
        Ok(map.unwrap_or_default())
    }

    /// One setting, as words of a command line.
    fn words(&self, command: &Command, name: &str, value: &Value) -> Result<Vec<String>, FlagError> {
        let error = |problem: &str, remedy: String| FlagError {
            given: format!("{}: {name}", self.path.display()),
            problem: problem.to_owned(),
            remedy,
        };
        let known = command.get_arguments().find(|arg| arg.get_long() == Some(name));
        let Some(known) = known else {
            let remedy = args::unknown(name, name).remedy;
            return Err(error("is not the name of a flag", remedy));
        };
        if COMMAND_LINE_ONLY.contains(&name) {
            return Err(error("belongs on the command line", format!("leave it out, or give --{name}")));
        }
        let values = texts(value).ok_or_else(|| {
            error("holds no value of a flag", "write a text, or a list or map of texts".to_owned())
        })?;
        let values = match known.get_action() {
            // An empty list is not the default.
            ArgAction::Append if values.is_empty() => vec![String::new()],
            ArgAction::Append => values,
            _ => vec![values.join(",")],
        };
        Ok(values.into_iter().map(|value| format!("--{name}={value}")).collect())
    }
}

/// A scalar, a list of scalars, or a map of scalars as `key=value`.
fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(items) => items.iter().map(scalar).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| Some(format!("{key}={}", scalar(value)?))).collect()
        }
        value => Some(vec![scalar(value)?]),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The name in `--name=value`.
fn name_of(word: &str) -> &str {
    let word = word.strip_prefix("--").unwrap_or(word);
    word.split_once('=').map_or(word, |(name, _)| name)
}

#[cfg(test)]
mod tests;
