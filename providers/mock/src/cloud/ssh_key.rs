//! SSH keys that all instances of a cluster accept.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider_sdk::{ProviderError, Result};
use serde::{Deserialize, Serialize};

use super::State;

/// Accepted algorithms. DSA is refused, as by OpenSSH.
const KINDS: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// A key that all instances of a cluster accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKey {
    /// Uid of the cluster.
    pub cluster_uid: String,
    /// Login name.
    pub user: String,
    /// Algorithm and base64, separated by a blank.
    pub public_key: String,
}

impl State {
    /// All keys, in order of arrival.
    pub fn ssh_keys(&self) -> &[SshKey] {
        &self.ssh_keys
    }

    /// Adds a key; adding it again changes nothing.
    ///
    /// # Errors
    ///
    /// It is not a key, or its algorithm is refused.
    pub fn add_ssh_key(&mut self, cluster_uid: &str, user: &str, public_key: &str) -> Result<()> {
        let public_key = check(public_key)?;
        self.enter("ssh-keys:write")?;
        let key = SshKey { cluster_uid: cluster_uid.to_owned(), user: user.to_owned(), public_key };
        if !self.ssh_keys.contains(&key) {
            self.ssh_keys.push(key);
            self.touch();
        }
        Ok(())
    }
}

/// The key without its comment.
fn check(text: &str) -> Result<String> {
    let refuse = |why: &str| Err(ProviderError::invalid_ssh_key(why));
    if text.trim().lines().count() != 1 {
        return refuse("it must be one line");
    }
    let mut words = text.split_whitespace();
    let (Some(kind), Some(body)) = (words.next(), words.next()) else {
        return refuse("it must be an algorithm, a blank and base64");
    };
    if !KINDS.contains(&kind) {
        return refuse("instances do not accept its algorithm");
    }
    let Ok(bytes) = STANDARD.decode(body) else { return refuse("its body is not base64") };
    // The body repeats the algorithm behind a length of four bytes.
    let inner = bytes.get(4..4 + kind.len());
    if inner != Some(kind.as_bytes()) {
        return refuse("its body belongs to another algorithm");
    }
    Ok(format!("{kind} {body}"))
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::ErrorReason;

    use super::*;
    use crate::cloud::Settings;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    #[test]
    fn a_key_is_kept_once_without_its_comment() {
        let mut cloud = State::new(Settings::default());
        for text in [KEY, &format!("{KEY} me@example"), KEY] {
            cloud.add_ssh_key("c1", "core", text).unwrap();
        }
        assert_eq!(cloud.ssh_keys().len(), 1);
    }

    #[test]
    fn what_is_no_key_says_why() {
        let cases = [
            ("", "it must be one line"),
            ("ssh-ed25519", "it must be an algorithm, a blank and base64"),
            ("ssh-dss AAAA", "instances do not accept its algorithm"),
            ("ssh-rsa !!!", "its body is not base64"),
            ("ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA", "its body belongs to another algorithm"),
        ];
        for (text, wanted) in cases {
            let error = check(text).unwrap_err();
            assert_eq!((error.reason(), error.message()), (ErrorReason::InvalidSshKey, wanted), "{text:?}");
        }
    }
}
