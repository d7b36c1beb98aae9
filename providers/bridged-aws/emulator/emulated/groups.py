"""Security groups and tags."""

import copy
import os

from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.models.security_groups import SecurityGroupBackend, SecurityGroupRule
from moto.ec2.models.tags import TagBackend
from moto.ec2.responses.security_groups import SecurityGroups
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends

delete = SecurityGroupBackend.delete_security_group


def delete_unused(self, name=None, group_id=None):
    """moto deletes groups that are in use."""
    account, region = self.account_id, self.region_name
    cards = [group.id for card in self.enis.values() for group in card.group_set]
    balancers = [
        group
        for backends in (elb_backends, elbv2_backends)
        for one in backends[account][region].load_balancers.values()
        for group in one.security_groups or []
    ]
    named = [
        rule.source_group.get("GroupId")
        for groups in self.groups.values()
        for group in groups.values()
        if group.id != group_id
        for rule in [*group.ingress_rules, *group.egress_rules]
    ]
    if group_id in {*cards, *balancers, *named}:
        raise EC2ClientError("DependencyViolation", f"resource {group_id} has a dependent object")
    return delete(self, name, group_id)


SecurityGroupBackend.delete_security_group = delete_unused

is_same = SecurityGroupRule.__eq__


def is_same_whatever_is_said(self, other):
    """In moto a rule for a group is another one if it has another description."""
    rules = [copy.copy(rule) for rule in (self, other)]
    for rule in rules:
        rule.source_group = {key: value for key, value in rule.source_group.items() if key != "Description"}
    return is_same(*rules)


SecurityGroupRule.__eq__ = is_same_whatever_is_said

# AWS's quota, and what it was raised to.
RULES = 60
RAISED = int(os.environ.get("RULES_PER_SECURITY_GROUP", RULES))

check_rules = SecurityGroupBackend._verify_group_will_respect_rule_count_limit


def check_raised(self, group, current_rule_nb, *args, **kwargs):
    check_rules(self, group, current_rule_nb + RULES - RAISED, *args, **kwargs)


SecurityGroupBackend._verify_group_will_respect_rule_count_limit = check_raised

authorize = SecurityGroups.authorize_security_group_ingress


def authorize_all_or_nothing(self):
    """moto keeps a part of what it refuses."""
    groups = [group for groups in self.ec2_backend.groups.values() for group in groups.values()]
    before = [(group, list(group.ingress_rules)) for group in groups]
    try:
        return authorize(self)
    except EC2ClientError:
        for group, rules in before:
            group.ingress_rules[:] = rules
        raise


SecurityGroups.authorize_security_group_ingress = authorize_all_or_nothing

create_tags = TagBackend.create_tags


def create_tags_of_known(self, resource_ids, tags):
    """moto tags what does not exist."""
    missing = [one for one in resource_ids if one.startswith("i-") and not self.get_instance_by_id(one)]
    if missing:
        raise InvalidInstanceIdError(missing)
    return create_tags(self, resource_ids, tags)


TagBackend.create_tags = create_tags_of_known
