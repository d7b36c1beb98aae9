"""Classic and network balancers."""

from moto.elb.models import ELBBackend, FakeHealthCheck
from moto.elbv2.models import ELBv2Backend

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
