//! What the mock advertises; tests shrink limits and intervals with `--advertise key=value,…`.

use std::{str::FromStr, time::Duration};

use cloudprovider_sdk::{
    Leaders,
    contract::defaults,
    proto::{
        Capability, GetCapabilitiesResponse, Intervals, Limits, MethodDeadline, NodeFields, RateLimit,
        ServiceFields, Wants,
    },
};

use crate::{
    cloud::{ANNOTATION_PREFIX, Settings, WRITTEN_PREFIX},
    duration,
};

/// What is advertised beyond the services. Zero and absent: the contract's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advertised {
    limits: Limits,
    intervals: Intervals,
    without: Vec<Capability>,
    no_default_class: bool,
    keyed_by_name: bool,
    node_labels: Vec<String>,
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdvertisedError {
    /// No key and value.
    #[error("{text:?} is not key=value")]
    Shape {
        /// The text.
        text: String,
    },
    /// An unknown key.
    #[error("{key:?} is nothing that can be advertised; known are {}", KEYS.join(", "))]
    Key {
        /// The key.
        key: String,
    },
    /// A value that does not fit.
    #[error("{value:?} does not fit {key}; use {remedy}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What fits.
        remedy: &'static str,
    },
}

const KEYS: [&str; 20] = [
    "max-batch-instances",
    "max-batch-load-balancers",
    "max-batch-routes",
    "max-batch-volumes",
    "page-size",
    "max-message-bytes",
    "max-concurrent-reads",
    "max-concurrent-mutations",
    "reads-per-second",
    "mutations-per-second",
    "deadline.METHOD",
    "page-token-validity",
    "resume-token-validity",
    "bookmark-interval",
    "watch-max-age",
    "instance-sweep",
    "without",
    "default-class",
    "keyed-by-name",
    "node-label",
];

impl FromStr for Advertised {
    type Err = AdvertisedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut advertised = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| AdvertisedError::Shape { text: part.to_owned() })?;
            advertised.set(key.trim(), value.trim())?;
        }
        Ok(advertised)
    }
}

impl Advertised {
    fn set(&mut self, key: &str, value: &str) -> Result<(), AdvertisedError> {
        let (limits, intervals) = (&mut self.limits, &mut self.intervals);
        if let Some(method) = key.strip_prefix("deadline.") {
            let deadline = Some(time(key, value)?);
            limits.deadlines.push(MethodDeadline { method: method.to_owned(), deadline });
            return Ok(());
        }
        match key {
            "max-batch-instances" => limits.max_batch_instances = number(key, value)?,
            "max-batch-load-balancers" => limits.max_batch_load_balancers = number(key, value)?,
            "max-batch-routes" => limits.max_batch_routes = number(key, value)?,
            "max-batch-volumes" => limits.max_batch_volumes = number(key, value)?,
            "page-size" => limits.max_page_size = number(key, value)?,
            "max-message-bytes" => limits.max_message_bytes = number(key, value)?,
            "max-concurrent-reads" => limits.max_concurrent_reads = number(key, value)?,
            "max-concurrent-mutations" => limits.max_concurrent_mutations = number(key, value)?,
            "reads-per-second" => limits.reads = Some(rate(key, value)?),
            "mutations-per-second" => limits.mutations = Some(rate(key, value)?),
            "page-token-validity" => intervals.page_token_validity = Some(time(key, value)?),
            "resume-token-validity" => intervals.resume_token_validity = Some(time(key, value)?),
            "bookmark-interval" => intervals.bookmark_interval = Some(time(key, value)?),
            "watch-max-age" => intervals.watch_max_age = Some(time(key, value)?),
            "instance-sweep" => intervals.instance_sweep = Some(time(key, value)?),
            "without" => self.without.push(capability(key, value)?),
            "node-label" => self.node_labels.push(value.to_owned()),
            "default-class" => self.no_default_class = !truth(key, value)?,
            "keyed-by-name" => self.keyed_by_name = truth(key, value)?,
            _ => return Err(AdvertisedError::Key { key: key.to_owned() }),
        }
        Ok(())
    }

    /// How long a page token is valid.
    #[must_use]
    pub fn page_token_validity(&self) -> Duration {
        or(self.intervals.page_token_validity, defaults::TOKEN_VALIDITY)
    }

    /// How long a resume token is valid.
    #[must_use]
    pub fn resume_token_validity(&self) -> Duration {
        or(self.intervals.resume_token_validity, defaults::TOKEN_VALIDITY)
    }

    /// At least this often a bookmark comes.
    #[must_use]
    pub fn bookmark_interval(&self) -> Duration {
        or(self.intervals.bookmark_interval, defaults::BOOKMARK_INTERVAL)
    }

    /// Items of a page at most.
    #[must_use]
    pub fn page_size(&self) -> usize {
        let size =
            if self.limits.max_page_size == 0 { defaults::MAX_PAGE_SIZE } else { self.limits.max_page_size };
        size as usize
    }

