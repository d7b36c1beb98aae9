"""Serves moto on a free port of the loopback address, prints the address to stdout, and exits when stdin ends.

Where moto lacks something that the AWS provider relies on, this fills in AWS's answer; the README lists each case.
"""

import logging
import sys

from moto.core.responses import ActionResult
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.models.route_tables import Route
from moto.ec2.responses.instances import InstanceResponse
from moto.elb.models import ELBBackend, FakeHealthCheck
from moto.elbv2.models import ELBv2Backend
from moto.server import ThreadedMotoServer


def ended(route):
    return route.instance is not None and route.instance.state == "terminated"


# In moto a route to a terminated instance stays active. In EC2 it becomes a blackhole without an instance.
Route.state = property(lambda route: "blackhole" if ended(route) else "active")
Route.instance_id = property(lambda route: None if route.instance is None or ended(route) else route.instance.id)

find_by_ids = InstanceBackend.get_reservations_by_instance_ids


def find_once(self, instance_ids, *args, **kwargs):
    return find_by_ids(self, list(dict.fromkeys(instance_ids)), *args, **kwargs)


# moto fails if one call names an instance twice, as the provider does when it batches calls.
InstanceBackend.get_reservations_by_instance_ids = find_once

create_classic = ELBBackend.create_load_balancer


def create_checked(self, *args, **kwargs):
    balancer = create_classic(self, *args, **kwargs)
    target = f"TCP:{balancer.listeners[0].instance_port}"
    balancer.health_check = FakeHealthCheck(
        timeout="5", healthy_threshold="10", unhealthy_threshold="2", interval="30", target=target
    )
    return balancer


# In moto a new classic balancer has no health check. Elastic Load Balancing gives it this one.
ELBBackend.create_load_balancer = create_checked

create_newer = ELBv2Backend.create_load_balancer


def create_named(self, *args, **kwargs):
    balancer = create_newer(self, *args, **kwargs)
    if balancer.type == "network":
        balancer.dns_name = f"{balancer.name}-{balancer.arn[-16:]}.elb.{self.region_name}.amazonaws.com"
    return balancer


# In moto a network balancer has the DNS name of a classic one. The provider tells them apart by it.
ELBv2Backend.create_load_balancer = create_named

# moto lacks this call. EC2 returns no topology for an instance of a small type.
InstanceResponse.describe_instance_topology = lambda self: ActionResult({"Instances": []})

logging.getLogger("werkzeug").setLevel(logging.WARNING)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
