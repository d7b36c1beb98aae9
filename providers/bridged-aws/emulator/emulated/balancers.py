"""Classic and network balancers, as Elastic Load Balancing makes them."""

import time

from moto.ec2.models import ec2_backends
from moto.elb.exceptions import ELBClientError as ClassicError
from moto.elb.models import ELBBackend, FakeBackend, FakeHealthCheck
from moto.elb.models import FakeListener as ClassicListener
from moto.elb.responses import ELBResponse
from moto.elbv2.exceptions import (
    DuplicateListenerError,
    DuplicateLoadBalancerName,
    DuplicateTargetGroupName,
    ELBClientError,
    InvalidTargetError,
    ValidationError,
)
from moto.elbv2.models import (
    ELBv2Backend,
    FakeHealthStatus,
    FakeListener,
    FakeLoadBalancer,
    FakeTargetGroup,
)

# The quota of targets in a group.
TARGETS = 1000

make_classic_listener = ClassicListener.__init__


def make_listener_with_instances(self, load_balancer_port, instance_port, protocol, ssl_certificate_id=None, instance_protocol=None):
    make_classic_listener(self, load_balancer_port, instance_port, protocol, ssl_certificate_id)
    self.speaks = (instance_protocol or protocol).upper()


# In moto a classic listener speaks to instances what it speaks to clients.
ClassicListener.__init__ = make_listener_with_instances
ClassicListener.instance_protocol = property(lambda self: self.speaks)


def tell_protocols(balancer, ports):
    for port in ports:
        for listener in balancer.listeners:
            if int(listener.load_balancer_port) == int(port["LoadBalancerPort"]):
                listener.speaks = (port.get("InstanceProtocol") or port["Protocol"]).upper()


create_classic = ELBBackend.create_load_balancer


def create_checked(self, *args, **kwargs):
    balancer = create_classic(self, *args, **kwargs)
    balancer.attributes["connection_draining"]["timeout"] = 300
    tell_protocols(balancer, kwargs["ports"])
    target = f"TCP:{balancer.listeners[0].instance_port}"
    balancer.health_check = FakeHealthCheck(
        timeout="5", healthy_threshold="10", unhealthy_threshold="2", interval="30", target=target
    )
    return balancer


# In moto a new classic balancer has neither a health check nor a time for draining. Elastic Load Balancing gives it these.
ELBBackend.create_load_balancer = create_checked

listen_classic = ELBBackend.create_load_balancer_listeners


def listen_with_backends(self, name, ports):
    """In moto only the first listeners of a classic balancer have backends, which policies are for."""
    balancer = listen_classic(self, name, ports)
    tell_protocols(balancer, ports)
    there = {int(backend.instance_port) for backend in balancer.backends}
    wanted = {int(listener.instance_port) for listener in balancer.listeners}
    balancer.backends += [FakeBackend(port) for port in sorted(wanted - there)]
    return balancer


ELBBackend.create_load_balancer_listeners = listen_with_backends


def delete_classic_listeners(self, name, ports):
    """In moto nothing is deleted of several listeners, and all but one of one."""
    balancer = self.get_load_balancer(name)
    gone = {int(port) for port in ports}
    balancer.listeners = [one for one in balancer.listeners if int(one.load_balancer_port) not in gone]
    return balancer


ELBBackend.delete_load_balancer_listeners = delete_classic_listeners

register_classic = ELBBackend.register_instances


def register_known_once(self, load_balancer_name, instance_ids, from_autoscaling=False):
    """moto registers what does not exist, and the same again."""
    balancer = self.get_load_balancer(load_balancer_name)
    for one in instance_ids:
        instance = ec2_backends[self.account_id][self.region_name].get_instance_by_id(one)
        if not instance or instance.state not in ("pending", "running", "stopping", "stopped"):
            raise ClassicError("InvalidInstance", f"Could not find EC2 instance {one}.")
    new = [one for one in instance_ids if one not in balancer.instance_ids]
    return register_classic(self, load_balancer_name, new, from_autoscaling)


ELBBackend.register_instances = register_known_once

tag_classic, tags_of_classic = ELBResponse.add_tags, ELBResponse.describe_tags


def tag_one(self):
    """moto tags several classic balancers at once."""
    if len(self._get_param("LoadBalancerNames", [])) != 1:
        raise ClassicError("ValidationError", "Only one load balancer can be tagged at a time")
    return tag_classic(self)


