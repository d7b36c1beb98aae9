//! Normalises the words of the command line before clap sees them.
//!
//! In: words from the shell, in the style of Go's flag library. Out: `--name=value` words of known flags; everything
//! else is a mistake with its remedy. This covers only what clap cannot do: `_` for `-`, values that begin with `-`,
//! and several unknown flags at once.

use std::ffi::OsString;
use std::iter::Peekable;

use clap::ArgAction;
use clap::error::{ContextKind, ContextValue};

use super::legacy;
use crate::flag::{FlagError, Mistakes};

pub(super) const SEE_HELP: &str = "see --help for all flags";

/// The words for clap, starting with the program name.
pub(super) fn sort(
    command: &clap::Command,
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
pub(super) fn drop_unset(command: &clap::Command, words: &mut Vec<String>) {
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
    command: &clap::Command,
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
    command: &clap::Command,
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
pub(super) fn unknown(written: &str, name: &str) -> FlagError {
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
