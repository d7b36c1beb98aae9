//! Label and field selectors.

use serde_json::Value;

use crate::{kind::Kind, object::Object, refusal::Refusal};

/// The objects of a kind that a request selects; by default all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<(String, Rule)>,
    fields: Vec<(String, Rule)>,
}

#[derive(Debug, Clone)]
enum Rule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Rule {
    fn allows(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::In(wanted), Some(value)) => wanted.iter().any(|one| one == value),
            (Self::In(_), None) | (Self::Absent, Some(_)) | (Self::Exists, None) => false,
            (Self::NotIn(unwanted), Some(value)) => unwanted.iter().all(|one| one != value),
            (Self::NotIn(_) | Self::Absent, None) | (Self::Exists, Some(_)) => true,
        }
    }
}

impl Selector {
    pub(crate) fn parse(kind: &Kind, labels: Option<&str>, fields: Option<&str>) -> Result<Self, Refusal> {
        let labels = labels.map(parse_labels).transpose()?.unwrap_or_default();
        let fields = fields.map(parse_fields).transpose()?.unwrap_or_default();
        let mut known = vec!["metadata.name"];
        if kind.namespaced {
            known.push("metadata.namespace");
        }
        known.extend(kind.selectable);
        if let Some((unknown, _)) = fields.iter().find(|(field, _)| !known.contains(&field.as_str())) {
            let known = known.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
            return Err(Refusal::bad_request(format!(
                "{unknown:?} is not a known field selector: only {known}"
            )));
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn selects(&self, object: &Object) -> bool {
        if self.is_everything() {
            return true;
        }
        let value = object.value();
        let label = |key: &str| value["metadata"]["labels"].get(key).and_then(Value::as_str);
        self.labels.iter().all(|(key, rule)| rule.allows(label(key)))
            && self.fields.iter().all(|(field, rule)| rule.allows(Some(&text(&value, field))))
    }
}

/// A field as a selector sees it: an absent field is the zero value.
fn text(value: &Value, field: &str) -> String {
    let found = field.split('.').fold(value, |value, part| &value[part]);
    match found {
        Value::String(text) => text.clone(),
        Value::Null if field == "spec.unschedulable" => "false".to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn parse_fields(text: &str) -> Result<Vec<(String, Rule)>, Refusal> {
    let parse = |term: &str| {
        let (field, rule): (&str, fn(Vec<String>) -> Rule) = if let Some(at) = term.find("!=") {
            return Some((term[..at].to_owned(), Rule::NotIn(vec![term[at + 2..].to_owned()])));
        } else {
            (term.split('=').next()?, Rule::In)
        };
        let value =
            term[field.len()..].strip_prefix("==").or_else(|| term[field.len()..].strip_prefix('='))?;
        Some((field.to_owned(), rule(vec![value.to_owned()])))
    };
    text.split(',')
        .filter(|term| !term.is_empty())
        .map(|term| {
            parse(term).ok_or_else(|| {
                Refusal::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'"))
            })
        })
        .collect()
}

fn parse_labels(text: &str) -> Result<Vec<(String, Rule)>, Refusal> {
    let mut rest = text.trim();
    let mut rules = Vec::new();
    while !rest.is_empty() {
        let end = end_of_term(rest);
        let term = rest[..end].trim();
        rules.push(parse_label(term).ok_or_else(|| {
            Refusal::bad_request(format!("unable to parse requirement: found '{term}', expected: identifier"))
        })?);
        rest = rest[end..].trim_start_matches(',').trim();
    }
    Ok(rules)
}

/// The position of the next comma outside of parentheses.
fn end_of_term(text: &str) -> usize {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn parse_label(term: &str) -> Option<(String, Rule)> {
    let key = |text: &str| {
        let text = text.trim();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        (!text.is_empty() && text.chars().all(fits)).then(|| text.to_owned())
    };
    if let Some(absent) = term.strip_prefix('!') {
        return Some((key(absent)?, Rule::Absent));
    }
    if let Some((left, values)) = term.split_once('(') {
        let values =
            values.strip_suffix(')')?.split(',').map(|one| one.trim().to_owned()).collect::<Vec<_>>();
        let left = left.trim();
        return if let Some(name) = left.strip_suffix(" notin") {
            Some((key(name)?, Rule::NotIn(values)))
        } else {
            Some((key(left.strip_suffix(" in")?)?, Rule::In(values)))
        };
    }
    if let Some((name, value)) = term.split_once("!=") {
        return Some((key(name)?, Rule::NotIn(vec![value.trim().to_owned()])));
    }
    match term.split_once('=') {
        Some((name, value)) => {
            Some((key(name)?, Rule::In(vec![value.trim_start_matches('=').trim().to_owned()])))
        }
        None => Some((key(term)?, Rule::Exists)),
    }
}