def tags_of_twenty(self):
    """moto tells the tags of any number of classic balancers."""
    if len(self._get_param("LoadBalancerNames", [])) > 20:
        raise ClassicError("ValidationError", "The maximum number of load balancers in one call is 20")
    return tags_of_classic(self)


ELBResponse.add_tags, ELBResponse.describe_tags = tag_one, tags_of_twenty

create_newer = ELBv2Backend.create_load_balancer


def create_named(self, name, scheme=None, loadbalancer_type=None, tags=None, **kwargs):
    """In moto a name can be taken twice, the scheme may be missing, and a network balancer has the ARN of an application's and
    the DNS name of a classic one."""
    scheme = scheme or "internet-facing"
    mappings = kwargs.get("subnet_mappings") or []
    subnets = {*(kwargs.get("subnet_ids") or []), *(one["SubnetId"] for one in mappings)}
    for there in self.load_balancers.values():
        if there.name == name:
            same = (
                there.scheme == scheme
                and there.type == (loadbalancer_type or "application")
                and {subnet.id for subnet in there.subnets} == subnets
                and set(there.security_groups) == set(kwargs.get("security_groups") or [])
            )
            if same:
                return there
            raise DuplicateLoadBalancerName()
    balancer = create_newer(self, name=name, scheme=scheme, loadbalancer_type=loadbalancer_type, tags=None, **kwargs)
    balancer.attrs.setdefault("access_logs.s3.enabled", "false")
    balancer.mappings = {one["SubnetId"]: one for one in mappings}
    if balancer.type == "network":
        del self.load_balancers[balancer.arn]
        balancer.arn = balancer.arn.replace(":loadbalancer/app/", ":loadbalancer/net/")
        self.load_balancers[balancer.arn] = balancer
        balancer.dns_name = f"{balancer.name}-{balancer.arn[-16:]}.elb.{self.region_name}.amazonaws.com"
    self.tagging_service.tag_resource(balancer.arn, tags)
    return balancer


ELBv2Backend.create_load_balancer = create_named

zones_of = FakeLoadBalancer.availability_zones.fget


def zones_with_addresses(self):
    zones = zones_of(self)
    for zone in zones:
        given = getattr(self, "mappings", {}).get(zone.subnet_id, {})
        address = {name: given[name] for name in ("AllocationId", "PrivateIPv4Address") if name in given}
        zone.load_balancer_addresses = [address] if address else []
    return zones


# moto does not show the addresses that a balancer was given.
FakeLoadBalancer.availability_zones = property(zones_with_addresses)

find = ELBv2Backend.describe_load_balancers


def find_all_named(self, arns, names):
    """moto forgets that a name is unknown if another one is known."""
    missing = set(names or []) - {one.name for one in self.load_balancers.values()}
    if missing:
        raise ELBClientError("LoadBalancerNotFound", f"Load balancers '[{', '.join(sorted(missing))}]' not found")
    return find(self, arns, names)


ELBv2Backend.describe_load_balancers = find_all_named

delete = ELBv2Backend.delete_load_balancer


def delete_unprotected(self, arn):
    balancer = self.load_balancers.get(arn)
    if balancer and balancer.attrs.get("deletion_protection.enabled") == "true":
        message = f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
        raise ELBClientError("OperationNotPermitted", message)
    delete(self, arn)


ELBv2Backend.delete_load_balancer = delete_unprotected

listen = ELBv2Backend.create_listener


def listen_once(self, load_balancer_arn, protocol, port, *args, **kwargs):
    """In moto several listeners can share a port, and TLS needs no certificate."""
    there = self.load_balancers[load_balancer_arn].listeners if load_balancer_arn in self.load_balancers else {}
    if any(str(one.port) == str(port) for one in there.values()):
        raise DuplicateListenerError()
    certificate = args[1] if len(args) > 1 else kwargs.get("certificate")
    if protocol in ("TLS", "HTTPS") and not certificate:
        raise ValidationError(f"A certificate must be specified for {protocol} listeners")
    return listen(self, load_balancer_arn, protocol, port, *args, **kwargs)


ELBv2Backend.create_listener = listen_once

make_listener = FakeListener.__init__


def make_plain_listener(self, *args, **kwargs):
    make_listener(self, *args, **kwargs)
    if self.protocol not in ("TLS", "HTTPS"):
        self.ssl_policy = None


# In moto listeners without TLS have its policy, too.
FakeListener.__init__ = make_plain_listener