    /// Bytes of a message at most.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        let bytes = self.limits.max_message_bytes;
        (if bytes == 0 { defaults::MAX_MESSAGE_BYTES } else { bytes }) as usize
    }

    /// How former leaders are refused: without `Lead` by their epochs, and without that not at all.
    #[must_use]
    pub fn leaders(&self) -> Leaders {
        let with = |capability| !self.without.contains(&capability);
        match (with(Capability::Leadership), with(Capability::Fencing)) {
            (true, _) => Leaders::Told,
            (false, true) => Leaders::Compared,
            (false, false) => Leaders::Ignored,
        }
    }

    /// Whether an instance is said to be looked up by its node's name without fail.
    #[must_use]
    pub fn keyed_by_name(&self) -> bool {
        self.keyed_by_name
    }

    /// Whether the cloud has tags to keep a digest in.
    #[must_use]
    pub fn durable_digests(&self) -> bool {
        !self.without.contains(&Capability::DurableDigest)
    }

    /// Whether routes have room for a tag.
    #[must_use]
    pub fn tagged_routes(&self) -> bool {
        !self.without.contains(&Capability::RouteOwnership)
    }

    /// The answer of `GetCapabilities`, but for leadership and fencing, which the SDK adds.
    #[must_use]
    pub fn answer(&self, settings: &Settings) -> GetCapabilitiesResponse {
        let mut capabilities = vec![
            Capability::InstancesWatch,
            Capability::InstancesList,
            Capability::SshKeys,
            Capability::Adoption,
            Capability::LoadBalancerDrift,
            Capability::DurableDigest,
            Capability::RouteOwnership,
        ];
        if settings.allot_pod_cidrs {
            capabilities.push(Capability::InstancePodCidrs);
        }
        if self.keyed_by_name {
            capabilities.push(Capability::InstancesKeyedByName);
        }
        capabilities.retain(|capability| !self.without.contains(capability));
        GetCapabilitiesResponse {
            capabilities: capabilities.into_iter().map(i32::from).collect(),
            limits: Some(self.limits.clone()),
            intervals: Some(self.intervals),
            wants: Some(self.wants()),
            load_balancer_classes: vec!["mock".to_owned()],
            no_default_load_balancer_class: self.no_default_class,
        }
    }

    fn wants(&self) -> Wants {
        let identity = NodeFields {
            system_uuid: true,
            provided_node_ips: true,
            addresses: true,
            labels: self.node_labels.clone(),
            ..NodeFields::default()
        };
        let annotations = vec![ANNOTATION_PREFIX.to_owned()];
        Wants {
            identity: Some(identity),
            backend: Some(NodeFields::default()),
            route_target: Some(NodeFields::default()),
            service: Some(ServiceFields { annotations, ..ServiceFields::default() }),
            service_annotation_writes: vec![WRITTEN_PREFIX.to_owned()],
            service_condition_writes: Vec::new(),
        }
    }
}

fn wrong(key: &str, value: &str, remedy: &'static str) -> AdvertisedError {
    AdvertisedError::Value { key: key.to_owned(), value: value.to_owned(), remedy }
}

fn number(key: &str, value: &str) -> Result<u32, AdvertisedError> {
    value.parse().map_err(|_| wrong(key, value, "a whole number"))
}

fn rate(key: &str, value: &str) -> Result<RateLimit, AdvertisedError> {
    let per_second: f64 = value.parse().map_err(|_| wrong(key, value, "a number"))?;
    Ok(RateLimit { per_second, burst: per_second.ceil().clamp(1.0, 1e6) as u32 })
}

fn time(key: &str, value: &str) -> Result<prost_types::Duration, AdvertisedError> {
    let time = duration::parse(value).map_err(|_| wrong(key, value, "a duration such as 50ms or 5m"))?;
    time.try_into().map_err(|_| wrong(key, value, "a shorter duration"))
}

fn truth(key: &str, value: &str) -> Result<bool, AdvertisedError> {
    value.parse().map_err(|_| wrong(key, value, "true or false"))
}

fn capability(key: &str, value: &str) -> Result<Capability, AdvertisedError> {
    let name = format!("CAPABILITY_{}", value.replace('-', "_").to_ascii_uppercase());
    Capability::from_str_name(&name).ok_or_else(|| wrong(key, value, "a capability such as instances-watch"))
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
        assert_eq!((limits.max_batch_instances, limits.max_page_size, advertised.page_size()), (50, 7, 7));
        assert_eq!(limits.deadlines[0].method, "EnsureLoadBalancer");
        assert_eq!(advertised.bookmark_interval(), Duration::from_millis(50));
        assert!(!answer.capabilities.contains(&Capability::InstancesWatch.into()));
        assert!(answer.capabilities.contains(&Capability::InstancePodCidrs.into()));
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
        assert!(
            unknown.starts_with("\"sizes\" is nothing that can be advertised; known are max-batch-instances")
        );
    }
}
