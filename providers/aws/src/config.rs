//! `cloud.conf`, as the published provider reads it, but for one thing: what it ignores is an error here.
//!
//! In: the text of the file. Out: [`Config`]. Region, VPC and cluster that the file leaves out are found out by
//! [`crate::cloud`], which then knows a subnet, too.

mod gcfg;

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use regex_lite::Regex;

/// A family of addresses of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// What asks a node whether it serves a Service of external policy Cluster.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum HealthProbe {
    /// The Service's own port.
    #[default]
    OfService,
    OfKubeProxy {
        port: u16,
        path: String,
    },
}

/// What the file says. An empty text is one that it does not have.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Config {
    pub zone: String,
    pub region: String,
    pub vpc: String,
    pub role_arn: String,
    pub source_arn: String,
    pub cluster_tag: String,
    pub cluster_id: String,
    /// Whose addresses nodes get, in this order; IPv4 alone by default.
    pub node_families: Vec<Family>,
    /// The types whose nodes wait for their place in the network; AWS's documented ones by default.
    pub topology_types: String,
    pub overrides: BTreeMap<String, Override>,
    /// Has the routes to pods; the one with the cluster's tag by default.
    pub route_table: String,
    /// Where balancers go if every subnet of the network is another cluster's.
    pub subnet: String,
    /// The security group of all classic balancers; by default each has one of its own.
    pub shared_group: String,
    /// Nobody opens the nodes' security groups.
    pub closed_groups: bool,
    pub health: HealthProbe,
    /// The mode, port and path of the file, from which [`Self::health`] is made.
    pub health_texts: [String; 3],
    pub group_mode: String,
}

/// Another endpoint for one of AWS's services.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Override {
    /// The service's name in Go's SDK, for example `EC2`.
    pub service: String,
    pub region: String,
    pub url: String,
    pub signing_region: String,
    pub signing_method: String,
    pub signing_name: String,
}

impl Config {
    /// Reads the text of a `cloud.conf`.
    pub fn read(text: &str) -> Result<Self> {
        let mut config = Self::default();
        for gcfg::Variable { line, section, subsection, name, value } in gcfg::read(text)? {
            let known = match section.to_ascii_lowercase().as_str() {
                "global" if subsection.is_empty() => config.set(&name, value.clone()).map_err(|why| {
                    anyhow::anyhow!("line {line}: {name} = {:?}: {why}", value.unwrap_or_default())
                })?,
                "serviceoverride" => {
                    let one = config.overrides.entry(subsection.clone()).or_default();
                    one.set(&name, value.unwrap_or_default())
                }
                _ => bail!(
                    "line {line}: section {section:?} is unknown; use [Global] or [ServiceOverride \"1\"]"
                ),
            };
            ensure!(
                known,
                "line {line}: [{section}] has no setting {name:?}; remove it, or correct its name"
            );
        }
        config.check()?;
        Ok(config)
    }

    /// False if there is no such setting.
    fn set(&mut self, name: &str, value: Option<String>) -> Result<bool> {
        let value = value.unwrap_or_default();
        let text = match name.to_ascii_lowercase().as_str() {
            "zone" => &mut self.zone,
            "region" => &mut self.region,
            "vpc" => &mut self.vpc,
            "rolearn" => &mut self.role_arn,
            "sourcearn" => &mut self.source_arn,
            "kubernetesclustertag" => &mut self.cluster_tag,
            "kubernetesclusterid" => &mut self.cluster_id,
            "supportedtopologyinstancetypepattern" => &mut self.topology_types,
            "subnetid" => &mut self.subnet,
            "elbsecuritygroup" => &mut self.shared_group,
            "routetableid" => &mut self.route_table,
            "nlbsecuritygroupmode" => &mut self.group_mode,
            "clusterserviceloadbalancerhealthprobemode" => &mut self.health_texts[0],
            "clusterservicesharedloadbalancerhealthprobeport" => &mut self.health_texts[1],
            "clusterservicesharedloadbalancerhealthprobepath" => &mut self.health_texts[2],
            "disablesecuritygroupingress" => {
                self.closed_groups = match value.to_ascii_lowercase().as_str() {
                    // A name alone is true.
                    "true" | "yes" | "on" | "1" | "" => true,
                    "false" | "no" | "off" | "0" => false,
                    _ => bail!("use true or false"),
                };
                return Ok(true);
            }
            "nodeipfamilies" => {
                self.node_families.push(match value.as_str() {
                    "ipv4" => Family::V4,
                    "ipv6" => Family::V6,
                    _ => bail!("use ipv4 or ipv6"),
                });
                return Ok(true);
            }
            _ => return Ok(false),
        };
        *text = value;
        Ok(true)
    }

