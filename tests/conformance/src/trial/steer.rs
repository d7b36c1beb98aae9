//! Controls the cloud: each hook that disturbs it is undone by its counterpart when the case ends.

use std::sync::atomic::Ordering;

use cloudprovider_proto::{discovery::v1::GetInfoRequest, v1alpha1::ErrorReason};
use serde_json::Value;

use super::Trial;
use crate::{
    case::{Outcome, Stop},
    provider::in_words,
    scenario::{HookError, Variables, hooks::undoing},
};

const SLOW: &str = "slow-cloud";

impl Trial {
    /// Runs a hook, after registering its counterpart.
    pub(crate) async fn steer(&self, hook: &str, variables: Variables) -> Result<Value, Stop> {
        if let Some(undo) = undoing(hook) {
            self.register_hook(undo, Variables::new())?;
            let named = variables.get("REASON").and_then(ErrorReason::from_wire_name);
            let reason = named.unwrap_or(ErrorReason::CloudApiUnavailable);
            self.provoked.store(reason.into(), Ordering::Relaxed);
        }
        self.hook(hook, &variables).await
    }

    /// From now on the cloud ends with this reason what the RPC asks of it.
    pub(crate) async fn provoke(&self, reason: ErrorReason, rpc: &str) -> Outcome {
        let told = Variables::new().with("REASON", reason.wire_name()).with("METHOD", rpc);
        self.steer("provoke-error", told).await.map(drop)
    }

    /// Lets the cloud refuse what the RPC asks of it, with an error that does not concern whether the object is there.
    pub(crate) async fn provoke_refusal(&self, rpc: &str) -> Outcome {
        match self.provoke(ErrorReason::ConcurrentOperation, rpc).await {
            Ok(()) => Ok(()),
            // Not every cloud has such an error.
            Err(_) => self.provoke(ErrorReason::CloudPermissionDenied, rpc).await,
        }
    }

    /// Runs a hook that needs no undoing.
    pub(crate) async fn hook(&self, hook: &str, variables: &Variables) -> Result<Value, Stop> {
        self.scenario().hook(hook, variables).await.map_err(not_run)
    }

    /// Creates a hosted cluster with this name, which is deleted when the case ends. Returns the address of its control
    /// plane.
    pub(crate) async fn hosted_cluster(&self, name: &str) -> Result<String, Stop> {
        let told = Variables::new().with("NAME", name);
        self.register_hook("delete-cluster", told.clone())?;
        let made = first(self.hook("create-cluster", &told).await?);
        Ok(made.get("host").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Creates a volume, which is deleted when the case ends. Returns plugin and id.
    pub(crate) async fn volume(&self) -> Result<(String, String), Stop> {
        let name = self.name();
        self.register_hook("delete-volume", Variables::new().with("NAME", &name).with("VOLUME_ID", ""))?;
        let made = first(self.hook("create-volume", &Variables::new().with("NAME", &name)).await?);
        let text = |key: &str| made.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (plugin, id) = (text("plugin"), text("volume_id"));
        if plugin.is_empty() || id.is_empty() {
            return Err(Stop::NotRun(format!("hook create-volume printed no plugin and volume_id: {made}")));
        }
        self.register_hook("delete-volume", Variables::new().with("NAME", &name).with("VOLUME_ID", &id))?;
        Ok((plugin, id))
    }

    /// Slows the cloud down, so that calls meet, where the scenario can.
    pub(crate) async fn slow_if_it_can_be(&self) -> Outcome {
        match self.scenario().lacks(&[SLOW]) {
            None => self.steer(SLOW, Variables::new()).await.map(drop),
            Some(_) => Ok(()),
        }
    }

    /// Undoes at once what a hook disturbed, if the scenario has that hook.
    pub(crate) async fn restore(&self, hook: &str) -> Outcome {
        match undoing(hook).filter(|undo| self.scenario().lacks(&[undo]).is_none()) {
            Some(undo) => {
                self.hook(undo, &Variables::new()).await?;
                self.provoked.store(0, Ordering::Relaxed);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// The object that a hook printed, alone or in a list of one.
pub(super) fn first(printed: Value) -> Value {
    match printed {
        Value::Array(several) => several.into_iter().next().unwrap_or_default(),
        one => one,
    }
}

/// A failing hook is not the provider's fault.
fn not_run(error: HookError) -> Stop {
    Stop::NotRun(error.to_string())
}

impl Trial {
    /// Runs a hook that restarts the provider, and waits until another process answers; its start is part of the hook.
    pub(crate) async fn restart(&self, hook: &str) -> Outcome {
        let before = self.epoch().await.ok();
        self.hook(hook, &Variables::new()).await?;
        self.eventually_within(
            self.scenario().hook_timeout,
            "a provider of another process epoch",
            async || {
                let now = self.epoch().await;
                Ok(match now {
                    Ok(epoch) if Some(&epoch) != before.as_ref() => Ok(()),
                    other => Err(format!("{other:?}")),
                })
            },
        )
        .await?;
        self.session.lead_if_it_waits().await;
        Ok(())
    }

    async fn epoch(&self) -> Result<String, String> {
        let hello = super::within(GetInfoRequest::default(), std::time::Duration::from_secs(2));
        let answer = self.discovery().get_info(hello).await;
        answer.map(|answer| answer.into_inner().process_epoch).map_err(|status| in_words(&status))
    }
}
