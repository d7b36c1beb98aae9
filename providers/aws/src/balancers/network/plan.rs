//! The next step from what AWS has to what a Service wants.
//!
//! In: [`Wanted`], [`Actual`], the backends. Out: one [`Step`], or none if nothing is left to do. A step depends on nothing but
//! what AWS has, so that whoever begins anew after any step goes on where the last one stopped. Nothing that serves is taken
//! away before what replaces it serves; targets alone leave first, since a group may be full.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_elasticloadbalancingv2::types::ProtocolEnum;

use super::wanted::{Families, Health, Listener, PRESERVE, STICKY, TargetGroup, Tls, Wanted};
use crate::balancers::behind::Backends;
use crate::balancers::names::says_whose;
use crate::balancers::service::{Texts, missing};
use crate::balancers::told::Standing;

/// As many targets as one call takes.
const TARGETS: usize = 100;

/// What AWS has for a Service.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Actual {
    pub balancer: Option<Balancer>,
    /// Those of the balancer, and those that are left of a former attempt.
    pub groups: Vec<Group>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::balancers) struct Balancer {
    pub arn: String,
    pub dns: String,
    pub serves: bool,
    /// AWS could not set it up, and says why.
    pub failed: Option<String>,
    pub internal: bool,
    pub dual_stack: bool,
    pub tags: Texts,
    pub subnets: BTreeSet<String>,
    pub security_groups: BTreeSet<String>,
    pub attributes: Texts,
    pub listeners: Vec<Open>,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::balancers) struct Open {
    pub arn: String,
    pub port: i32,
    pub protocol: ProtocolEnum,
    pub tls: Option<Tls>,
    /// The ARN of its target group.
    pub group: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub arn: String,
    pub is: TargetGroup,
    pub attributes: Texts,
    pub targets: BTreeSet<String>,
}

/// What the cluster's administrator provides for a balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub subnets: Vec<String>,
    pub has_v6: bool,
    /// `None`: whatever it has.
    pub security_groups: Option<Vec<String>>,
}

/// One call of AWS that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    CreateBalancer(Place),
    Tag(Texts),
    SetFamilies { dual_stack: bool },
    SetSubnets(Vec<String>),
    SetSecurityGroups(Vec<String>),
    SetAttributes(Texts),
    CreateGroup(TargetGroup),
    SetHealth { group: String, health: Health },
    SetGroupAttributes { group: String, attributes: Texts },
    Deregister { group: String, targets: Vec<String> },
    Register { group: String, targets: Vec<String> },
    CreateListener { listener: Listener, group: String },
    ModifyListener { arn: String, listener: Listener, group: String },
    DeleteListener { arn: String },
    DeleteGroup { group: String },
}

/// The next step, if anything is left to do. The user's tags are none of it: there may be no room for them.
pub(super) fn next(wanted: &Wanted, place: &Place, backends: &Backends, actual: &Actual) -> Option<Step> {
    let Some(balancer) = &actual.balancer else { return Some(Step::CreateBalancer(place.clone())) };
    let dual_stack = wanted.families.dual_stack(place.has_v6);
    let families = || (dual_stack != balancer.dual_stack).then_some(Step::SetFamilies { dual_stack });
    let mut tags = missing(&wanted.tags, &balancer.tags);
    tags.retain(|key, _| says_whose(key));
    if !tags.is_empty() {
        return Some(Step::Tag(tags));
    }
    of_balancer(wanted, place, balancer)
        // With UDP there is one family: two are no more before it comes, and come when it has gone.
        .or_else(|| families().filter(|_| !dual_stack))
        .or_else(|| {
            wanted.listeners.iter().find_map(|one| of_listener(one, wanted, backends, balancer, actual))
        })
        .or_else(|| what_is_left(wanted, balancer, actual))
        .or_else(families)
}

