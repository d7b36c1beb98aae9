"""The inventory: a YAML file of machines and address pools, which is used as a whole or not at all. The README describes it."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb

PREFIX = "inventory://"
STATES = {"running": pb.INSTANCE_STATE_RUNNING, "stopped": pb.INSTANCE_STATE_STOPPED}

Found = tuple[pb.InstanceState.ValueType, pb.Instance]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One entry of `machines`, with the field names of the file."""

    name: str
    id: str = ""
    state: str = "running"
    system_uuid: str = ""
    type: str = ""
    zone: str = ""
    region: str = ""
    internal_ips: list[str] = field(default_factory=list)
    external_ips: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)

    def found(self) -> Found:
        instance = pb.Instance(provider_id=PREFIX + (self.id or self.name), name=self.name, instance_type=self.type)
        instance.MergeFrom(pb.Instance(zone=self.zone, region=self.region, labels=self.labels))
        for kind, ips in (("INTERNAL_IP", self.internal_ips), ("EXTERNAL_IP", self.external_ips)):
            for ip in ips:
                instance.addresses.add(type=f"NODE_ADDRESS_TYPE_{kind}", address=str(ipaddress.ip_address(ip)))
        instance.addresses.add(type=pb.NODE_ADDRESS_TYPE_HOSTNAME, address=self.name)
        return STATES[self.state], instance


@dataclass(frozen=True)
class Contents:
    machines: Mapping[str, Found]
    """By provider ID."""
    pools: list[Network]
    ids: Mapping[str, str] = field(default_factory=dict)
    """Provider IDs by system UUID."""

    @classmethod
    def parse(cls, text: str) -> "Contents":
        """Parse the whole file. Raises if anything is wrong: a skipped machine would look like one that was removed."""
        if not text.rstrip().endswith("\n..."):
            raise ValueError("the last line is not '...': the file may be half written")
        data = yaml.safe_load(text)
        entries = [Machine(**entry) for entry in data["machines"]]
        found = [entry.found() for entry in entries]
        machines = {instance.provider_id: (state, instance) for state, instance in found}
        if not found or len(machines) < len(found) or len({instance.name for _, instance in found}) < len(found):
            raise ValueError("no machine, or a duplicate name or id")
        known = zip(entries, machines, strict=True)
        ids = {entry.system_uuid: provider_id for entry, provider_id in known if entry.system_uuid}
        return cls(machines, [ipaddress.ip_network(pool) for pool in data.get("pools", [])], ids)


class Inventory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp, self._contents = (0, 0, 0), Contents({}, [])

    def read(self) -> Contents:
        """Return the file's current contents. An unusable file is an outage: it must not make any machine look removed."""
        try:
            found = self.path.stat()
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp != self._stamp:
                self._contents = Contents.parse(self.path.read_text())
                self._stamp = stamp
        except (OSError, AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
            raise errors.cloud_api_unavailable(f"cannot use the inventory {self.path}") from error
        return self._contents
