//! Recognises names of secrets.

use crate::v1alpha1::ErrorReason;

const PARTS: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "credential",
    "apikey",
    "privatekey",
    "accesskey",
    "sessionkey",
    "signingkey",
    "bearer",
    "cookie",
];

/// Whether a field, map key or option with this name holds a secret.
#[must_use]
pub fn names_a_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|one| !matches!(one, '-' | '_' | '.' | ' '))
        .map(|one| one.to_ascii_lowercase())
        .collect();
    // Reasons such as RESUME_TOKEN_EXPIRED also precede a colon.
    PARTS.iter().any(|part| plain.contains(part)) && ErrorReason::from_wire_name(name).is_none()
}
