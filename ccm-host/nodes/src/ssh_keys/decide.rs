//! Decides which keys of a Secret may leave the cluster. Pure.
//!
//! In: the Secret's data. Out: public keys in their shortest form, and why each other line is refused; never the line.

use std::{collections::BTreeMap, fmt};

use ssh_key::{Algorithm, HashAlg, PublicKey};

/// The contract's limits.
const LONGEST_USER: usize = 32;
const LONGEST_KEY: usize = 16 << 10;
/// In bytes: 2048 bits.
const SHORTEST_RSA: usize = 256;

/// A public key of a user. Its `Debug` output has the fingerprint only.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct UserKey {
    pub(super) user: String,
    /// `SHA256:` and base64.
    pub(super) fingerprint: String,
    /// Algorithm, blank, base64.
    pub(super) line: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) keys: Vec<UserKey>,
    /// Which lines are not spread, and why.
    pub(super) refused: Vec<String>,
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.user, self.fingerprint)
    }
}

/// Sorts all lines of the Secret. Empty lines and comments are neither spread nor refused; a key that is there twice is
/// spread once.
pub(super) fn plan(data: &BTreeMap<String, Vec<u8>>) -> Plan {
    let mut plan = Plan::default();
    for (user, value) in data {
        match lines(user, value) {
            Err(why) => plan.refused.push(format!("the keys of user {user:?} are not added: {why}")),
            Ok(text) => {
                for (line, text) in (1..).zip(text.lines()) {
                    match key(user, text.trim()) {
                        Ok(Some(key)) if !plan.keys.contains(&key) => plan.keys.push(key),
                        Ok(_) => {}
                        Err(why) => {
                            plan.refused.push(format!("line {line} of user {user:?} is not added: {why}"));
                        }
                    }
                }
            }
        }
    }
    plan
}

fn lines<'a>(user: &str, value: &'a [u8]) -> Result<&'a str, &'static str> {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
            && name.chars().all(|one| one.is_ascii_alphanumeric() || "._-".contains(one))
    };
    if user.len() > LONGEST_USER {
        return Err("its name is longer than 32 bytes");
    }
    if !is_name(user) {
        return Err("its name is not a login name: it must begin with a lower-case letter or an underscore");
    }
    let text = std::str::from_utf8(value).map_err(|_| "they are not text")?;
    if text.contains("PRIVATE KEY") {
        return Err("the value holds a private key: remove it from the Secret and replace the key pair");
    }
    Ok(text)
}

fn key(user: &str, text: &str) -> Result<Option<UserKey>, &'static str> {
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    if text.len() > LONGEST_KEY {
        return Err("it is longer than 16 KiB");
    }
    let mut key = PublicKey::from_openssh(text)
        .map_err(|_| "it is not a public key: give one line as in a .pub file, without options before it")?;
    match key.algorithm() {
        Algorithm::Dsa => return Err("OpenSSH accepts no DSA keys any more: give an Ed25519 key"),
        Algorithm::Rsa { .. } => {
            let bits = key.key_data().rsa().and_then(|rsa| rsa.n.as_positive_bytes()).map_or(0, <[u8]>::len);
            if bits < SHORTEST_RSA {
                return Err("an RSA key needs 2048 bits or more");
            }
        }
        _ => {}
    }
    key.set_comment("");
    let line = key.to_openssh().map_err(|_| "it cannot be written as one line")?.trim_end().to_owned();
    let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
    Ok(Some(UserKey { user: user.to_owned(), fingerprint, line }))
}

#[cfg(test)]
mod tests;
