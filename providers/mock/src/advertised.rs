//! What the mock advertises; tests shrink limits and intervals with `--advertise key=value,…`.

use std::{str::FromStr, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use cloudprovider_sdk::{contract::defaults, proto};

use crate::{
    cloud::{ANNOTATION_PREFIX, NODE_ANNOTATIONS, Settings, WRITTEN_PREFIX},
    duration,
};

/// What the mock advertises beyond its services. Zero or absent means the contract's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advertised {
    limits: proto::Limits,
    intervals: proto::Intervals,
    without: Vec<proto::Capability>,
    no_default_class: bool,
    /// A lookup by the node's name misses no instance.
    pub keyed_by_name: bool,
    node_labels: Vec<String>,
    load_balancer_settings: String,
}

const KEYS: &str = "max-batch-instances, max-batch-load-balancers, max-batch-routes, max-batch-volumes, page-size, \
    max-message-bytes, max-concurrent-reads, max-concurrent-mutations, reads-per-second, mutations-per-second, \
    deadline.METHOD, resume-token-validity, bookmark-interval, watch-max-age, instance-sweep, \
    without, default-class, keyed-by-name, node-label, \
    load-balancer-settings";

impl FromStr for Advertised {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut advertised = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').with_context(|| format!("{part:?} is not key=value"))?;
            let (key, value) = (key.trim(), value.trim());
            let misfit = |remedy| anyhow!("{value:?} does not fit {key}; use {remedy}");
            let known = advertised.set(key, value).map_err(misfit)?;
            ensure!(known, "{key:?} cannot be advertised; known keys are {KEYS}");
        }
        Ok(advertised)
    }
}

impl Advertised {
    /// Whether the key is known; the error says what the value should be.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, &'static str> {
        let (limits, intervals) = (&mut self.limits, &mut self.intervals);
        if let Some(method) = key.strip_prefix("deadline.") {
            let deadline = Some(time(value)?);
            limits.deadlines.push(proto::MethodDeadline { method: method.to_owned(), deadline });
            return Ok(true);
        }
        match key {
            "max-batch-instances" => limits.max_batch_instances = number(value)?,
            "max-batch-load-balancers" => limits.max_batch_load_balancers = number(value)?,
            "max-batch-routes" => limits.max_batch_routes = number(value)?,
            "max-batch-volumes" => limits.max_batch_volumes = number(value)?,
            "page-size" => limits.max_page_size = number(value)?,
            "max-message-bytes" => limits.max_message_bytes = number(value)?,
            "max-concurrent-reads" => limits.max_concurrent_reads = number(value)?,
            "max-concurrent-mutations" => limits.max_concurrent_mutations = number(value)?,
            "reads-per-second" => limits.reads = Some(rate(value)?),
            "mutations-per-second" => limits.mutations = Some(rate(value)?),
            "resume-token-validity" => intervals.resume_token_validity = Some(time(value)?),
            "bookmark-interval" => intervals.bookmark_interval = Some(time(value)?),
            "watch-max-age" => intervals.watch_max_age = Some(time(value)?),
            "instance-sweep" => intervals.instance_sweep = Some(time(value)?),
            "without" => self.without.push(capability(value)?),
            "node-label" => self.node_labels.push(value.to_owned()),
            "load-balancer-settings" => self.load_balancer_settings = value.to_owned(),
            "default-class" => self.no_default_class = !truth(value)?,
            "keyed-by-name" => self.keyed_by_name = truth(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How long a resume token is valid.
    pub fn resume_token_validity(&self) -> Duration {
        or(self.intervals.resume_token_validity, defaults::TOKEN_VALIDITY)
    }

    /// The maximum time between two bookmarks.
    pub fn bookmark_interval(&self) -> Duration {
        or(self.intervals.bookmark_interval, defaults::BOOKMARK_INTERVAL)
    }

    /// The maximum size of a message in bytes.
    pub fn message_bytes(&self) -> usize {
        let bytes = self.limits.max_message_bytes;
        (if bytes == 0 { defaults::MAX_MESSAGE_BYTES } else { bytes }) as usize
    }

    /// Whether the capability was not removed with `without`: tags that keep a digest, or routes that record an owner.
    pub(crate) fn has(&self, capability: proto::Capability) -> bool {
        !self.without.contains(&capability)
    }

    /// The answer to `GetCapabilities`, without leadership, which the SDK adds.
    pub fn answer(&self, settings: &Settings) -> proto::GetCapabilitiesResponse {
        let mut capabilities = vec![
            proto::Capability::InstancesWatch,
            proto::Capability::InstancesList,
            proto::Capability::SshKeys,
            proto::Capability::Adoption,
            proto::Capability::LoadBalancerDrift,
            proto::Capability::DurableDigest,
            proto::Capability::RouteOwnership,
        ];
        if settings.allot_pod_cidrs {
            capabilities.push(proto::Capability::InstancePodCidrs);
        }
        if self.keyed_by_name {
            capabilities.push(proto::Capability::InstancesKeyedByName);
        }
        capabilities.retain(|capability| self.has(*capability));
        proto::GetCapabilitiesResponse {
            capabilities: capabilities.into_iter().map(i32::from).collect(),
            limits: Some(self.limits.clone()),
            intervals: Some(self.intervals),
            wants: Some(self.wants()),
            load_balancer_classes: vec!["mock".to_owned()],
            no_default_load_balancer_class: self.no_default_class,
        }
    }

    fn wants(&self) -> proto::Wants {
        let identity = proto::NodeFields {
            system_uuid: true,
            provided_node_ips: true,
            addresses: true,
            labels: self.node_labels.clone(),
            ..proto::NodeFields::default()
        };
        let annotations = vec![ANNOTATION_PREFIX.to_owned()];
        proto::Wants {
            identity: Some(identity),
            backend: Some(proto::NodeFields::default()),
            route_target: Some(proto::NodeFields::default()),
            service: Some(proto::ServiceFields { annotations, ..proto::ServiceFields::default() }),
            service_annotation_writes: vec![WRITTEN_PREFIX.to_owned()],
            service_condition_writes: Vec::new(),
            node_annotation_writes: vec![NODE_ANNOTATIONS.to_owned()],
            load_balancer_settings: match &*self.load_balancer_settings {
                "" => env!("CARGO_PKG_VERSION").to_owned(),
                settings => settings.to_owned(),
            },
        }
    }
}

fn number(value: &str) -> Result<u32, &'static str> {
    value.parse().map_err(|_| "a whole number")
}

fn rate(value: &str) -> Result<proto::RateLimit, &'static str> {
    let per_second: f64 = value.parse().map_err(|_| "a number")?;
    Ok(proto::RateLimit { per_second, burst: per_second.ceil().clamp(1.0, 1e6) as u32 })
}

