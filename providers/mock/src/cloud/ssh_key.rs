//! SSH keys that all machines of a cluster take.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cloudprovider_sdk::{ProviderError, Result};
use serde::{Deserialize, Serialize};

use super::State;

/// Kinds that machines take. DSA is refused, as OpenSSH does.
const KINDS: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// A key that all machines of a cluster take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshKey {
    /// Uid of the cluster.
    pub cluster_uid: String,
    /// Login name.
    pub user: String,
    /// Algorithm, blank, base64.
    pub public_key: String,
}

impl State {
    /// All keys in the order of their coming.
    pub fn ssh_keys(&self) -> &[SshKey] {
        &self.ssh_keys
    }

    /// Spreads a key; the same one again changes nothing.
    ///
    /// # Errors
    ///
    /// When it is no key, or its kind is refused.
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
        return refuse("its algorithm is none that machines take");
    }
    let Ok(bytes) = STANDARD.decode(body) else { return refuse("its body is no base64") };
    // The body repeats the algorithm behind a length of four bytes.
    let inner = bytes.get(4..4 + kind.len());
    if inner != Some(kind.as_bytes()) {
        return refuse("its body is not of its algorithm");
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
            ("ssh-dss AAAA", "its algorithm is none that machines take"),
            ("ssh-rsa !!!", "its body is no base64"),
            ("ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA", "its body is not of its algorithm"),
        ];
        for (text, wanted) in cases {
            let error = check(text).unwrap_err();
            assert_eq!((error.reason(), error.message()), (ErrorReason::InvalidSshKey, wanted), "{text:?}");
        }
    }
}
