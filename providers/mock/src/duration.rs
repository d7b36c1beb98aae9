//! Durations as people write them: `20ms`, `5s`, `1m30s`.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a duration.
///
/// # Errors
///
/// Says what is wrong with the text, and gives an example.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let parsed: Option<SignedDuration> =
        if text == "0" { Some(SignedDuration::ZERO) } else { text.parse().ok() };
    parsed
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| format!("{text:?} is not a duration; write for example 20ms, 5s or 1m30s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("20ms", Some(20)),
            ("5s", Some(5000)),
            ("1m30s", Some(90_000)),
            ("-5s", None),
            ("5", None),
            ("soon", None),
        ] {
            assert_eq!(parse(text).ok(), wanted.map(Duration::from_millis), "{text}");
        }
    }
}
