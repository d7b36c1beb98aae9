//! Which names are those of secrets.

use crate::proto::ErrorReason;

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

/// Does a field, a map key or an option of this name hold a secret?
pub(crate) fn names_a_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|one| !matches!(one, '-' | '_' | '.' | ' '))
        .map(|one| one.to_ascii_lowercase())
        .collect();
    // Reasons such as PAGE_TOKEN_EXPIRED stand before a colon, too.
    PARTS.iter().any(|part| plain.contains(part)) && ErrorReason::from_wire_name(name).is_none()
}
