//! Durations in the notation of Kubernetes flags: `1h30m`, `5m0s`, `250ms`, `0`.
//!
//! In: text. Out: a [`Duration`], or why not. Each flag decides whether zero makes sense.

use std::time::Duration;

const NANOS_PER_UNIT: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The longest duration that the notation allows: 2^63 - 1 nanoseconds, about 292 years.
const LONGEST_NANOS: u128 = i64::MAX as u128;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("is negative")]
    Negative,
    #[error("has no unit")]
    NoUnit,
    #[error("is not a duration")]
    Malformed,
    #[error("is longer than 292 years")]
    TooLong,
}

pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let nanos = if text == "0" { 0 } else { sum(text)? };
    if negative && nanos > 0 {
        return Err(DurationError::Negative);
    }
    Ok(Duration::from_nanos(nanos))
}

/// Writes a duration in Go's notation: `1h0m0s`, `5m0s`, `1.5s`, `250ms`, `0s`; exact to the millisecond.
pub fn text(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let fraction = format!(".{millis:03}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}{fraction}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

fn sum(mut rest: &str) -> Result<u64, DurationError> {
    if rest.is_empty() {
        return Err(DurationError::Malformed);
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (nanos, after) = term(rest)?;
        total += nanos;
        if total > LONGEST_NANOS {
            return Err(DurationError::TooLong);
        }
        rest = after;
    }
    u64::try_from(total).map_err(|_| DurationError::TooLong)
}

/// One number with its unit, in nanoseconds, and the remaining text.
fn term(text: &str) -> Result<(u128, &str), DurationError> {
    let (number, rest) = split_where(text, |char| !char.is_ascii_digit() && char != '.');
    let (unit, rest) = split_where(rest, |char| char.is_ascii_digit() || char == '.');
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(DurationError::Malformed);
    }
    if unit.is_empty() {
        return Err(DurationError::NoUnit);
    }
    let (_, nanos_per_unit) =
        NANOS_PER_UNIT.iter().find(|(name, _)| *name == unit).ok_or(DurationError::Malformed)?;
    let whole = integer(whole)?.checked_mul(*nanos_per_unit).ok_or(DurationError::TooLong)?;
    Ok((whole.saturating_add(fraction_of(fraction, *nanos_per_unit)), rest))
}

fn split_where(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

fn integer(digits: &str) -> Result<u128, DurationError> {
    if digits.is_empty() {
        return Ok(0);
    }
    digits.parse().map_err(|_| DurationError::TooLong)
}

/// The part after the decimal point; fractions of a nanosecond are cut off.
fn fraction_of(digits: &str, mut nanos_per_digit: u128) -> u128 {
    let mut nanos = 0;
    for digit in digits.chars().filter_map(|char| char.to_digit(10)) {
        nanos += u128::from(digit) * nanos_per_digit / 10;
        nanos_per_digit /= 10;
    }
    nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_as_go_does() {
        for (millis, expected) in [
            (0, "0s"),
            (250, "250ms"),
            (1500, "1.5s"),
            (10_000, "10s"),
            (300_000, "5m0s"),
            (12 * 3_600_000, "12h0m0s"),
            (3_661_050, "1h1m1.05s"),
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(text(duration), expected);
            assert_eq!(parse(expected), Ok(duration));
        }
    }

    #[test]
    fn reads_what_go_reads() {
        let rows = [
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
            ("-0s", Duration::ZERO),
            ("5s", Duration::from_secs(5)),
            ("+5s", Duration::from_secs(5)),
            ("5m0s", Duration::from_secs(300)),
            ("1h30m", Duration::from_secs(5400)),
            ("12h0m0s", Duration::from_secs(43_200)),
            ("250ms", Duration::from_millis(250)),
            ("1.5h", Duration::from_secs(5400)),
            (".5s", Duration::from_millis(500)),
            ("5.s", Duration::from_secs(5)),
            ("1.25s", Duration::from_millis(1250)),
            ("3us", Duration::from_micros(3)),
            ("3µs", Duration::from_micros(3)),
            ("3μs", Duration::from_micros(3)),
            ("7ns", Duration::from_nanos(7)),
            ("1.9ns", Duration::from_nanos(1)),
            ("0.0001ms", Duration::from_nanos(100)),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_with_the_reason() {
        let rows = [
            ("", DurationError::Malformed),
            ("-", DurationError::Malformed),
            ("5", DurationError::NoUnit),
            ("1h5", DurationError::NoUnit),
            ("s", DurationError::Malformed),
            (".s", DurationError::Malformed),
            ("1.2.3s", DurationError::Malformed),
            ("5 s", DurationError::Malformed),
            ("5d", DurationError::Malformed),
            ("five", DurationError::Malformed),
            ("-5s", DurationError::Negative),
            ("3000000h", DurationError::TooLong),
            ("99999999999999999999999999999999999999999s", DurationError::TooLong),
            ("340282366920938463463374607431768211455h", DurationError::TooLong),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
