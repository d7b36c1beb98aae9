//! The grammar of selectors: text in, requirements or the faulty part out.

use std::collections::BTreeSet;

use super::{LabelSelector, Requirement, Rule, SelectorError};

const LONGEST_NAME: usize = 63;
const LONGEST_PREFIX: usize = 253;

pub(super) fn selector(text: &str) -> Result<LabelSelector, SelectorError> {
    if text.trim().is_empty() {
        return Ok(LabelSelector::everything());
    }
    let parts = split(text)?;
    let requirements = parts.into_iter().map(|part| requirement(part.trim())).collect::<Result<_, _>>()?;
    Ok(LabelSelector { requirements })
}

/// Splits at the commas that are not inside parentheses.
fn split(text: &str) -> Result<Vec<&str>, SelectorError> {
    let mut parts = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (index, char) in text.char_indices() {
        match (char, inside) {
            ('(', true) => return Err(fault(&text[start..], "has a parenthesis inside a parenthesis")),
            ('(', false) => inside = true,
            (')', false) => {
                return Err(fault(&text[start..], "has a closing parenthesis without an opening one"));
            }
            (')', true) => inside = false,
            (',', false) => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(fault(&text[start..], "has an unclosed parenthesis"));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    if part.is_empty() {
        return Err(fault(part, "is empty between two commas"));
    }
    if part.contains(['<', '>']) {
        return Err(fault(part, "compares numbers, which is not supported for nodes"));
    }
    if let Some((left, right)) = part.split_once('(') {
        return set(part, left, right);
    }
    if let Some((key, value)) = part.split_once("!=") {
        return with_values(part, key, [value], Rule::NotIn);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return with_values(part, key, [value], Rule::In);
    }
    match part.strip_prefix('!') {
        Some(key) => Ok(Requirement { key: valid_key(part, key)?, rule: Rule::Absent }),
        None => Ok(Requirement { key: valid_key(part, part)?, rule: Rule::Exists }),
    }
}

/// `key in (a,b)`, split at the opening parenthesis.
fn set(part: &str, left: &str, right: &str) -> Result<Requirement, SelectorError> {
    let Some((values, rest)) = right.split_once(')') else {
        return Err(fault(part, "has an unclosed parenthesis"));
    };
    if !rest.is_empty() {
        return Err(fault(part, "goes on after the closing parenthesis"));
    }
    let words: Vec<&str> = left.split_whitespace().collect();
    match words.as_slice() {
        [key, "in"] => with_values(part, key, values.split(','), Rule::In),
        [key, "notin"] => with_values(part, key, values.split(','), Rule::NotIn),
        _ => Err(fault(part, "needs 'in' or 'notin' before the parenthesis")),
    }
}

fn with_values<'a>(
    part: &str,
    key: &str,
    values: impl IntoIterator<Item = &'a str>,
    rule: fn(BTreeSet<String>) -> Rule,
) -> Result<Requirement, SelectorError> {
    let key = valid_key(part, key)?;
    let values = values.into_iter().map(|value| valid_value(part, value)).collect::<Result<_, _>>()?;
    Ok(Requirement { key, rule: rule(values) })
}

fn valid_key(part: &str, key: &str) -> Result<String, SelectorError> {
    let key = key.trim();
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if is_name(name) && prefix.is_none_or(is_domain) {
        Ok(key.to_owned())
    } else {
        Err(fault(part, "has no valid label key"))
    }
}

fn valid_value(part: &str, value: &str) -> Result<String, SelectorError> {
    let value = value.trim();
    if value.is_empty() || is_name(value) {
        Ok(value.to_owned())
    } else {
        Err(fault(part, "has no valid label value"))
    }
}

/// Letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit.
fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'))
}

/// A DNS subdomain in lower case.
fn is_domain(text: &str) -> bool {
    text.len() <= LONGEST_PREFIX
        && text.split('.').all(is_name)
        && text
            .chars()
            .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.'))
}

fn fault(part: &str, problem: &'static str) -> SelectorError {
    SelectorError { requirement: part.trim().to_owned(), problem }
}