    fn check(&mut self) -> Result<()> {
        if self.node_families.is_empty() {
            self.node_families.push(Family::V4);
        }
        if let Err(error) = Regex::new(&self.topology_types) {
            bail!("SupportedTopologyInstanceTypePattern is no regular expression: {error}");
        }
        self.health = self.health_probe()?;
        ensure!(
            matches!(&*self.group_mode, "" | "Managed"),
            "NLBSecurityGroupMode = {:?} is no mode; use Managed, or leave it out",
            self.group_mode
        );
        let (tag, id) = (&self.cluster_tag, &self.cluster_id);
        ensure!(
            tag.is_empty() || id.is_empty() || tag == id,
            "KubernetesClusterTag {tag:?} and KubernetesClusterID {id:?} name two clusters; keep one of them"
        );
        for (number, one) in &self.overrides {
            for (name, value) in [
                ("Service", &one.service),
                ("Region", &one.region),
                ("URL", &one.url),
                ("SigningRegion", &one.signing_region),
            ] {
                ensure!(!value.is_empty(), "[ServiceOverride \"{number}\"] has no {name}; set it");
            }
            let twin = self.overrides.iter().find(|(other, two)| {
                *other != number && (&two.service, &two.region) == (&one.service, &one.region)
            });
            if let Some((other, _)) = twin {
                bail!(
                    "[ServiceOverride \"{number}\"] and \"{other}\" are both of {} in {}; keep one of them",
                    one.service,
                    one.region
                );
            }
        }
        Ok(())
    }

    fn health_probe(&self) -> Result<HealthProbe> {
        let [mode, port, path] = &self.health_texts;
        match &**mode {
            "" | "ServiceNodePort" => return Ok(HealthProbe::OfService),
            "Shared" => {}
            _ => bail!(
                "ClusterServiceLoadBalancerHealthProbeMode = {mode:?} is no mode; use Shared or ServiceNodePort"
            ),
        }
        let port = match &**port {
            "" | "0" => 10256,
            text => text.parse().map_err(|_not_one| {
                anyhow::anyhow!("ClusterServiceSharedLoadBalancerHealthProbePort = {text:?} is no port")
            })?,
        };
        let path = if path.is_empty() { "/healthz" } else { path };
        Ok(HealthProbe::OfKubeProxy { port, path: path.to_owned() })
    }

    /// Each balancer gets a security group of its own.
    pub fn balancers_have_groups(&self) -> bool {
        self.group_mode == "Managed"
    }

    /// The override of a service, by its name in Go's SDK.
    pub fn override_of(&self, service: &str, region: &str) -> Option<&Override> {
        self.overrides.values().find(|one| one.service == service && one.region == region)
    }
}

impl Override {
    fn set(&mut self, name: &str, value: String) -> bool {
        let text = match name.to_ascii_lowercase().as_str() {
            "service" => &mut self.service,
            "region" => &mut self.region,
            "url" => &mut self.url,
            "signingregion" => &mut self.signing_region,
            "signingmethod" => &mut self.signing_method,
            "signingname" => &mut self.signing_name,
            _ => return false,
        };
        value.trim().clone_into(text);
        true
    }
}

/// The region of a zone's name, which may be a local zone's. `None`: it is no name of a zone.
pub fn region_of(zone: &str) -> Option<&str> {
    // Words and dashes, then a number: "us-west-2" of "us-west-2-lax-1a".
    let digits = zone.find(|c: char| c.is_ascii_digit())?;
    let (words, rest) = zone.split_at(digits);
    let of_letters = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic());
    let well_formed = words.strip_suffix('-')?.split('-').all(of_letters);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    well_formed.then(|| &zone[..digits + end])
}

#[cfg(test)]
mod tests;
