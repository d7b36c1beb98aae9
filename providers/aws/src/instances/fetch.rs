//! Asks EC2 for many instances: by IDs 500 a call, by names and addresses 190 a call, in pages of 1,000.
//!
//! In: what to look for. Out: what EC2 answered for each. Only what EC2 itself names as unknown is gone; an answer without a
//! word of an ID proves nothing.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use aws_sdk_ec2::types::{Filter, Instance, InstanceStateName};
use cloudprovider_sdk::ProviderError;

use super::LOOK_AGAIN;
use super::query::Lookup;
use crate::api::{Action, Deadline, Failure};
use crate::cloud::{Cloud, Owner, filter, instances_of};

/// EC2 takes 200 values in all filters of a call; ten are left for the filters beside.
const VALUES: usize = 190;
/// As many IDs as one call takes.
const IDS: usize = 500;
/// The largest page of EC2.
const PAGE: i32 = 1000;
/// How often IDs that EC2 does not know are left out, and the rest asked for again.
const ROUNDS: usize = 3;

/// What EC2 says of one lookup.
pub(super) enum Answer<'a> {
    Here(&'a Instance),
    /// More than one has the name.
    Several,
    Gone,
    /// EC2 could not be asked, or did not say.
    Unknown(&'a ProviderError),
    NotOurs,
}

/// What EC2 says of all.
pub(super) struct Found {
    by_id: Result<ById, ProviderError>,
    by_name: Result<ByName, ProviderError>,
    silence: ProviderError,
}

/// What EC2 says of some IDs. It did not say anything of those that are in neither.
#[derive(Default)]
pub(crate) struct ById {
    pub here: HashMap<String, Instance>,
    pub gone: HashSet<String>,
}

#[derive(Default)]
struct ByName {
    names: HashMap<String, Vec<Instance>>,
    addresses: HashMap<IpAddr, Vec<Instance>>,
}

impl Found {
    /// Fails if nothing could be asked.
    pub(super) async fn of(
        cloud: &Cloud,
        lookups: &[Lookup],
        until: Deadline,
    ) -> Result<Self, ProviderError> {
        let (mut ids, mut names) = (HashSet::new(), HashMap::new());
        for lookup in lookups {
            match lookup {
                Lookup::Id(id) => {
                    ids.insert(id);
                }
                Lookup::Name(name, addresses) => {
                    names.insert(name, addresses);
                }
                Lookup::NotOurs => {}
            }
        }
        let (asks_ids, asks_names) = (!ids.is_empty(), !names.is_empty());
        let ids: Vec<_> = ids.into_iter().cloned().collect();
        let by_id = by_ids(cloud, &ids, until).await;
        let by_name = by_names(cloud, &names, until).await;
        match (by_id, by_name) {
            (Err(failure), by_name) if by_name.is_err() || !asks_names => Err(failure.into()),
            (_, Err(failure)) if !asks_ids => Err(failure.into()),
            (by_id, by_name) => Ok(Self {
                by_id: by_id.map_err(Into::into),
                by_name: by_name.map_err(Into::into),
                silence: ProviderError::retry_later(
                    LOOK_AGAIN,
                    "EC2 answered without a word of the instance",
                ),
            }),
        }
    }

    pub(super) fn answer(&self, lookup: &Lookup) -> Answer<'_> {
        match lookup {
            Lookup::NotOurs => Answer::NotOurs,
            Lookup::Id(id) => match &self.by_id {
                Err(error) => Answer::Unknown(error),
                Ok(found) => match found.here.get(id) {
                    Some(instance) => Answer::Here(instance),
                    None if found.gone.contains(id) => Answer::Gone,
                    None => Answer::Unknown(&self.silence),
                },
            },
            Lookup::Name(name, addresses) => match &self.by_name {
                Err(error) => Answer::Unknown(error),
                Ok(found) => {
                    let named = found.names.get(name);
                    match named
                        .or_else(|| addresses.iter().find_map(|one| found.addresses.get(one)))
                        .map(Vec::as_slice)
                    {
                        None | Some([]) => Answer::Gone,
                        Some([instance]) => Answer::Here(instance),
                        Some(_) => Answer::Several,
                    }
                }
            },
        }
    }
}

/// Asks in as few calls as EC2 allows.
pub(crate) async fn by_ids(cloud: &Cloud, ids: &[String], until: Deadline) -> Result<ById, Failure> {
    let mut found = ById::default();
    for ids in ids.chunks(IDS) {
        ask(cloud, ids.to_vec(), &mut found, until).await?;
    }
    Ok(found)
}

