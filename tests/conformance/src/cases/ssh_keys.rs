//! SSH keys for all instances.

use cloudprovider_proto::v1alpha1::{
    AddSshKeyToAllInstancesRequest, AddSshKeyToAllInstancesResponse, ErrorReason,
};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use ssh_key::{PublicKey, public::Ed25519PublicKey};

use super::balancers::positive;
use crate::{
    case::{Case, Outcome, Profile::SshKeys, Stop},
    scenario::Variables,
    trial::{Trial, good, refused},
};

const IDEMPOTENT: &[&str] = &["Idempotent: adding the same key again is OK."];

pub(super) const CASES: &[Case] = &[
    Case::new("SSH-01", SshKeys, "a key is spread", &["in-progress-not-error"], &spread).hooks(DELETE),
    Case::new("SSH-02", SshKeys, "the same key again is OK", &[], &again).words(IDEMPOTENT).hooks(DELETE),
    Case::new("SSH-03", SshKeys, "what is no key is INVALID_SSH_KEY", &[], &no_key)
        .words(&["| not a public key | INVALID_ARGUMENT | INVALID_SSH_KEY"]),
    Case::new("SSH-04", SshKeys, "a missing user is refused", &[], &no_user)
        .words(&["a required field is missing, or a key is duplicated. Code INVALID_ARGUMENT."]),
];

const DELETE: &[&str] = &["delete-ssh-key"];

/// A request with the scenario's key, or with a new one, whose private part is dropped at once: nobody can log in with it.
fn request(t: &Trial) -> Result<AddSshKeyToAllInstancesRequest, Stop> {
    let public_key = t.scenario().ssh_public_key.clone().or_else(new_key);
    let public_key = public_key.ok_or_else(|| Stop::NotRun("this machine gives no random key".to_owned()))?;
    Ok(AddSshKeyToAllInstancesRequest {
        cluster: t.cluster(),
        fencing: t.fencing(),
        user: "conformance".to_owned(),
        public_key,
    })
}

fn new_key() -> Option<String> {
    let made = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).ok()?;
    let pair = Ed25519KeyPair::from_pkcs8(made.as_ref()).ok()?;
    let public = Ed25519PublicKey::try_from(pair.public_key().as_ref()).ok()?;
    PublicKey::from(public).to_openssh().ok()
}

/// A request whose key the cloud forgets when the case ends.
fn short_lived(t: &Trial) -> Result<AddSshKeyToAllInstancesRequest, Stop> {
    let request = request(t)?;
    let told = Variables::new().with("USER", &request.user).with("PUBLIC_KEY", &request.public_key);
    t.register_hook("delete-ssh-key", told)?;
    Ok(request)
}

async fn until_spread(t: &Trial, request: &AddSshKeyToAllInstancesRequest) -> Outcome {
    t.to_its_end("AddSshKeyToAllInstances", async || {
        let answer = t.instances().add_ssh_key_to_all_instances(t.ask(request.clone())).await;
        let answer: AddSshKeyToAllInstancesResponse = good("AddSshKeyToAllInstances", answer)?;
        let Some(progress) = answer.in_progress else { return Ok(Ok(())) };
        positive(&progress)?;
        Ok(Err(progress))
    })
    .await
}

async fn spread(t: &Trial) -> Outcome {
    until_spread(t, &short_lived(t)?).await
}

async fn again(t: &Trial) -> Outcome {
    let request = short_lived(t)?;
    for _time in 0..3 {
        until_spread(t, &request).await?;
    }
    Ok(())
}

async fn no_key(t: &Trial) -> Outcome {
    for text in ["no key at all", "ssh-ed25519", "ssh-ed25519 !!!"] {
        let bad = AddSshKeyToAllInstancesRequest { public_key: text.to_owned(), ..request(t)? };
        let answer = t.instances().add_ssh_key_to_all_instances(t.ask(bad)).await;
        refused(&format!("key {text:?}"), answer, ErrorReason::InvalidSshKey)?;
    }
    Ok(())
}

async fn no_user(t: &Trial) -> Outcome {
    let bad = AddSshKeyToAllInstancesRequest { user: String::new(), ..request(t)? };
    let answer = t.instances().add_ssh_key_to_all_instances(t.ask(bad)).await;
    refused("no user", answer, ErrorReason::InvalidArgumentShape).map(drop)
}
