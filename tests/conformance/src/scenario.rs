//! The scenario: how long things take, what must never be revealed, and how to control the cloud.
//!
//! In: a vendor's YAML file. Out: a [`Scenario`], whose hooks are commands that the suite runs. [`HOOKS`] says what a
//! hook receives and must print; `docs/conformance.md` is the reference.

mod duration;
mod hook;
pub(crate) mod hooks;

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

pub use hook::{HookError, Variables};
pub use hooks::{HOOKS, HookInfo};

/// How to control the cloud behind the provider, and how long things take in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Scenario {
    /// How long a change may take to become visible.
    #[serde(with = "duration")]
    pub settle: Duration,
    /// The deadline of calls in cases that do not test deadlines; without it, that of a host.
    #[serde(deserialize_with = "duration::deserialize_some")]
    pub call_deadline: Option<Duration>,
    /// A case is not run if it would have to wait longer than this for something advertised.
    #[serde(with = "duration")]
    pub max_wait: Duration,
    /// How long all calls of a run may wait for what the provider says is temporary: throttling, overload, a conflict.
    #[serde(with = "duration")]
    pub patience: Duration,
    /// How long a hook may take.
    #[serde(with = "duration")]
    pub hook_timeout: Duration,
    /// How long this cloud takes for a new balancer: for the estimate, and if it takes any time, several are made at once.
    #[serde(with = "duration")]
    pub balancer_takes: Duration,
    /// How long the hook `create-instance` takes: for the estimate alone.
    #[serde(with = "duration")]
    pub instance_takes: Duration,
    /// How often to repeat a mutation that must be idempotent.
    pub repeats: usize,
    /// Texts that must never be in an answer: credentials of the provider.
    pub secrets: Vec<String>,
    /// An SSH public key that the cloud accepts.
    pub ssh_public_key: Option<String>,
    /// Annotations of every Service that the suite creates, for clouds that always need them.
    pub service_annotations: BTreeMap<String, String>,
    /// `spec.loadBalancerClass` of every Service that the suite creates.
    pub load_balancer_class: String,
    /// Commands by the name of the hook.
    pub hooks: BTreeMap<String, String>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(10),
            call_deadline: None,
            max_wait: Duration::from_secs(45),
            patience: Duration::from_secs(600),
            hook_timeout: Duration::from_secs(120),
            balancer_takes: Duration::ZERO,
            instance_takes: Duration::ZERO,
            repeats: 10,
            secrets: Vec::new(),
            ssh_public_key: None,
            service_annotations: BTreeMap::new(),
            load_balancer_class: String::new(),
            hooks: BTreeMap::new(),
        }
    }
}

impl Scenario {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    ///
    /// The file is missing or invalid, or it names an unknown hook.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read scenario {}", path.display()))?;
        Self::from_yaml(&text).with_context(|| format!("scenario {} makes no sense", path.display()))
    }

    /// Parses a scenario.
    ///
    /// # Errors
    ///
    /// The text is invalid, or it names an unknown hook.
    pub fn from_yaml(text: &str) -> Result<Self> {
        let scenario: Self = serde_saphyr::from_str(text)?;
        if let Some(name) = scenario.hooks.keys().find(|name| hooks::named(name).is_none()) {
            let known: Vec<_> = HOOKS.iter().map(|hook| hook.name).collect();
            bail!("{name:?} is no hook; known are {}", known.join(", "));
        }
        Ok(scenario)
    }

    /// The first of these hooks that is missing.
    pub fn lacks(&self, hooks: &[&'static str]) -> Option<&'static str> {
        hooks.iter().copied().find(|name| !self.hooks.contains_key(*name))
    }

    /// Runs a hook and returns its output.
    ///
    /// # Errors
    ///
    /// There is no such hook, it fails, or it does not print JSON.
    pub async fn hook(&self, name: &str, variables: &Variables) -> Result<serde_json::Value, HookError> {
        let command = self.hooks.get(name).ok_or_else(|| HookError::Missing { hook: name.to_owned() })?;
        let prints = hooks::named(name).is_some_and(|hook| !hook.prints.is_empty());
        hook::run(name, command, variables, self.hook_timeout, prints).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_read_and_slips_are_told() {
        let scenario = Scenario::from_yaml("settle: 500ms\nhooks: {create-instance: 'echo {}'}\n").unwrap();
        assert_eq!(scenario.settle, Duration::from_millis(500));
        assert_eq!(scenario.lacks(&["create-instance", "make-drift"]), Some("make-drift"));
        for (text, wanted) in [
            ("hooks: {fly: x}", "\"fly\" is no hook; known are create-instance"),
            ("settle: soon", "soon"),
            ("setle: 1s", "setle"),
        ] {
            let error = format!("{:#}", Scenario::from_yaml(text).unwrap_err());
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn what_a_hook_has_begun_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            "hook-timeout: 200ms\nhooks:\n  make-drift: '(sleep 4; touch \"$CONFORMANCE_NAME\") & wait'\n";
        let late = folder.path().join("late");
        let variables = Variables::new().with("NAME", late.to_str().unwrap());
        let error = Scenario::from_yaml(text).unwrap().hook("make-drift", &variables).await.unwrap_err();
        assert!(matches!(error, HookError::TooLong { .. }), "{error}");
        tokio::time::sleep(Duration::from_millis(4500)).await;
        assert!(!late.exists());
    }

    #[tokio::test]
    async fn hooks_get_variables_and_print_json() {
        let text = "hooks:\n  create-instance: 'echo \"{\\\"name\\\": \\\"$CONFORMANCE_NAME\\\"}\"'\n  make-drift: 'echo no >&2; exit 3'\n  \
                    create-volume: 'echo words'\n  delete-volume: \"echo gone >&2;\\n exit 7\"\n  stop-instance: 'echo words'\n";
        let scenario = Scenario::from_yaml(text).unwrap();
        let variables = Variables::new().with("NAME", "n1");
        let printed = scenario.hook("create-instance", &variables).await.unwrap();
        assert_eq!(printed["name"], "n1");
        assert!(scenario.hook("stop-instance", &variables).await.unwrap().is_null());
        for (hook, wanted) in [
            ("make-drift", "hook make-drift says that it cannot (exit code 3): no"),
            ("create-volume", "hook create-volume printed no JSON: words; its command: echo words"),
            (
                "delete-volume",
                "hook delete-volume failed (exit status: 7): gone; its command: echo gone >&2; exit 7",
            ),
            ("terminate-instance", "no hook terminate-instance"),
        ] {
            assert_eq!(scenario.hook(hook, &variables).await.unwrap_err().to_string(), wanted);
        }
    }
}
