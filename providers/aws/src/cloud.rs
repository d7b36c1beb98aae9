//! The client of AWS: credentials, endpoints, and which region, VPC and cluster it is about.
//!
//! In: [`Config`], the environment, and, for what the file leaves out, the instance metadata service. Out: [`Cloud`].

use std::fmt;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use aws_config::imds;
use aws_config::provider_config::ProviderConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{
    self, ProvideCredentials, SharedCredentialsProvider, error::CredentialsError, future,
};
use aws_sdk_ec2::config::SharedHttpClient;
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesOutput;
use aws_sdk_ec2::types::{Filter, Instance, RouteTable, Tag};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};

use crate::api::{Action, Calls, Deadline, Failure, all_pages, marker};
use crate::config::{Config, region_of};

/// Followed by the cluster's name.
pub(crate) const CLUSTER_TAG: &str = "kubernetes.io/cluster/";
/// Of clusters that are older than Kubernetes 1.6.
pub(crate) const LEGACY_TAG: &str = "KubernetesCluster";
/// How long the start waits for the instance metadata service and EC2.
const START_WITHIN: Duration = Duration::from_secs(60);

/// AWS, as one cluster sees it.
#[derive(Debug, Clone)]
pub(crate) struct Cloud {
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) elb: aws_sdk_elasticloadbalancingv2::Client,
    /// Of classic balancers, which have an API of their own.
    pub(crate) classic: aws_sdk_elasticloadbalancing::Client,
    pub(crate) calls: Calls,
    pub(crate) region: String,
    pub(crate) vpc: String,
    /// Where balancers go if every subnet of the network is another cluster's: the config's, or that of the instance of this
    /// process where it was asked for VPC or cluster. May be empty.
    pub(crate) subnet: String,
    pub(crate) cluster: Cluster,
}

/// The tags by which the cluster's things are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    id: String,
    legacy: bool,
}

/// Whose an instance is, by its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Us,
    AnotherCluster,
    Nobody,
}

impl Cluster {
    /// From `KubernetesClusterTag` and `KubernetesClusterID`. `None`: neither is set.
    pub(crate) fn of_config(config: &Config) -> Option<Self> {
        let legacy = !config.cluster_tag.is_empty();
        let id = if legacy { &config.cluster_tag } else { &config.cluster_id };
        (!id.is_empty()).then(|| Self { id: id.clone(), legacy })
    }

    /// From the tags of the instance on which this process runs.
    fn of_tags(tags: &[Tag]) -> Result<Self> {
        let (mut ids, mut legacy) = (Vec::new(), false);
        for tag in tags {
            let (key, value) = (tag.key().unwrap_or_default(), tag.value().unwrap_or_default());
            if key == LEGACY_TAG {
                ids.push(value);
                legacy = true;
            } else if let Some(id) = key.strip_prefix(CLUSTER_TAG) {
                ids.push(id);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        match *ids {
            [id] if !id.is_empty() => Ok(Self { id: id.to_owned(), legacy }),
            [] => anyhow::bail!(
                "the instance of this process has no tag {CLUSTER_TAG}NAME: tag it, or set KubernetesClusterID in the cloud config"
            ),
            _ => anyhow::bail!(
                "the instance of this process has tags of several clusters, {ids:?}: set KubernetesClusterID in the cloud config"
            ),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Those of what belongs to the cluster alone.
    pub(crate) fn tags(&self) -> Vec<(String, String)> {
        let legacy = self.legacy.then(|| (LEGACY_TAG.to_owned(), self.id.clone()));
        legacy.into_iter().chain([(format!("{CLUSTER_TAG}{}", self.id), "owned".to_owned())]).collect()
    }

    /// Selects what may be the cluster's, by either of its tags: [`Cluster::owner`] tells.
    pub(crate) fn filter(&self) -> Filter {
        filter("tag-key", [format!("{CLUSTER_TAG}{}", self.id), LEGACY_TAG.to_owned()])
    }

    pub(crate) fn owner(&self, tags: &[Tag]) -> Owner {
        self.owner_by(tags.iter().map(|tag| (tag.key().unwrap_or_default(), tag.value().unwrap_or_default())))
    }

    /// By keys and values.
    pub(crate) fn owner_by<'a>(&self, tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> Owner {
        let mut owner = Owner::Nobody;
        for (key, value) in tags {
            let id = match key.strip_prefix(CLUSTER_TAG) {
                Some(id) => id,
                None if key == LEGACY_TAG => value,
                None => continue,
            };
            if id == self.id {
                return Owner::Us;
            }
            owner = Owner::AnotherCluster;
        }
        owner
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.id)
    }
}

/// A filter of EC2's `Describe` actions.
pub(crate) fn filter(name: &str, values: impl IntoIterator<Item = String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().collect())).build()
}

