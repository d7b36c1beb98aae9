//! SSH keys that all instances of a cluster accept.

use cloudprovider_sdk::{ProviderError, Result};
use serde::{Deserialize, Serialize};
use ssh_key::{Algorithm, PublicKey};

use super::State;

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

    /// Removes a user's key, and returns what it removed.
    pub fn delete_ssh_key(&mut self, user: &str, public_key: &str) -> Vec<SshKey> {
        let gone = |key: &mut SshKey| key.user == user && key.public_key == public_key;
        let gone: Vec<_> = self.ssh_keys.extract_if(.., gone).collect();
        if !gone.is_empty() {
            self.touch();
        }
        gone
    }
}

/// The key without its comment. DSA is refused, as by OpenSSH.
fn check(text: &str) -> Result<String> {
    let refuse = |error: ssh_key::Error| ProviderError::invalid_ssh_key(&format!("it is not a key: {error}"));
    let mut key = PublicKey::from_openssh(text.trim()).map_err(refuse)?;
    if key.algorithm() == Algorithm::Dsa {
        return Err(ProviderError::invalid_ssh_key("instances do not accept DSA"));
    }
    key.set_comment("");
    key.to_openssh().map_err(refuse)
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
        for text in ["", "ssh-ed25519", "ssh-rsa !!!", "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA", "two\nlines"] {
            let error = check(text).unwrap_err();
            assert_eq!(error.reason(), ErrorReason::InvalidSshKey, "{text:?}");
            assert!(error.message().starts_with("it is not a key: "), "{text:?}: {}", error.message());
        }
    }
}
