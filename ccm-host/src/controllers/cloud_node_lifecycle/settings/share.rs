//! A part of a whole, written `5%` or `0.05`.

use std::fmt;

use crate::flag::Wrong;

/// A part of a whole, from nothing (0) to all (1).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// As a fraction from 0 to 1.
    #[must_use]
    pub const fn fraction(self) -> f64 {
        self.0
    }

    /// The share of this fraction, if it is one.
    #[must_use]
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then_some(Self(fraction))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}%", self.0 * 100.0)
    }
}

pub(super) fn parse(text: &str) -> Result<Share, Wrong> {
    let example = "write it like 5% or 0.05";
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        // `1` could mean one percent or everything: either guess could delete the wrong number of nodes.
        None if text != "0" && !text.contains('.') && text.parse::<f64>().is_ok() => {
            return Err(Wrong::new("is ambiguous", format!("write {text}% for a percentage")));
        }
        None => (text, 1.0),
    };
    let number: f64 = number.trim_end().parse().map_err(|_| Wrong::new("is not a share", example))?;
    Share::from_fraction(number / scale)
        .ok_or_else(|| Wrong::new("is not between nothing and all", "give 0% to 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_spellings() {
        for (text, fraction) in [
            ("5%", 0.05),
            ("0.05", 0.05),
            ("0", 0.0),
            ("0%", 0.0),
            ("100%", 1.0),
            ("1.0", 1.0),
            ("2.5 %", 0.025),
        ] {
            assert_eq!(parse(text).map(Share::fraction), Ok(fraction), "{text}");
        }
        assert_eq!(Share(0.05).to_string(), "5%");
    }

    #[test]
    fn refuses_with_a_remedy() {
        for (text, message) in [
            ("1", "is ambiguous: write 1% for a percentage"),
            ("5", "is ambiguous: write 5% for a percentage"),
            ("101%", "is not between nothing and all: give 0% to 100%"),
            ("-1%", "is not between nothing and all: give 0% to 100%"),
            ("1.5", "is not between nothing and all: give 0% to 100%"),
            ("NaN%", "is not between nothing and all: give 0% to 100%"),
            ("half", "is not a share: write it like 5% or 0.05"),
            ("", "is not a share: write it like 5% or 0.05"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
