//! Parses faults from text and JSON. An unknown key, rule, reason, code or RPC is an error.

use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cloudprovider_sdk::{code_name, proto};
use serde::Deserialize as _;
use serde_json::{Map, Value};
use tonic::Code;

use super::{Fault, KINDS};
use crate::{breach, contract::method, duration};

/// Keys of every kind.
const COMMON: [&str; 6] = ["kind", "method", "on", "times", "skip", "probability"];
/// Keys that a kind cannot do without.
const REQUIRED: [&str; 5] = ["time", "reason", "code", "state", "rule"];

impl TryFrom<Value> for Fault {
    type Error = anyhow::Error;

    fn try_from(value: Value) -> Result<Self> {
        let Value::Object(fields) = &value else { bail!("a fault is a JSON object with a kind") };
        let name = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            bail!("{name:?} is not a kind of fault; known kinds are {}", known.join(", "));
        };
        let keys = [kind.choices, &COMMON].concat();
        if let Some(key) = fields.keys().find(|key| !keys.contains(&key.as_str())) {
            bail!("{key:?} is not a key of {name}; known keys are {}", keys.join(", "));
        }
        let missing = |key: &&&str| REQUIRED.contains(key) && !fields.contains_key(**key);
        if let Some(key) = kind.choices.iter().find(missing) {
            bail!("fault {name} needs {key}");
        }
        check(Self::deserialize(&value).map_err(|error| anyhow!("fault {name}: {error}"))?)
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') {
            let value = serde_json::from_str::<Value>(text);
            return Self::try_from(value.map_err(|error| anyhow!("{text:?} is not JSON: {error}"))?);
        }
        let mut parts = text.split(',').map(str::trim);
        let mut fields = Map::new();
        fields.insert("kind".into(), parts.next().unwrap_or_default().into());
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, "true"));
            let key = key.replace('-', "_");
            let value = value_of(&key, value);
            fields.insert(key, value);
        }
        Self::try_from(Value::Object(fields))
    }
}

/// Some keys have numbers or booleans; all others have text.
fn value_of(key: &str, text: &str) -> Value {
    match key {
        "times" | "skip" | "frames" | "probability" | "after_work" | "silent" => {
            serde_json::from_str(text).unwrap_or_else(|_| text.into())
        }
        "on" => text.split(';').map(Value::from).collect(),
        _ => text.into(),
    }
}

fn check(mut fault: Fault) -> Result<Fault> {
    let known = |text: &str| {
        let wrong = || format!("{text:?} is not an RPC of the contract; use for example EnsureLoadBalancer");
        method::named(text).with_context(wrong)
    };
    let method = fault.method.as_deref().map(known).transpose()?;
    let share = fault.probability.unwrap_or_default();
    ensure!((0.0..=1.0).contains(&share), "probability must be from 0 to 1");
    for (key, value) in &fault.options.0 {
        check_option(key, value).map_err(|why| anyhow!("fault {}: {why}", fault.kind))?;
    }
    let Some(effect) = fault.effect() else {
        let known: Vec<_> = breach::all().map(|breach| breach.name).collect();
        let rule = fault.options.text("rule");
        bail!("{rule:?} is not a breach; known rules are {}", known.join(", "));
    };
    let variant = fault.options.text("variant");
    if !variant.is_empty() && !effect.choices.contains(&variant) {
        let known = effect.choices.join(", ");
        bail!("{variant:?} is not a variant of {}; known variants are: {known}", effect.name);
    }
    if let Some(method) = method.filter(|method| !effect.fits(method)) {
        bail!("{} does not affect {}", fault.label(), method.name);
    }
    fault.method = method.map(|method| method.name.to_owned());
    Ok(fault)
}

/// Whether the value fits the key.
fn check_option(key: &str, value: &Value) -> Result<(), String> {
    let wanted = match (key, value) {
        ("after_work" | "silent", Value::Bool(_)) => return Ok(()),
        ("after_work" | "silent", _) => "true or false",
        ("frames", _) if value.is_u64() => return Ok(()),
        ("frames", _) => "a number",
        (_, Value::String(text)) => return check_text(key, text),
        _ => "a text",
    };
    Err(format!("{key} is {value}; use {wanted}"))
}

fn check_text(key: &str, text: &str) -> Result<(), String> {
    match key {
        "time" | "jitter" | "retry_after" => duration::parse(text).map(drop),
        "reason" if reason_named(text).is_none() => {
            Err(format!("{text:?} is not a reason of the contract; use for example RATE_LIMITED"))
        }
        "code" if code_named(text).is_none() => {
            Err(format!("{text:?} is not a gRPC error code; use for example UNAVAILABLE"))
        }
        "state" if instance_state_named(text).is_none() => {
            Err(format!("{text:?} is not a state such as STOPPED, nor a number"))
        }
        _ => Ok(()),
    }
}

/// The code of this name, other than OK.
pub(super) fn code_named(name: &str) -> Option<Code> {
    (1..=16).map(Code::from_i32).find(|code| code_name(*code).eq_ignore_ascii_case(name))
}

/// The reason of this name.
pub(super) fn reason_named(name: &str) -> Option<proto::ErrorReason> {
    proto::ErrorReason::from_wire_name(&name.to_ascii_uppercase())
}

/// The number of an instance state, by name or number.
pub(super) fn instance_state_named(name: &str) -> Option<i32> {
    let by_name =
        || proto::InstanceState::from_str_name(&format!("INSTANCE_STATE_{}", name.to_ascii_uppercase()));
    name.parse().ok().or_else(|| by_name().map(i32::from))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn fault(text: &str) -> Fault {
        text.parse().unwrap()
    }

    #[test]
    fn text_and_json_say_the_same() {
        let text = "error,reason=RATE_LIMITED,retry-after=2s,method=ensureloadbalancer,times=3,on=a/b;c*";
        let parsed = fault(text);
        assert_eq!(parsed.options.time("retry_after"), Some(Duration::from_secs(2)));
        assert_eq!(parsed.method.as_deref(), Some("EnsureLoadBalancer"));
        assert_eq!(
            (parsed.times, parsed.on.as_slice()),
            (Some(3), ["a/b".to_owned(), "c*".to_owned()].as_slice())
        );
        let json = serde_json::to_string(&fault(text)).unwrap();
        assert_eq!(fault(&json), fault(text));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (text, wanted) in [
            ("storm", "\"storm\" is not a kind of fault; known kinds are latency"),
            ("hang,reason=X", "\"reason\" is not a key of hang; known keys are kind, method"),
            ("error", "fault error needs reason"),
            ("error,reason=NO_SUCH", "fault error: \"NO_SUCH\" is not a reason of the contract"),
            ("status,code=OK", "fault status: \"OK\" is not a gRPC error code"),
            ("state,state=GLOWING", "fault state: \"GLOWING\" is not a state"),
            ("hang,method=Fly", "\"Fly\" is not an RPC of the contract"),
            ("hang,probability=2", "probability must be from 0 to 1"),
            ("hang,times=x", "fault hang: invalid type"),
            ("crash,after-work=soon", "fault crash: after_work is \"soon\"; use true or false"),
            ("latency,time=soon", "fault latency: \"soon\" is not a duration"),
            ("breach,rule=none", "\"none\" is not a breach; known rules are"),
            (
                "breach,rule=batch-keys,variant=none",
                "\"none\" is not a variant of batch-keys; known variants are: missing",
            ),
            ("absent,method=GetStatus", "absent does not affect GetStatus"),
            ("{", "\"{\" is not JSON"),
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{text}: {error}");
        }
    }
}
