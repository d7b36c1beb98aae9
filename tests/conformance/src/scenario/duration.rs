//! Durations as text: `500ms`, `10s`, `2m`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize as _, Deserializer, de::Error as _};

pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let parsed = text.parse::<SignedDuration>().ok().and_then(|signed| Duration::try_from(signed).ok());
    parsed.ok_or_else(|| D::Error::custom(format!("{text:?} is no duration; use for example 500ms or 10s")))
}

pub(super) fn deserialize_some<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Duration>, D::Error> {
    deserialize(from).map(Some)
}