/// Asks for at most [`IDS`].
async fn ask(cloud: &Cloud, mut ids: Vec<String>, found: &mut ById, until: Deadline) -> Result<(), Failure> {
    for _ in 0..ROUNDS {
        if ids.is_empty() {
            break;
        }
        let asked = cloud.ec2.describe_instances().set_instance_ids(Some(ids.clone())).send();
        match cloud.calls.make(Action::GetInstances, until, asked).await {
            Ok(answer) => {
                let all = instances_of(answer);
                found.here.extend(all.filter_map(|one| Some((one.instance_id.clone()?, one))));
                break;
            }
            // One unknown ID fails the call, whose message names all of them.
            Err(failure) if failure.code() == "InvalidInstanceID.NotFound" => {
                let named = ids_in(failure.message());
                let (gone, rest): (Vec<_>, _) = ids.into_iter().partition(|id| named.contains(id.as_str()));
                ids = rest;
                if gone.is_empty() {
                    return Err(failure);
                }
                found.gone.extend(gone);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// The IDs of instances in a message of AWS.
pub(crate) fn ids_in(message: &str) -> HashSet<&str> {
    message
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("i-"))
        .collect()
}

async fn by_names(
    cloud: &Cloud,
    lookups: &HashMap<&String, &Vec<IpAddr>>,
    until: Deadline,
) -> Result<ByName, Failure> {
    let mut found = ByName::default();
    let names: Vec<_> = lookups.keys().map(|name| (*name).clone()).collect();
    for instance in having(cloud, &living(cloud), "private-dns-name", &names, until).await? {
        let name = instance.private_dns_name().unwrap_or_default().to_owned();
        found.names.entry(name).or_default().push(instance);
    }
    let others: HashSet<_> = lookups
        .iter()
        .filter(|(name, _)| !found.names.contains_key(**name))
        .flat_map(|(_, at)| *at)
        .collect();
    let (v4, v6): (Vec<_>, Vec<_>) = others.into_iter().partition(|address| address.is_ipv4());
    // Other networks have the same addresses.
    let here = [living(cloud), vec![cloud.of_network()]].concat();
    for (name, addresses) in [
        ("network-interface.addresses.private-ip-address", v4),
        ("network-interface.ipv6-addresses.ipv6-address", v6),
    ] {
        let wanted: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        for instance in having(cloud, &here, name, &wanted, until).await? {
            for address in addresses_of(&instance) {
                if addresses.contains(&&address) {
                    found.addresses.entry(address).or_default().push(instance.clone());
                }
            }
        }
    }
    Ok(found)
}

fn addresses_of(instance: &Instance) -> Vec<IpAddr> {
    let interfaces = instance.network_interfaces();
    let v4 = interfaces
        .iter()
        .flat_map(|one| one.private_ip_addresses())
        .filter_map(|one| one.private_ip_address());
    let v6 = interfaces.iter().flat_map(|one| one.ipv6_addresses()).filter_map(|one| one.ipv6_address());
    v4.chain(v6).filter_map(|address| address.parse().ok()).collect()
}

/// The instances that these filters select and that have one of these values.
async fn having(
    cloud: &Cloud,
    filters: &[Filter],
    name: &str,
    values: &[String],
    until: Deadline,
) -> Result<Vec<Instance>, Failure> {
    let mut all = Vec::new();
    for values in values.chunks(VALUES) {
        let filters = [filters, &[filter(name, values.iter().cloned())]].concat();
        let mut token = None;
        loop {
            let page = page(cloud, filters.clone(), PAGE, token, until).await?;
            all.extend(page.0);
            token = page.1;
            if token.is_none() {
                break;
            }
        }
    }
    Ok(all)
}

/// All that may be the cluster's instances, but terminated ones.
fn living(cloud: &Cloud) -> Vec<Filter> {
    use InstanceStateName::{Pending, Running, ShuttingDown, Stopped, Stopping};
    let states = [Pending, Running, ShuttingDown, Stopping, Stopped];
    vec![cloud.cluster.filter(), filter("instance-state-name", states.map(|state| state.as_str().to_owned()))]
}

async fn page(
    cloud: &Cloud,
    filters: Vec<Filter>,
    size: i32,
    token: Option<String>,
    until: Deadline,
) -> Result<(Vec<Instance>, Option<String>), Failure> {
    let asked = cloud
        .ec2
        .describe_instances()
        .set_filters(Some(filters))
        .max_results(size)
        .set_next_token(token)
        .send();
    let answer = cloud.calls.make(Action::FindInstances, until, asked).await?;
    let next = answer.next_token().filter(|token| !token.is_empty()).map(str::to_owned);
    let is_ours = |one: &Instance| cloud.cluster.owner(one.tags()) == Owner::Us;
    Ok((instances_of(answer).filter(is_ours).collect(), next))
}

/// One page of the cluster's instances, of at most `size` and at least one, and where the next begins.
pub(super) async fn list(
    cloud: &Cloud,
    size: i32,
    at: &str,
    until: Deadline,
) -> Result<(Vec<Instance>, Option<String>), Failure> {
    // EC2's smallest page has five: of it, a part is passed on, and the token says where in it the next page begins.
    let (skip, token) = at.split_once(' ').unwrap_or(("0", at));
    let skip: usize = skip.parse().unwrap_or_default();
    let token = (!token.is_empty()).then(|| token.to_owned());
    let (mut all, next) = page(cloud, living(cloud), size.clamp(5, PAGE), token.clone(), until).await?;
    all.drain(..skip.min(all.len()));
    let size = usize::try_from(size).unwrap_or(1).max(1);
    if all.len() > size {
        all.truncate(size);
        return Ok((all, Some(format!("{} {}", skip + size, token.unwrap_or_default()))));
    }
    Ok((all, next.map(|next| format!("0 {next}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_ids_are_read_from_the_message_of_ec2() {
        let one = ids_in("The instance ID 'i-0123456789abcdef0' does not exist");
        assert_eq!(one, HashSet::from(["i-0123456789abcdef0"]));
        let two = ids_in("The instance IDs 'i-01234567, i-89abcdef' do not exist");
        assert_eq!(two, HashSet::from(["i-01234567", "i-89abcdef"]));
        assert_eq!(ids_in("an internal error"), HashSet::new());
    }
}
