//! The provider's status.

use std::{collections::BTreeSet, time::Duration};

use cloudprovider_proto::v1alpha1::{
    ConditionStatus, ConditionType, GetStatusRequest, GetStatusResponse, ProviderCondition,
};

use crate::{
    case::{Case, Outcome, Profile::Observability, Stop},
    scenario::Variables,
    trial::{Trial, expect, good, within_bytes},
};

const TABLE: &str = "| all is well | OK | | shows the conditions |";
const FREEZE: &str = "While CREDENTIALS_VALID or CLOUD_REACHABLE is FALSE, the host freezes destructive work";

pub(super) const CASES: &[Case] = &[
    Case::new("STAT-01", Observability, "GetStatus answers, each type of condition at most once", &[], &once)
        .words(&["Each type at most once.", TABLE]),
    Case::new(
        "STAT-02",
        Observability,
        "conditions have a type, short texts, and a time that changes with the status alone",
        &[],
        &texts,
    )
    .words(&[
        "CamelCase, at most 63 bytes. Optional.",
        "Human-readable, at most 1 KiB; no secrets. Optional.",
        "When the status last changed. Optional.",
    ]),
    Case::new(
        "STAT-03",
        Observability,
        "bad credentials show, and show no more when they are good",
        &[],
        &credentials,
    )
    .words(&["The cloud accepts the provider's credentials.", FREEZE])
    .hooks(&["break-credentials", "restore-credentials"])
    .extended(),
    Case::new(
        "STAT-04",
        Observability,
        "a cloud that is down shows, and GetStatus goes on answering",
        &[],
        &cloud_down,
    )
    .words(&["Idempotent, no side effects; it answers from memory.", "The cloud answers."])
    .hooks(&["cut-cloud", "restore-cloud"])
    .extended(),
];

async fn status(t: &Trial) -> Result<GetStatusResponse, Stop> {
    good("GetStatus", t.base().get_status(t.ask(GetStatusRequest {})).await)
}

async fn once(t: &Trial) -> Outcome {
    let conditions = status(t).await?.conditions;
    let types: BTreeSet<_> = conditions.iter().map(|condition| condition.r#type).collect();
    expect(types.len() == conditions.len(), "each type at most once", conditions)
}

async fn texts(t: &Trial) -> Outcome {
    let before = status(t).await?.conditions;
    for condition in &before {
        // Status UNSPECIFIED means that it is not known.
        expect(condition.r#type != 0, "a type", condition)?;
        within_bytes("a reason", &condition.reason, 63)?;
        within_bytes("a message", &condition.message, 1 << 10)?;
        let plain = condition.reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
        expect(plain, "a CamelCase reason", &condition.reason)?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for now in status(t).await?.conditions {
        let is_same = |one: &&ProviderCondition| (one.r#type, one.status) == (now.r#type, now.status);
        if let Some(same) = before.iter().find(is_same) {
            expect(same.since == now.since, "the time since when it is so, which stays", (&same, &now))?;
        }
    }
    Ok(())
}

async fn shows(t: &Trial, kind: ConditionType, wanted: ConditionStatus) -> Outcome {
    t.eventually(&format!("condition {} {}", kind.as_str_name(), wanted.as_str_name()), async || {
        touch(t).await;
        let conditions = status(t).await?.conditions;
        let found = conditions.iter().find(|condition| condition.r#type() == kind);
        if found.is_some_and(|condition| condition.status() == wanted) {
            return Ok(Ok(()));
        }
        // Some clouds lock out whoever comes with bad credentials too often.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Err(format!("{found:?}")))
    })
    .await
}

/// Makes the provider query the cloud, in case it learns from failures: about several instances, since a single one
/// that cannot be read proves nothing about the cloud.
async fn touch(t: &Trial) {
    let strangers = (0..5).map(|_number| t.stranger()).collect();
    let _whatever_it_answers = t.instances().batch_get_instances(t.ask(t.batch(strangers))).await;
}

async fn credentials(t: &Trial) -> Outcome {
    t.steer("break-credentials", Variables::new()).await?;
    shows(t, ConditionType::CredentialsValid, ConditionStatus::False).await?;
    t.restore("break-credentials").await?;
    shows(t, ConditionType::CredentialsValid, ConditionStatus::True).await
}

async fn cloud_down(t: &Trial) -> Outcome {
    t.steer("cut-cloud", Variables::new()).await?;
    shows(t, ConditionType::CloudReachable, ConditionStatus::False).await?;
    t.restore("cut-cloud").await?;
    shows(t, ConditionType::CloudReachable, ConditionStatus::True).await
}