/// The instances of an answer of EC2, which has them by how they were launched.
pub(crate) fn instances_of(answer: DescribeInstancesOutput) -> impl Iterator<Item = Instance> {
    answer.reservations.into_iter().flatten().flat_map(|one| one.instances.unwrap_or_default())
}

impl Cloud {
    /// Finds out what the configuration leaves out, without a call to AWS if it leaves out nothing.
    pub(crate) async fn connect(config: &Config) -> Result<Self> {
        let metadata = Metadata::new(config)?;
        let region = match (region_of(&config.zone), &*config.region) {
            (Some(region), _) => region.to_owned(),
            (None, _) if !config.zone.is_empty() => {
                anyhow::bail!("Zone = {:?} is no name of a zone; use for example us-east-1a", config.zone)
            }
            (None, "") => metadata.get("placement/region", "Region").await?,
            (None, region) => region.to_owned(),
        };
        let shared = shared(config, &region).await?;
        let mut of_ec2 = aws_sdk_ec2::config::Builder::from(&shared);
        if let Some((url, signing_region)) = endpoint(config, "EC2", "ec2", &region)? {
            // With an endpoint of its own the region is only that of signatures.
            of_ec2 = of_ec2.endpoint_url(url).region(signing_region);
        }
        let ec2 = aws_sdk_ec2::Client::from_conf(of_ec2.build());
        let mut of_elb = aws_sdk_elasticloadbalancingv2::config::Builder::from(&shared);
        let balancing = endpoint(config, "Elastic Load Balancing v2", "elasticloadbalancing", &region)?;
        if let Some((url, signing_region)) = balancing {
            of_elb = of_elb.endpoint_url(url).region(signing_region);
        }
        let elb = aws_sdk_elasticloadbalancingv2::Client::from_conf(of_elb.build());
        let mut of_classic = aws_sdk_elasticloadbalancing::config::Builder::from(&shared);
        let balancing = endpoint(config, "Elastic Load Balancing", "elasticloadbalancing", &region)?;
        if let Some((url, signing_region)) = balancing {
            of_classic = of_classic.endpoint_url(url).region(signing_region);
        }
        let classic = aws_sdk_elasticloadbalancing::Client::from_conf(of_classic.build());
        let calls = Calls::default();
        let (vpc, subnet, cluster) = match (&*config.vpc, Cluster::of_config(config)) {
            (vpc, Some(cluster)) if !vpc.is_empty() => (vpc.to_owned(), config.subnet.clone(), cluster),
            (vpc, cluster) => {
                let id = metadata.get("instance-id", "VPC and KubernetesClusterID").await?;
                let own = own_instance(&ec2, &calls, &id).await?;
                let or_own = |set: &str, own: Option<&str>| match set {
                    "" => own.unwrap_or_default().to_owned(),
                    set => set.to_owned(),
                };
                let (vpc, subnet) = (or_own(vpc, own.vpc_id()), or_own(&config.subnet, own.subnet_id()));
                (vpc, subnet, cluster.map_or_else(|| Cluster::of_tags(own.tags()), Ok)?)
            }
        };
        Ok(Self { ec2, elb, classic, calls, region, vpc, subnet, cluster })
    }

    pub(crate) fn of_network(&self) -> Filter {
        filter("vpc-id", [self.vpc.clone()])
    }

    pub(crate) async fn route_tables(
        &self,
        filters: Vec<Filter>,
        until: Deadline,
    ) -> Result<Vec<RouteTable>, Failure> {
        let page = async |at| {
            let asked = self.ec2.describe_route_tables().set_filters(Some(filters.clone()));
            let asked = asked.set_next_token(at).send();
            let answer = self.calls.make(Action::DescribeRouteTables, until, asked).await?;
            Ok((answer.route_tables.unwrap_or_default(), marker(answer.next_token)))
        };
        all_pages(page).await
    }
}

