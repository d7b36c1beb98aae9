"""Instances, as EC2 describes them."""

import copy
import re

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError, InvalidParameterCombination
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.utils import filter_dict_attribute_mapping

# An instance with this tag exists, but EC2 does not know it yet: it is eventually consistent.
HIDDEN = "emulator:hidden"
WELL_FORMED = re.compile("i-([0-9a-f]{8}|[0-9a-f]{17})")
# A part of the types that EC2 documents for DescribeInstanceTopology.
WITH_TOPOLOGY = re.compile("(hpc|trn|p|g6e)[0-9]*[a-z]*[.]")
AT_ONCE = 100
# Those who use it report that EC2 tells of so many at once, whatever it is asked about.
A_PAGE = 20


def tags_of(instance):
    return {tag["key"]: tag["value"] for tag in instance.get_tags()}


def known(self, ids, filters=None):
    """moto names one unknown instance, fails if an instance is named twice, and takes any text for an ID."""
    for one in ids:
        if not WELL_FORMED.fullmatch(one):
            raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{one}"')
    wanted = dict.fromkeys(ids)
    found = []
    for reservation in self.all_reservations():
        reservation.instances = [one for one in reservation.instances if one.id in wanted]
        for one in reservation.instances:
            wanted[one.id] = HIDDEN not in tags_of(one)
        if reservation.instances:
            found.append(reservation)
    missing = [one for one, there in wanted.items() if not there]
    if missing:
        raise InvalidInstanceIdError(missing)
    return found if not filters else self.all_reservations(filters | {"instance-id": list(wanted)})


InstanceBackend.get_reservations_by_instance_ids = known


def describe(self):
    """moto pages by reservations, with 100 in the first page, and takes any number of filters' values."""
    self.error_on_dryrun()
    filters, ids = self._filters_from_querystring(), self._get_param("InstanceIds", [])
    size, token = self._get_param("MaxResults"), self._get_param("NextToken")
    if ids and size:
        raise InvalidParameterCombination(
            "The parameter instancesSet cannot be used with the parameter maxResults"
        )
    if size and not 5 <= int(size) <= 1000:
        raise EC2ClientError("InvalidParameterValue", f"Value ( {size} ) for parameter maxResults is invalid.")
    if sum(len(values) for values in filters.values()) > 200:
        raise EC2ClientError(
            "FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200"
        )
    if token and not token.isdigit():
        raise EC2ClientError("InvalidNextToken", "The specified token is not valid.")
    found = known(self.ec2_backend, ids, filters) if ids else self.ec2_backend.describe_instances(filters)
    everything = [(group, one) for group in found for one in group.instances if HIDDEN not in tags_of(one)]
    first, count = int(token or 0), int(size or 1000)
    page = []
    for group, one in everything[first : first + count]:
        if not page or page[-1].id != group.id:
            page.append(copy.copy(group))
            page[-1].instances = []
        page[-1].instances.append(one)
    more = str(first + count) if len(everything) > first + count else None
    return ActionResult({"Reservations": page, "NextToken": more})


InstanceResponse.describe_instances = describe

# moto does not know these filters.
filter_dict_attribute_mapping["network-interface.addresses.private-ip-address"] = "every_private_address"
filter_dict_attribute_mapping["network-interface.ipv6-addresses.ipv6-address"] = "every_ipv6_address"
Instance.every_private_address = property(
    lambda self: [one["PrivateIpAddress"] for nic in self.nics.values() for one in nic.private_ip_addresses]
)
Instance.every_ipv6_address = property(lambda self: [one for nic in self.nics.values() for one in nic.ipv6_addresses])

run = InstanceResponse.run_instances


def run_named(self):
    result = run(self)
    kind = self._get_param("PrivateDnsNameOptions", {}).get("HostnameType")
    for instance in result.result.instances:
        instance.named_by = kind
    return result


# moto ignores the option to name instances by their IDs.
InstanceResponse.run_instances = run_named
Instance.named_by = None
by_address = Instance.private_dns_name.fget


def private_dns_name(self):
    if self.named_by == "resource-name":
        return f"{self.id}.{by_address(self).split('.', 1)[1]}"
    return by_address(self)


Instance.private_dns_name = property(private_dns_name)


def topology(self):
    """moto lacks this call."""
    ids = self._get_param("InstanceIds", [])
    if len(ids) > AT_ONCE:
        raise EC2ClientError("InvalidParameterValue", f"The maximum number of instance IDs is {AT_ONCE}.")
    answer = []
    begin = int(self._get_param("NextToken") or 0)
    page = {"NextToken": str(begin + A_PAGE)} if len(ids) > begin + A_PAGE else {}
    for group in known(self.ec2_backend, ids[begin : begin + A_PAGE]):
        for one in group.instances:
            if WITH_TOPOLOGY.match(one.instance_type) and one.state == "running":
                layers = [f"nn-{layer}-{one.placement.zone}" for layer in ("top", "middle", "bottom")]
                answer.append({"InstanceId": one.id, "InstanceType": one.instance_type, "NetworkNodes": layers})
    return ActionResult({"Instances": answer} | page)


InstanceResponse.describe_instance_topology = topology