make_group = ELBv2Backend.create_target_group


def make_group_once(self, name, **kwargs):
    """In moto a target group cannot be made again as it is."""
    for there in self.target_groups.values():
        if there.name == name:
            wanted = (kwargs.get("protocol"), str(kwargs.get("port")), kwargs.get("vpc_id"))
            if wanted == (there.protocol, str(there.port), there.vpc_id):
                return there
            raise DuplicateTargetGroupName()
    group = make_group(self, name, **kwargs)
    if group.protocol in ("TCP", "TLS", "UDP", "TCP_UDP"):
        # In moto the groups of network balancers lack these.
        group.attributes |= {"preserve_client_ip.enabled": "true", "proxy_protocol_v2.enabled": "false"}
    return group


ELBv2Backend.create_target_group = make_group_once

register = FakeTargetGroup.register


def register_known(self, targets):
    """moto registers what does not exist, and any number."""
    for target in targets:
        if target["Id"].startswith("i-") and not self.ec2_backend.get_instance_by_id(target["Id"]):
            raise InvalidTargetError()
    if len({*self.targets, *(target["Id"] for target in targets)}) > TARGETS:
        raise ELBClientError("TooManyTargets", f"The quota of {TARGETS} targets in a group is reached")
    register(self, targets)


FakeTargetGroup.register = register_known

deregister = FakeTargetGroup.deregister


def deregister_slowly(self, targets):
    deregister(self, targets)
    until = time.monotonic() + float(self.attributes["deregistration_delay.timeout_seconds"])
    for target in targets:
        self.deregistered_targets[target["Id"]]["Until"] = until


FakeTargetGroup.deregister = deregister_slowly

health = ELBv2Backend.describe_target_health


def health_of_all(self, target_group_arn, targets):
    """In moto a target that is deregistered is gone at once."""
    answer = health(self, target_group_arn, targets)
    if not targets:
        group = self.target_groups[target_group_arn]
        for one in group.deregistered_targets.values():
            if one.get("Until", 0) > time.monotonic():
                reason = ("Target.DeregistrationInProgress", "Target deregistration is in progress")
                answer.append(FakeHealthStatus(one["Id"], one["Port"], group.health_check_port, "draining", *reason))
    return answer


ELBv2Backend.describe_target_health = health_of_all

tags_of = ELBv2Backend.describe_tags


def tags_of_known(self, resource_arns):
    """moto tells the tags of any number, and none of what does not exist."""
    if len(resource_arns) > 20:
        raise ValidationError("The maximum number of resources in one call is 20")
    for arn in resource_arns:
        self._get_resource_by_arn(arn)
    return tags_of(self, resource_arns)


ELBv2Backend.describe_tags = tags_of_known

describe_groups = ELBv2Backend.describe_target_groups


def describe_groups_with_users(self, *args, **kwargs):
    """moto keeps no account of which balancers use a group once listeners change or go."""
    for group in self.target_groups.values():
        group.load_balancer_arns = []
    for balancer in self.load_balancers.values():
        for listener in balancer.listeners.values():
            for action in listener.default_actions:
                for arn in self._get_target_group_arns_from(action_data=action.data) if action.type == "forward" else []:
                    users = self.target_groups[arn].load_balancer_arns
                    users += [balancer.arn] if balancer.arn not in users else []
    return describe_groups(self, *args, **kwargs)


ELBv2Backend.describe_target_groups = describe_groups_with_users

modify_listener = ELBv2Backend.modify_listener


def modify_any_listener(self, arn, port=None, protocol=None, ssl_policy=None, certificates=None, actions=None):
    """moto knows no listener with UDP or TLS to be modified, and keeps the certificate of one that has TLS no more."""
    network = ("TCP", "UDP", "TCP_UDP", "TLS")
    listener = modify_listener(self, arn, port, None if protocol in network else protocol, ssl_policy, certificates, actions)
    if protocol not in network:
        return listener
    if protocol == "TLS":
        listener.certificates = [one["CertificateArn"] for one in certificates] if certificates else listener.certificates
        if not listener.certificates:
            raise ValidationError("A certificate must be specified for TLS listeners")
        listener.certificate = listener.certificates[0]
    else:
        listener.certificate, listener.certificates, listener.ssl_policy = None, [], None
    listener.protocol = protocol
    return listener


ELBv2Backend.modify_listener = modify_any_listener
