//! The flag that names the Secret with SSH keys.

use crate::{flag::Wrong, kube::service::ObjectKey};

/// One field per flag.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "SSH keys")]
#[group(skip)]
pub struct Settings {
    /// Secret whose public keys the ssh-keys controller makes valid on all instances: each key of its data is a user,
    /// each value that user's keys, one per line. The controller starts only with this flag and with ssh-keys in
    /// --controllers.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "", value_parser = parse)]
    pub ssh_keys_secret: SecretName,
}

/// The Secret, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretName(pub Option<ObjectKey>);

fn parse(text: &str) -> Result<SecretName, Wrong> {
    if text.is_empty() {
        return Ok(SecretName::default());
    }
    match text.split('/').collect::<Vec<_>>()[..] {
        [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            Ok(SecretName(Some(ObjectKey { namespace: namespace.into(), name: name.into() })))
        }
        _ => Err(Wrong::new("names no Secret", "give NAMESPACE/NAME, for example kube-system/ssh-keys")),
    }
}