fn time(value: &str) -> Result<prost_types::Duration, &'static str> {
    let time = duration::parse(value).map_err(|_| "a duration such as 50ms or 5m")?;
    time.try_into().map_err(|_| "a shorter duration")
}

fn truth(value: &str) -> Result<bool, &'static str> {
    value.parse().map_err(|_| "true or false")
}

fn capability(value: &str) -> Result<proto::Capability, &'static str> {
    let name = format!("CAPABILITY_{}", value.replace('-', "_").to_ascii_uppercase());
    proto::Capability::from_str_name(&name).ok_or("a capability such as instances-watch")
}

fn or(value: Option<prost_types::Duration>, default: Duration) -> Duration {
    value
        .and_then(|value| value.try_into().ok())
        .filter(|value: &Duration| !value.is_zero())
        .unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_intervals_are_shrunk_by_text() {
        let text = "max-batch-instances=50, page-size=7,bookmark-interval=50ms,without=instances-watch,\
                    deadline.EnsureLoadBalancer=3s";
        let advertised: Advertised = text.parse().unwrap();
        let answer = advertised.answer(&Settings::default());
        let limits = answer.limits.unwrap();
        assert_eq!((limits.max_batch_instances, limits.max_page_size), (50, 7));
        assert_eq!(limits.deadlines[0].method, "EnsureLoadBalancer");
        assert_eq!(advertised.bookmark_interval(), Duration::from_millis(50));
        assert!(!answer.capabilities.contains(&proto::Capability::InstancesWatch.into()));
        assert!(answer.capabilities.contains(&proto::Capability::InstancePodCidrs.into()));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, wanted) in [
            ("page-size", "\"page-size\" is not key=value"),
            ("page-size=x", "\"x\" does not fit page-size; use a whole number"),
            (
                "bookmark-interval=soon",
                "\"soon\" does not fit bookmark-interval; use a duration such as 50ms or 5m",
            ),
            ("without=wings", "\"wings\" does not fit without; use a capability such as instances-watch"),
        ] {
            assert_eq!(text.parse::<Advertised>().unwrap_err().to_string(), wanted);
        }
        let unknown = "sizes=1".parse::<Advertised>().unwrap_err().to_string();
        assert!(unknown.starts_with("\"sizes\" cannot be advertised; known keys are max-batch-instances"));
    }
}