fn of_balancer(wanted: &Wanted, place: &Place, balancer: &Balancer) -> Option<Step> {
    if !wanted.subnets.is_empty()
        && place.subnets.iter().cloned().collect::<BTreeSet<_>>() != balancer.subnets
    {
        return Some(Step::SetSubnets(place.subnets.clone()));
    }
    if let Some(groups) = &place.security_groups
        && groups.iter().cloned().collect::<BTreeSet<_>>() != balancer.security_groups
    {
        return Some(Step::SetSecurityGroups(groups.clone()));
    }
    let attributes = missing(&wanted.attributes, &balancer.attributes);
    (!attributes.is_empty()).then_some(Step::SetAttributes(attributes))
}

fn of_listener(
    listener: &Listener,
    wanted: &Wanted,
    backends: &Backends,
    balancer: &Balancer,
    actual: &Actual,
) -> Option<Step> {
    let open = balancer.listeners.iter().find(|open| open.port == listener.port);
    let Some(group) = group_of(listener, open, actual) else {
        return Some(Step::CreateGroup(listener.group.clone()));
    };
    if group.is.health != listener.group.health {
        return Some(Step::SetHealth { group: group.arn.clone(), health: listener.group.health.clone() });
    }
    let mut attributes = missing(&wanted.group_attributes, &group.attributes);
    // What a group does not tell of cannot be otherwise.
    attributes.retain(|key, value| {
        group.attributes.contains_key(key)
            || !matches!((&**key, &**value), (STICKY, "false") | (PRESERVE, "true"))
    });
    if !attributes.is_empty() {
        return Some(Step::SetGroupAttributes { group: group.arn.clone(), attributes });
    }
    if let Some(step) = of_targets(group, backends) {
        return Some(step);
    }
    let (listener, group) = (listener.clone(), group.arn.clone());
    match open {
        None => Some(Step::CreateListener { listener, group }),
        Some(open) if !open.serves(&listener, &group) => {
            Some(Step::ModifyListener { arn: open.arn.clone(), listener, group })
        }
        Some(_) => None,
    }
}

/// The listener's group, if it can become what it has to be.
fn group_of<'a>(listener: &Listener, open: Option<&Open>, actual: &'a Actual) -> Option<&'a Group> {
    let fits = |group: &&Group| {
        let (is, wanted) = (&group.is, &listener.group);
        (is.port, &is.protocol, &is.health.protocol, is.health.interval)
            == (wanted.port, &wanted.protocol, &wanted.health.protocol, wanted.health.interval)
    };
    let served = open.and_then(|open| actual.groups.iter().find(|group| group.arn == open.group));
    served.filter(fits).or_else(|| actual.groups.iter().find(|group| group.is.name == listener.group.name))
}

/// The next step for a group's targets.
pub(super) fn of_targets(group: &Group, backends: &Backends) -> Option<Step> {
    let leaving: Vec<_> = backends.leaving(&group.targets).take(TARGETS).collect();
    if !leaving.is_empty() {
        return Some(Step::Deregister { group: group.arn.clone(), targets: leaving });
    }
    let joining: Vec<_> = backends.joining(&group.targets).take(TARGETS).collect();
    (!joining.is_empty()).then(|| Step::Register { group: group.arn.clone(), targets: joining })
}

fn what_is_left(wanted: &Wanted, balancer: &Balancer, actual: &Actual) -> Option<Step> {
    let is_wanted = |open: &&Open| wanted.listeners.iter().any(|one| one.port == open.port);
    if let Some(open) = balancer.listeners.iter().find(|open| !is_wanted(open)) {
        return Some(Step::DeleteListener { arn: open.arn.clone() });
    }
    let serves = |group: &&Group| balancer.listeners.iter().any(|open| open.group == group.arn);
    let left = actual.groups.iter().find(|group| !serves(group))?;
    Some(Step::DeleteGroup { group: left.arn.clone() })
}

impl Families {
    pub(super) fn dual_stack(self, has_v6: bool) -> bool {
        match self {
            Self::V4 => false,
            Self::DualIfPossible => has_v6,
            Self::Dual => true,
        }
    }
}

impl Open {
    fn serves(&self, listener: &Listener, group: &str) -> bool {
        let same_tls = match (&self.tls, &listener.tls) {
            (None, None) => true,
            // Without a policy of the user's, AWS's stays.
            (Some(is), Some(wanted)) => {
                is.certificate == wanted.certificate
                    && (wanted.policy.is_empty() || is.policy == wanted.policy)
            }
            _ => false,
        };
        self.protocol == listener.protocol && same_tls && self.group == group
    }
}

