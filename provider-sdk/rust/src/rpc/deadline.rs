//! The caller's deadline, as sent on the wire.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// "Deadline exceeded" is sent this much earlier, so that it still reaches the caller.
const HEADSTART: Duration = Duration::from_millis(5);

/// How long the caller waits: the value of `grpc-timeout`, at most eight digits and a unit.
pub fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// How long the provider works on the call: a little less than the caller waits.
pub(super) fn patience(timeout: Duration) -> Duration {
    timeout.saturating_sub(HEADSTART.min(timeout / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, wanted) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("7u", Some(Duration::from_micros(7))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("999999999n", None),
            ("S", None),
            ("-1S", None),
            ("1s", None),
            ("", None),
        ] {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(timeout(&metadata), wanted, "{text}");
        }
        assert_eq!(timeout(&MetadataMap::new()), None);
    }

    #[test]
    fn this_end_gives_up_first() {
        assert_eq!(patience(Duration::from_secs(1)), Duration::from_millis(995));
        assert_eq!(patience(Duration::from_millis(10)), Duration::from_millis(9));
    }
}
