"""Who got which address: a file that is replaced as a whole, and believed when it is on the disk.

What announces the addresses reads it: kube-vip, keepalived, a router's configuration.
"""

import json
import os
from pathlib import Path
from typing import Any

from cloudprovider_sdk import errors

Row = dict[str, Any]
"""One balancer: `cluster`, `namespace`, `name`, `uid`, `address`, `ports` (protocol, port, node port), `source_ranges`,
`health_check_port` (of a node that says whether it serves; 0: all do), `digest`, `backends` (addresses by node)."""


class Allocations:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Row]:
        try:
            rows: dict[str, Row] = json.loads(self.path.read_text()) if self.path.exists() else {}
        except (OSError, ValueError) as error:
            # Never taken for empty: an address would be given away twice.
            raise errors.cloud_api_unavailable(f"the allocations in {self.path} cannot be used") from error
        return rows

    def write(self, rows: dict[str, Row]) -> None:
        beside = self.path.with_name(f"{self.path.name}~")
        with beside.open("w") as out:
            json.dump(rows, out, indent=2, sort_keys=True)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
