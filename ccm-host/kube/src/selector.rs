//! Label selectors, in the grammar of `kubectl get -l`.
//!
//! In: text such as `zone in (a,b),!cordoned`. Out: a predicate over labels that knows which keys it reads. An empty
//! selector matches everything.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use ccm_base::label;

/// A selector; all requirements must hold. The default has none and matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// A label key, and what must be true of its value.
type Requirement = (String, Operator);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
}

impl LabelSelector {
    /// Whether this selector has no requirement.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels, looked up by key, satisfy every requirement.
    ///
    /// As in Kubernetes, `!=` and `notin` hold for an object without the key.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|(key, rule)| rule.holds(label(key)))
    }

    /// The label keys that the selector reads, for caches that keep only those.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|(key, _)| key.as_str())
    }
}

impl Operator {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
        }
    }
}

impl FromStr for LabelSelector {
    /// Which requirement is wrong, and how.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let parts = split(text)?.into_iter().map(|part| requirement(part.trim()));
        Ok(Self { requirements: parts.collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, rule)) in self.requirements.iter().enumerate() {
            if index > 0 {
                out.write_str(",")?;
            }
            match rule {
                Operator::In(values) => write!(out, "{key} in ({})", joined(values))?,
                Operator::NotIn(values) => write!(out, "{key} notin ({})", joined(values))?,
                Operator::Exists => write!(out, "{key}")?,
                Operator::Absent => write!(out, "!{key}")?,
            }
        }
        Ok(())
    }
}

fn joined(values: &BTreeSet<String>) -> String {
    values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// Splits at the commas that are not inside parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
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

fn requirement(part: &str) -> Result<Requirement, String> {
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
        return with_values(part, key, [value], Operator::NotIn);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return with_values(part, key, [value], Operator::In);
    }
    match part.strip_prefix('!') {
        Some(key) => Ok((valid_key(part, key)?, Operator::Absent)),
        None => Ok((valid_key(part, part)?, Operator::Exists)),
    }
}

/// `key in (a,b)`, split at the opening parenthesis.
fn set(part: &str, left: &str, right: &str) -> Result<Requirement, String> {
    let Some((values, rest)) = right.split_once(')') else {
        return Err(fault(part, "has an unclosed parenthesis"));
    };
    if !rest.is_empty() {
        return Err(fault(part, "goes on after the closing parenthesis"));
    }
    let words: Vec<&str> = left.split_whitespace().collect();
    match words.as_slice() {
        [key, "in"] => with_values(part, key, values.split(','), Operator::In),
        [key, "notin"] => with_values(part, key, values.split(','), Operator::NotIn),
        _ => Err(fault(part, "needs 'in' or 'notin' before the parenthesis")),
    }
}

fn with_values<'a>(
    part: &str,
    key: &str,
    values: impl IntoIterator<Item = &'a str>,
    rule: fn(BTreeSet<String>) -> Operator,
) -> Result<Requirement, String> {
    let key = valid_key(part, key)?;
    let values = values.into_iter().map(|value| valid_value(part, value)).collect::<Result<_, _>>()?;
    Ok((key, rule(values)))
}

fn valid_key(part: &str, key: &str) -> Result<String, String> {
    let key = key.trim();
    if label::is_key(key) { Ok(key.to_owned()) } else { Err(fault(part, "has no valid label key")) }
}

fn valid_value(part: &str, value: &str) -> Result<String, String> {
    let value = value.trim();
    if label::is_value(value) { Ok(value.to_owned()) } else { Err(fault(part, "has no valid label value")) }
}

fn fault(part: &str, problem: &str) -> String {
    format!("{:?} {problem}", part.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector: LabelSelector = selector.parse().unwrap();
        selector.matches(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    #[test]
    fn selects() {
        let node = [("zone", "a"), ("example.com/pool", "batch"), ("empty", "")];
        let rows = [
            ("", true),
            ("  ", true),
            ("zone=a", true),
            ("zone==a", true),
            (" zone = a ", true),
            ("zone=b", false),
            ("other=a", false),
            ("zone!=a", false),
            ("zone!=b", true),
            ("other!=a", true),
            ("zone in (a,b)", true),
            ("zone in(b, a)", true),
            ("zone in (b)", false),
            ("other in (a)", false),
            ("zone notin (a,b)", false),
            ("zone notin (b)", true),
            ("other notin (b)", true),
            ("zone", true),
            ("other", false),
            ("!other", true),
            ("! other", true),
            ("!zone", false),
            ("empty=", true),
            ("empty", true),
            ("empty in ()", true),
            ("zone=", false),
            ("zone=a,example.com/pool=batch", true),
            ("zone=a,example.com/pool=web", false),
            ("zone in (a,b),!other,example.com/pool notin (web)", true),
            ("in=a", false),
        ];
        for (selector, expected) in rows {
            assert_eq!(matches(selector, &node), expected, "{selector:?}");
        }
    }

    #[test]
    fn names_the_keys_it_reads() {
        let selector: LabelSelector = "zone in (a),!cordoned,pool".parse().unwrap();
        assert_eq!(selector.keys().collect::<Vec<_>>(), ["zone", "cordoned", "pool"]);
        assert!(!selector.is_everything());
        assert!("".parse::<LabelSelector>().unwrap().is_everything());
    }

    #[test]
    fn prints_what_it_would_parse() {
        for text in ["", "zone in (a,b),!cordoned,pool", "zone notin (a)", "zone in ()"] {
            let selector: LabelSelector = text.parse().unwrap();
            assert_eq!(selector.to_string(), text);
        }
    }

    #[test]
    fn refuses_with_the_part_and_the_reason() {
        let rows = [
            ("a=b,,c=d", "", "is empty between two commas"),
            ("a=b,", "", "is empty between two commas"),
            ("a in (b", "a in (b", "has an unclosed parenthesis"),
            ("a in b)", "a in b)", "has a closing parenthesis without an opening one"),
            ("a in (b) c", "a in (b) c", "goes on after the closing parenthesis"),
            ("a within (b)", "a within (b)", "needs 'in' or 'notin' before the parenthesis"),
            ("(b)", "(b)", "needs 'in' or 'notin' before the parenthesis"),
            ("a in (b,(c))", "a in (b,(c))", "has a parenthesis inside a parenthesis"),
            ("a>1", "a>1", "compares numbers, which is not supported for nodes"),
            ("a b", "a b", KEY),
            ("=b", "=b", KEY),
            ("-a=b", "-a=b", KEY),
            ("UPPER.com/a=b", "UPPER.com/a=b", KEY),
            ("/a=b", "/a=b", KEY),
            ("a/b/c", "a/b/c", KEY),
            ("!a=b", "!a=b", KEY),
            ("a=b=c", "a=b=c", VALUE),
            ("a=b c", "a=b c", VALUE),
            ("a in (b c)", "a in (b c)", VALUE),
        ];
        for (text, requirement, problem) in rows {
            let error = text.parse::<LabelSelector>().unwrap_err();
            assert_eq!(error, format!("{requirement:?} {problem}"), "{text:?}");
        }
        let long = format!("{}=b", "k".repeat(64));
        assert!(long.parse::<LabelSelector>().unwrap_err().ends_with(KEY));
    }

    const KEY: &str = "has no valid label key";
    const VALUE: &str = "has no valid label value";
}
