"""Route tables."""

from moto.ec2.models.route_tables import Route


def ended(route):
    return route.instance is not None and route.instance.state == "terminated"


# In moto a route to a terminated instance stays active. In EC2 it becomes a blackhole without an instance.
Route.state = property(lambda route: "blackhole" if ended(route) else "active")
Route.instance_id = property(lambda route: None if route.instance is None or ended(route) else route.instance.id)
