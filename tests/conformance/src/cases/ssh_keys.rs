//! SSH keys for all instances.

use std::time::Duration;

use cloudprovider_proto::v1alpha1::{
    AddSshKeyToAllInstancesRequest, AddSshKeyToAllInstancesResponse, ErrorReason,
};

use crate::{
    case::{Case, Outcome, Profile::SshKeys},
    trial::{Trial, failed, good, refused},
};

const IDEMPOTENT: &[&str] = &["Idempotent: adding the same key again is OK."];

pub(super) const CASES: &[Case] = &[
    Case::new("SSH-01", SshKeys, "a key is spread", &["in-progress-not-error"], &spread),
    Case::new("SSH-02", SshKeys, "the same key again is OK", &[], &again).words(IDEMPOTENT),
    Case::new("SSH-03", SshKeys, "what is no key is INVALID_SSH_KEY", &[], &no_key)
        .words(&["| not a public key | INVALID_ARGUMENT | INVALID_SSH_KEY"]),
    Case::new("SSH-04", SshKeys, "a missing user is refused", &[], &no_user)
        .words(&["a required field is missing, or a key is duplicated. Code INVALID_ARGUMENT."]),
];

/// A key whose private part nobody has: its public part is 32 zero bytes.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn request(t: &Trial) -> AddSshKeyToAllInstancesRequest {
    AddSshKeyToAllInstancesRequest {
        cluster: t.cluster(),
        fencing: t.fencing(),
        user: "conformance".to_owned(),
        public_key: t.scenario().ssh_public_key.clone().unwrap_or_else(|| KEY.to_owned()),
    }
}

async fn until_spread(t: &Trial) -> Outcome {
    t.eventually("a key that is spread", async || {
        let answer = t.instances().add_ssh_key_to_all_instances(t.ask(request(t))).await;
        let answer: AddSshKeyToAllInstancesResponse = good("AddSshKeyToAllInstances", answer)?;
        match answer.in_progress {
            None => Ok(Ok(())),
            Some(progress) => {
                let after = progress.retry_after.and_then(|after| Duration::try_from(after).ok());
                let positive = after.is_some_and(|after| !after.is_zero());
                if positive {
                    Ok(Err(format!("{progress:?}")))
                } else {
                    Err(failed("a positive retry_after", format!("{progress:?}")))
                }
            }
        }
    })
    .await
}

async fn spread(t: &Trial) -> Outcome {
    until_spread(t).await
}

async fn again(t: &Trial) -> Outcome {
    for _time in 0..3 {
        until_spread(t).await?;
    }
    Ok(())
}

async fn no_key(t: &Trial) -> Outcome {
    for text in ["no key at all", "ssh-ed25519", "ssh-ed25519 !!!"] {
        let bad = AddSshKeyToAllInstancesRequest { public_key: text.to_owned(), ..request(t) };
        let answer = t.instances().add_ssh_key_to_all_instances(t.ask(bad)).await;
        refused(&format!("key {text:?}"), answer, ErrorReason::InvalidSshKey)?;
    }
    Ok(())
}

async fn no_user(t: &Trial) -> Outcome {
    let bad = AddSshKeyToAllInstancesRequest { user: String::new(), ..request(t) };
    let answer = t.instances().add_ssh_key_to_all_instances(t.ask(bad)).await;
    refused("no user", answer, ErrorReason::InvalidArgumentShape).map(drop)
}
