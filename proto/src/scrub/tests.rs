//! The texts of `proto/vectors`: what must be redacted, and what must stay legible.

use serde_json::Value;

use super::*;

#[test]
fn texts_are_scrubbed_as_in_every_sdk() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../../vectors/scrubbing.json")).unwrap();
    assert!(rows.len() > 30);
    for row in rows {
        let clean = text(row["text"].as_str().unwrap());
        match row["hides"].as_str() {
            Some(canary) => {
                assert!(!clean.contains(canary) && clean.contains(REDACTED), "{row} became {clean}");
            }
            None => assert_eq!(clean, row["becomes"], "{row}"),
        }
    }
}