async fn own_instance(ec2: &aws_sdk_ec2::Client, calls: &Calls, id: &str) -> Result<Instance> {
    let asked = ec2.describe_instances().instance_ids(id).send();
    let answer = calls.make(Action::GetInstances, Deadline::after(START_WITHIN), asked).await;
    let answer = answer.map_err(|failure| failure.to_error());
    let answer = answer.with_context(|| format!("cannot read {id}, the instance of this process"))?;
    instances_of(answer)
        .next()
        .with_context(|| format!("EC2 does not know {id}, the instance of this process"))
}

/// The instance metadata service.
struct Metadata(imds::Client);

impl Metadata {
    fn new(config: &Config) -> Result<Self> {
        let own = ProviderConfig::without_region().with_http_client(http());
        let mut builder = imds::Client::builder().configure(&own).max_attempts(3);
        // The region is not known yet; there is one such service.
        if let Some(one) = config.overrides.values().find(|one| one.service == "ec2imds") {
            let endpoint = builder.endpoint(&one.url);
            builder = endpoint
                .map_err(|error| anyhow::anyhow!("URL {:?} of the override of ec2imds: {error}", one.url))?;
        }
        Ok(Self(builder.build()))
    }

    async fn get(&self, path: &str, instead: &str) -> Result<String> {
        let asked = tokio::time::timeout(START_WITHIN, self.0.get(format!("/latest/meta-data/{path}"))).await;
        let help =
            || format!("the instance metadata service did not say {path}: set {instead} in the cloud config");
        Ok(asked.with_context(help)?.with_context(help)?.as_ref().to_owned())
    }
}

/// Where the config has a service, by its name in Go's SDK, and the region of its signatures.
fn endpoint(config: &Config, service: &str, signing: &str, region: &str) -> Result<Option<(String, Region)>> {
    let Some(one) = config.override_of(service, region) else { return Ok(None) };
    ensure!(
        one.signing_name.is_empty() || one.signing_name == signing,
        "SigningName = {:?} of the override of {service} cannot be served; use {signing}",
        one.signing_name
    );
    Ok(Some((one.url.clone(), Region::new(one.signing_region.clone()))))
}

fn http() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https()
}

/// AWS's default chain of credentials and the config's role, and neither the SDK's retries nor its timeouts.
async fn shared(config: &Config, region: &str) -> Result<SdkConfig> {
    let shared = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(region.to_owned()))
        .http_client(http())
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().connect_timeout(Duration::from_secs(5)).build())
        .load()
        .await;
    if config.role_arn.is_empty() {
        return Ok(shared);
    }
    let role = SharedCredentialsProvider::new(Role::new(config, &shared)?);
    Ok(shared.into_builder().credentials_provider(role).build())
}

/// The role of `RoleARN`, assumed with the headers that keep a confused deputy out, which the SDK's own provider cannot send.
#[derive(Debug, Clone)]
struct Role {
    sts: aws_sdk_sts::Client,
    arn: String,
    headers: Vec<(&'static str, String)>,
}

impl Role {
    fn new(config: &Config, shared: &SdkConfig) -> Result<Self> {
        let arn = config.role_arn.clone();
        // arn:partition:iam::account:role/name
        let account = arn.split(':').nth(4).filter(|account| !account.is_empty());
        let account = account.with_context(|| format!("RoleARN = {arn:?} is no ARN of a role"))?;
        let mut headers = vec![("x-amz-source-account", account.to_owned())];
        if !config.source_arn.is_empty() {
            headers.push(("x-amz-source-arn", config.source_arn.clone()));
        }
        Ok(Self { sts: aws_sdk_sts::Client::new(shared), arn, headers })
    }

    async fn assume(self) -> provider::Result {
        let headers = self.headers;
        let asked = self.sts.assume_role().role_arn(self.arn).role_session_name("provider-aws").customize();
        let asked = asked.mutate_request(move |request| {
            for (name, value) in &headers {
                request.headers_mut().insert(*name, value.clone());
            }
        });
        let answer = asked.send().await.map_err(CredentialsError::provider_error)?;
        let got = answer
            .credentials
            .ok_or_else(|| CredentialsError::unhandled("STS answered without credentials"))?;
        let until = SystemTime::try_from(got.expiration).map_err(CredentialsError::unhandled)?;
        let token = Some(got.session_token);
        Ok(Credentials::new(got.access_key_id, got.secret_access_key, token, Some(until), "RoleARN"))
    }
}

impl ProvideCredentials for Role {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.clone().assume())
    }
}

#[cfg(test)]
mod tests;
