//! The annotations of Services, read as the published provider reads them.

use std::collections::{BTreeMap, HashMap};

use cloudprovider_sdk::proto::{Protocol, Service, ServicePort};
use cloudprovider_sdk::{ProviderError, Result};

use super::Texts;

const PREFIX: &str = "service.beta.kubernetes.io/";

pub(in crate::balancers) struct Annotations<'a>(&'a HashMap<String, String>);

/// Which kind of balancer a Service asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::balancers) enum Kind<'a> {
    Network,
    Classic,
    /// One of another controller's.
    Elsewhere(&'a str),
}

impl<'a> Annotations<'a> {
    pub(in crate::balancers) fn of(service: &'a Service) -> Self {
        Self(&service.annotations)
    }

    pub(in crate::balancers) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(&format!("{PREFIX}{name}")).map(String::as_str)
    }

    /// What is wrong with an annotation.
    pub(in crate::balancers) fn error(name: &str, why: &str) -> ProviderError {
        ProviderError::invalid_configuration(&format!("metadata.annotations[{PREFIX}{name}]"), why)
    }

    pub(in crate::balancers) fn kind(&self, network_by_default: bool) -> Kind<'a> {
        match self.get("aws-load-balancer-type") {
            Some("nlb") => Kind::Network,
            Some("external" | "nlb-ip") => Kind::Elsewhere("aws-load-balancer-controller"),
            None | Some("") if network_by_default => Kind::Network,
            // Any other value is a classic balancer for the published provider.
            _ => Kind::Classic,
        }
    }

    /// Whether the Service says which kind it wants.
    pub(in crate::balancers) fn names_kind(&self) -> bool {
        self.get("aws-load-balancer-type").is_some_and(|kind| !kind.is_empty())
    }

    /// Whatever is not "false" means yes.
    pub(in crate::balancers) fn is_internal(&self) -> bool {
        !matches!(self.get("aws-load-balancer-internal"), None | Some("" | "false"))
    }

    /// Texts between commas.
    pub(in crate::balancers) fn list(&self, name: &str) -> Vec<String> {
        let all = self.get(name).unwrap_or_default().split(',').map(str::trim);
        all.filter(|one| !one.is_empty()).map(str::to_owned).collect()
    }

    /// `key=value`, `key=` or `key`, between commas. What follows a second `=` is lost, as it always was.
    pub(in crate::balancers) fn pairs(&self, name: &str) -> Texts {
        let mut pairs = BTreeMap::new();
        for pair in self.get(name).unwrap_or_default().trim().split(',') {
            let mut parts = pair.trim().split('=');
            if let Some(key) = parts.next().filter(|key| !key.is_empty()) {
                pairs.insert(key.to_owned(), parts.next().unwrap_or_default().to_owned());
            }
        }
        pairs
    }

    /// As Go reads it.
    pub(in crate::balancers) fn bool(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            Some("1" | "t" | "T" | "TRUE" | "true" | "True") => Ok(true),
            None | Some("" | "0" | "f" | "F" | "FALSE" | "false" | "False") => Ok(false),
            Some(other) => Err(Self::error(name, &format!("{other:?} is neither true nor false"))),
        }
    }

    pub(in crate::balancers) fn number(&self, name: &str, default: i32) -> Result<i32> {
        let Some(text) = self.get(name) else { return Ok(default) };
        text.parse().map_err(|_not_one| Self::error(name, &format!("{text:?} is no number")))
    }

    /// Attributes of the balancer.
    pub(in crate::balancers) fn attributes(&self) -> Result<Texts> {
        let cross = self.bool("aws-load-balancer-cross-zone-load-balancing-enabled")?;
        let logs = self.bool("aws-load-balancer-access-log-enabled")?;
        let mut attributes = vec![
            ("load_balancing.cross_zone.enabled", cross.to_string()),
            ("access_logs.s3.enabled", logs.to_string()),
        ];
        if logs {
            for (key, annotation) in [
                ("access_logs.s3.bucket", "aws-load-balancer-access-log-s3-bucket-name"),
                ("access_logs.s3.prefix", "aws-load-balancer-access-log-s3-bucket-prefix"),
            ] {
                attributes.push((key, self.get(annotation).unwrap_or_default().to_owned()));
            }
        }
        Ok(attributes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Attributes of the target groups that the user set.
    pub(in crate::balancers) fn group_attributes(&self, any_udp: bool) -> Result<Texts> {
        let name = "aws-load-balancer-target-group-attributes";
        let attributes = self.pairs(name);
        for (key, value) in &attributes {
            if !matches!(&**key, "preserve_client_ip.enabled" | "proxy_protocol_v2.enabled") {
                let why = format!(
                    "{key:?} cannot be set; use preserve_client_ip.enabled or proxy_protocol_v2.enabled"
                );
                return Err(Self::error(name, &why));
            }
            if !matches!(&**value, "true" | "false") {
                return Err(Self::error(name, &format!("{key}={value:?} is neither true nor false")));
            }
            if any_udp && key == "preserve_client_ip.enabled" && value == "false" {
                return Err(Self::error(name, "with UDP the client's address is always preserved"));
            }
        }
        Ok(attributes)
    }

    /// The certificate of a port, if it has one.
    pub(in crate::balancers) fn certificate(&self, port: &ServicePort) -> Option<String> {
        let certificate = self.get("aws-load-balancer-ssl-cert").unwrap_or_default();
        if certificate.is_empty() || port.protocol() == Protocol::Udp {
            return None;
        }
        let ports = self.get("aws-load-balancer-ssl-ports").unwrap_or_default().trim();
        let is_named = |one: &str| one.parse::<i32>().map_or(one == port.name, |number| number == port.port);
        (matches!(ports, "" | "*") || ports.split(',').map(str::trim).any(is_named))
            .then(|| certificate.to_owned())
    }

    /// The name of AWS's policy for TLS, if the user chose one.
    pub(in crate::balancers) fn tls_policy(&self) -> String {
        self.get("aws-load-balancer-ssl-negotiation-policy").unwrap_or_default().to_owned()
    }

    pub(in crate::balancers) fn speaks_tls_to_nodes(&self) -> bool {
        self.get("aws-load-balancer-backend-protocol") == Some("ssl")
    }
}
