//! The security group of a balancer's own, which lets its clients in. Network balancers have one only with `NLBSecurityGroupMode =
//! Managed`, classic ones unless the user or the cloud config gives them others.
//!
//! In: a name, tags, rules. Out: a group with exactly these rules, or none. Name and rules are the published provider's. The name,
//! which no other Service has, is enough to know it by: somebody may have removed its tags.

use std::time::Duration;

use aws_sdk_ec2::types::{ResourceType, SecurityGroup, Tag, TagSpecification};
use cloudprovider_sdk::ProviderError;

use super::rules::{self, Rules};
use super::service::Texts;
use crate::api::{Action, Deadline, Failure, Stop};
use crate::cloud::{Cloud, Owner, filter};

/// How soon to look again whether a person has tagged a group.
pub(super) const WHILE_IT_IS_ANOTHERS: Duration = Duration::from_secs(300);

/// A group, and what it lets through.
#[derive(Debug)]
pub(super) struct OwnGroup {
    pub id: String,
    there: Rules,
    /// Why it does not let through all that is wanted.
    lacking: Option<Failure>,
}

impl OwnGroup {
    /// The group of this name, unless it is another cluster's.
    pub(super) async fn find(cloud: &Cloud, name: &str, until: Deadline) -> Result<Option<Self>, Failure> {
        let found = Self::of_whom(cloud, name, until).await?;
        Ok(found.filter(|(owner, _)| *owner != Owner::AnotherCluster).map(|(_, group)| group))
    }

    /// The group of this name, and whose it is by its tags.
    pub(super) async fn of_whom(
        cloud: &Cloud,
        name: &str,
        until: Deadline,
    ) -> Result<Option<(Owner, Self)>, Failure> {
        let asked = cloud.ec2.describe_security_groups();
        let asked = asked.filters(filter("group-name", [name.to_owned()]));
        let asked = asked.filters(cloud.of_network());
        let answer = cloud.calls.make(Action::DescribeSecurityGroups, until, asked.send()).await?;
        let group = |one: &SecurityGroup| {
            (cloud.cluster.owner(one.tags()), Self::having(id(one.group_id()), rules::of(one)))
        };
        // A network has one of each name.
        Ok(answer.security_groups().first().map(group))
    }

    /// The group of this name among these.
    pub(super) fn among(groups: &rules::Groups, name: &str) -> Option<Self> {
        groups.named(name).map(|(id, there)| Self::having(id.clone(), there.clone()))
    }

    fn having(id: String, there: Rules) -> Self {
        Self { id, there, lacking: None }
    }

    /// The group, which is made if there is none.
    pub(super) async fn ensure(
        cloud: &Cloud,
        (name, description): (&str, &str),
        tags: &Texts,
        until: Deadline,
    ) -> Result<Self, Stop> {
        match Self::of_whom(cloud, name, until).await? {
            Some((Owner::AnotherCluster, _)) => {
                let why =
                    format!("security group {name} has another cluster's tag: remove the tag, or the group");
                Err(ProviderError::retry_later(WHILE_IT_IS_ANOTHERS, &why).into())
            }
            Some((_, found)) => Ok(found),
            None => Ok(Self::create(cloud, (name, description), tags, until).await?),
        }
    }

    /// Lets through at least this. If there is no room, all goes that neither is wanted nor `serves`; what has none all the same must
    /// not keep everything else from working: [`OwnGroup::trim`] tells of it.
    pub(super) async fn let_in(
        &mut self,
        cloud: &Cloud,
        (wanted, serves): (&Rules, &Rules),
        until: Deadline,
    ) -> Result<(), Failure> {
        let grants = rules::beyond(wanted, &self.there);
        let revokes = rules::beyond(&rules::beyond(&self.there, wanted), serves);
        match rules::exchange(cloud, &self.id, &mut self.there, (grants, &revokes), until).await {
            Err(failure) if failure.is_full_of_rules() => self.lacking = Some(failure),
            outcome => {
                outcome?;
                self.lacking = None;
            }
        }
        Ok(())
    }

    /// Lets through exactly this.
    pub(super) async fn only(mut self, cloud: &Cloud, wanted: &Rules, until: Deadline) -> Result<(), Stop> {
        self.let_in(cloud, (wanted, &Rules::new()), until).await?;
        self.trim(cloud, wanted, until).await
    }

    /// There was no room for all that is wanted.
    pub(super) fn lacks_room(&self) -> bool {
        self.lacking.is_some()
    }

    pub(super) async fn create(
        cloud: &Cloud,
        (name, description): (&str, &str),
        tags: &Texts,
        until: Deadline,
    ) -> Result<Self, Failure> {
        let tag = |(key, value): (&String, &String)| Tag::builder().key(key).value(value).build();
        let tags = tags.iter().map(tag).collect();
        let tags =
            TagSpecification::builder().resource_type(ResourceType::SecurityGroup).set_tags(Some(tags));
        let asked = cloud.ec2.create_security_group().group_name(name).description(description);
        let asked = asked.vpc_id(&cloud.vpc).tag_specifications(tags.build());
        let made = cloud.calls.make(Action::CreateSecurityGroup, until, asked.send()).await?;
        Ok(Self::having(id(made.group_id()), Rules::new()))
    }

    /// Revokes what is not wanted, which makes room. An error may also be why it does not let through all that is.
    pub(super) async fn trim(&mut self, cloud: &Cloud, wanted: &Rules, until: Deadline) -> Result<(), Stop> {
        let revokes = rules::beyond(&self.there, wanted);
        if !revokes.is_empty() {
            rules::revoke(cloud, &self.id, &revokes, until).await?;
            self.there.retain(|rule| !revokes.contains(rule));
            self.let_in(cloud, (wanted, &Rules::new()), until).await?;
        }
        self.lacking.as_ref().map_or(Ok(()), |lacking| Err(Stop::of(lacking)))
    }

    /// Returns whether it is gone, which takes until AWS has forgotten its balancer.
    pub(super) async fn delete(&self, cloud: &Cloud, until: Deadline) -> Result<bool, Failure> {
        let asked = cloud.ec2.delete_security_group().group_id(&self.id).send();
        match cloud.calls.make(Action::DeleteSecurityGroup, until, asked).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code() == "InvalidGroup.NotFound" => Ok(true),
            Err(failure) if failure.code() == "DependencyViolation" => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

fn id(id: Option<&str>) -> String {
    id.unwrap_or_default().to_owned()
}
