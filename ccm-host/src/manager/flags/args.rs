//! The words that clap sees: those of the command line, normalised, and those of the `--config` file.
//!
//! In: words from the shell, in the style of Go's flag library, and a YAML file keyed by flag names. Out: `--name=value`
//! words of known flags; everything else is a mistake with its remedy. This covers only what clap cannot do: `_` for `-`,
//! values that begin with `-`, and several unknown flags at once. Flags given on the command line are skipped in the
//! file, so that lists are replaced, not joined.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::iter::Peekable;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Command};
use serde_json::Value;

use super::legacy;
use ccm_base::flag::{FlagError, Mistakes, Wrong};

pub(super) const SEE_HELP: &str = "see --help for all flags";

/// Flags that concern the command line itself and cannot be in a file.
pub(super) const COMMAND_LINE_ONLY: [&str; 3] = ["config", "help", "version"];

/// The words for clap, starting with the program name.
pub(super) fn sort(
    command: &Command,
    words: impl Iterator<Item = OsString>,
    mistakes: &mut Mistakes,
) -> Vec<String> {
    let mut sorted = vec![command.get_name().to_owned()];
    let mut words = readable(words, mistakes).into_iter().peekable();
    while let Some(word) = words.next() {
        if word == "--" {
            words.by_ref().for_each(|word| mistakes.add(stray(&word)));
        } else if let Some(flag) = word.strip_prefix("--") {
            sorted.extend(long(command, flag, &mut words, mistakes));
        } else if word.len() > 1 && word.starts_with('-') {
            sorted.extend(short(command, &word, &mut words, mistakes));
        } else {
            mistakes.add(stray(&word));
        }
    }
    sorted
}

/// Keeps the last value of each flag without a default; an empty value unsets the flag.
pub(super) fn drop_unset(command: &Command, words: &mut Vec<String>) {
    let single =
        |arg: &&clap::Arg| matches!(arg.get_action(), ArgAction::Set) && arg.get_default_values().is_empty();
    for name in command.get_arguments().filter(single).filter_map(clap::Arg::get_long) {
        let empty = format!("--{name}=");
        let last = words.iter().rev().find(|word| word.starts_with(&empty)).cloned();
        words.retain(|word| !word.starts_with(&empty) || *word != empty && Some(word) == last.as_ref());
    }
}

fn readable(words: impl Iterator<Item = OsString>, mistakes: &mut Mistakes) -> Vec<String> {
    let read = |word: OsString| {
        word.into_string().map_err(|word| FlagError {
            given: word.to_string_lossy().into_owned(),
            problem: "is not UTF-8".to_owned(),
            remedy: "write flags in UTF-8".to_owned(),
        })
    };
    words.filter_map(|word| mistakes.keep(read(word))).collect()
}

/// `--name`, `--name=value` or `--name value`, without the dashes.
fn long(
    command: &Command,
    flag: &str,
    rest: &mut Peekable<impl Iterator<Item = String>>,
    mistakes: &mut Mistakes,
) -> Option<String> {
    let (written, value) = match flag.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (flag, None),
    };
    let name = written.replace('_', "-");
    let Some(known) = command.get_arguments().find(|arg| arg.get_long() == Some(name.as_str())) else {
        mistakes.add(unknown(&format!("--{written}"), &name));
        if value.is_none() && !legacy::was_switch(&name) {
            // The next word is most likely its value: reporting that as well would only distract.
            rest.next_if(|next| !next.starts_with('-'));
        }
        return None;
    };
    if matches!(known.get_action(), ArgAction::Help) {
        return Some("--help".to_owned());
    }
    if known.get_num_args().is_some_and(|count| count.min_values() == 0) {
        return Some(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")));
    }
    match value.or_else(|| rest.next()) {
        Some(value) => Some(format!("--{name}={value}")),
        None => {
            mistakes.add(FlagError::flag(&name, "needs a value", format!("write --{name}=VALUE")));
            None
        }
    }
}

/// `-h`, `-v 2`, `-v=2`, `-v2`.
fn short(
    command: &Command,
    word: &str,
    rest: &mut Peekable<impl Iterator<Item = String>>,
    mistakes: &mut Mistakes,
) -> Option<String> {
    let mut chars = word.chars().skip(1);
    let letter = chars.next();
    let name = command.get_arguments().find(|arg| arg.get_short() == letter).and_then(clap::Arg::get_long);
    let (Some(name), false) = (name, letter.is_none()) else {
        mistakes.add(unknown(word, word.trim_start_matches('-')));
        return None;
    };
    let value: String = chars.collect();
    match value.strip_prefix('=').unwrap_or(&value) {
        "" if !value.is_empty() => long(command, &format!("{name}="), rest, mistakes),
        "" => long(command, name, rest, mistakes),
        value => long(command, &format!("{name}={value}"), rest, mistakes),
    }
}

fn stray(word: &str) -> FlagError {
    FlagError {
        given: word.to_owned(),
        problem: "is not a flag, and nothing else is expected".to_owned(),
        remedy: "write --name=value".to_owned(),
    }
}

/// The error about an unknown flag name.
fn unknown(written: &str, name: &str) -> FlagError {
    legacy::explain(name, written).unwrap_or_else(|| FlagError {
        given: written.to_owned(),
        problem: "unknown flag".to_owned(),
        remedy: match similar(name) {
            Some(similar) => format!("did you mean {similar}? {SEE_HELP}"),
            None => SEE_HELP.to_owned(),
        },
    })
}

/// Clap's guess at the flag that was meant.
fn similar(name: &str) -> Option<String> {
    let error = super::command().try_get_matches_from(["ccm-host".to_owned(), format!("--{name}")]).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(name) => Some(name.clone()),
        _ => None,
    }
}

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
            let remedy = unknown(name, name).remedy;
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
