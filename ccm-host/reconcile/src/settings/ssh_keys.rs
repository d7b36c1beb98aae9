//! The flag that names the Secret with SSH keys.

use ccm_base::flag::{self, Wrong};
use ccm_kube::service::ObjectKey;

/// One field per flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "SSH keys")]
#[group(skip)]
pub struct SshKeysSettings {
    /// Secret whose public keys the ssh-keys controller makes valid on all instances: each key of its data is a user,
    /// each value that user's keys, one per line. The controller starts only with this flag and with ssh-keys in
    /// --controllers.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "", value_parser = parse)]
    pub ssh_keys_secret: SecretName,
}

/// The Secret, if there is one. One value for clap, which takes an `Option` for a flag without a default.
pub type SecretName = Option<ObjectKey>;

fn parse(text: &str) -> Result<SecretName, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    let (namespace, name) = flag::secret(text, "kube-system/ssh-keys")?;
    Ok(Some(ObjectKey::new(namespace, name)))
}