impl Actual {
    /// The ports on which the balancer serves, and by which groups.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (i32, &TargetGroup)> {
        let open = self.balancer.iter().flat_map(|balancer| &balancer.listeners);
        open.filter_map(|open| {
            let group = self.groups.iter().find(|group| group.arn == open.group)?;
            Some((open.port, &group.is))
        })
    }

    /// What AWS has once it has taken a step. `arn` is of what it made, if the step makes something.
    pub(super) fn after(&mut self, step: &Step, wanted: &Wanted, arn: &str) {
        let arn = || arn.to_owned();
        match step {
            Step::CreateBalancer(place) => {
                self.balancer = Some(Balancer {
                    arn: arn(),
                    internal: wanted.internal,
                    dual_stack: wanted.families.dual_stack(place.has_v6),
                    tags: wanted.tags.clone(),
                    subnets: place.subnets.iter().cloned().collect(),
                    security_groups: place.security_groups.iter().flatten().cloned().collect(),
                    attributes: texts(&[
                        ("load_balancing.cross_zone.enabled", "false"),
                        ("access_logs.s3.enabled", "false"),
                    ]),
                    ..Balancer::default()
                });
            }
            Step::CreateGroup(group) => self.groups.push(Group {
                arn: arn(),
                is: group.clone(),
                attributes: texts(&[
                    (STICKY, "false"),
                    (PRESERVE, "true"),
                    ("proxy_protocol_v2.enabled", "false"),
                ]),
                targets: BTreeSet::new(),
            }),
            Step::DeleteGroup { group } => self.groups.retain(|one| one.arn != *group),
            Step::SetHealth { group, .. }
            | Step::SetGroupAttributes { group, .. }
            | Step::Deregister { group, .. }
            | Step::Register { group, .. } => {
                if let Some(group) = self.groups.iter_mut().find(|one| one.arn == *group) {
                    group.after(step);
                }
            }
            _ => {
                if let Some(balancer) = &mut self.balancer {
                    balancer.after(step, arn());
                }
            }
        }
    }
}

impl Group {
    pub(super) fn after(&mut self, step: &Step) {
        match step {
            Step::SetHealth { health, .. } => self.is.health = health.clone(),
            Step::SetGroupAttributes { attributes, .. } => self.attributes.extend(attributes.clone()),
            Step::Deregister { targets, .. } => self.targets.retain(|one| !targets.contains(one)),
            Step::Register { targets, .. } => self.targets.extend(targets.iter().cloned()),
            _ => {}
        }
    }
}

impl Balancer {
    pub(in crate::balancers) fn standing(&self) -> Standing<'_> {
        Standing { id: &self.arn, dns: &self.dns, serves: self.serves, tags: &self.tags }
    }

    fn after(&mut self, step: &Step, made: String) {
        let open = |arn, listener: &Listener, group: &String| Open {
            arn,
            port: listener.port,
            protocol: listener.protocol.clone(),
            tls: listener.tls.clone(),
            group: group.clone(),
        };
        match step {
            Step::Tag(tags) => self.tags.extend(tags.clone()),
            Step::SetFamilies { dual_stack } => self.dual_stack = *dual_stack,
            Step::SetSubnets(subnets) => self.subnets = subnets.iter().cloned().collect(),
            Step::SetSecurityGroups(groups) => self.security_groups = groups.iter().cloned().collect(),
            Step::SetAttributes(attributes) => self.attributes.extend(attributes.clone()),
            Step::CreateListener { listener, group } => self.listeners.push(open(made, listener, group)),
            Step::ModifyListener { arn, listener, group } => {
                self.listeners.retain(|one| one.arn != *arn);
                self.listeners.push(open(arn.clone(), listener, group));
            }
            Step::DeleteListener { arn } => self.listeners.retain(|one| one.arn != *arn),
            _ => {}
        }
    }
}

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
}

#[cfg(test)]
mod tests;
