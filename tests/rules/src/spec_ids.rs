//! IDs of the behaviour specification: which exist, and where they are claimed.
//!
//! In: `spec-ids.txt`, the one list of IDs (a scenario such as `NODE-12`, a weakness such as `SW-3`), and texts that
//! claim some. Out: sets of IDs. The test decides what must be claimed where.

use std::collections::BTreeSet;

/// One ID, as group and number, so that IDs sort numerically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpecId {
    /// For example `NODE`.
    pub group: &'static str,
    /// For example 12.
    pub number: u32,
}

/// Groups that list known weaknesses of upstream rather than scenarios.
pub const WEAKNESSES: [&str; 2] = ["NW", "SW"];

const LIST: &str = include_str!("../spec-ids.txt");

/// Every ID of the specification.
pub fn all() -> BTreeSet<SpecId> {
    LIST.lines().filter_map(|line| line.split_once('-')).filter_map(parsed).collect()
}

fn parsed((group, number): (&'static str, &str)) -> Option<SpecId> {
    Some(SpecId { group, number: number.parse().ok()? })
}

/// The IDs that a text claims: `NODE-12`, or a range such as `NODE-12..15`, of a group in `known`. A number that the
/// specification lacks is included if it is written out or begins a range, but not if it lies within one.
pub fn claimed(text: &str, known: &BTreeSet<SpecId>) -> BTreeSet<SpecId> {
    let groups: BTreeSet<&'static str> = known.iter().map(|id| id.group).collect();
    let mut found = BTreeSet::new();
    for group in groups {
        let start = format!("{group}-");
        for (at, _) in text.match_indices(&start) {
            if text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '-') {
                continue;
            }
            let Some((first, rest)) = number(&text[at + start.len()..]) else { continue };
            let last = rest.strip_prefix("..").and_then(number).map_or(first, |(last, _)| last);
            found.insert(SpecId { group, number: first });
            found.extend(known.iter().filter(|id| id.group == group && (first..=last).contains(&id.number)));
        }
    }
    found
}

fn number(text: &str) -> Option<(u32, &str)> {
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

impl std::fmt::Display for SpecId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.group, self.number)
    }
}
