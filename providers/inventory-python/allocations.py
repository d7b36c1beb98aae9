"""The file that records which Service has which address. Each write replaces it atomically, and returns when it is on disk.

The software that announces the addresses reads it: kube-vip, keepalived, a router's configuration.
"""

import json
import os
from pathlib import Path
from typing import Any

from cloudprovider_sdk import errors

Row = dict[str, Any]
"""One balancer: `cluster`, `namespace`, `name`, `uid`, `address`, `ports` (protocol, port, node port), `source_ranges`,
`health_check_port` (where a node reports whether it serves; 0: every node does), `digest`, `backends` (addresses by node)."""


class Allocations:
    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Row]:
        try:
            rows: dict[str, Row] = json.loads(self.path.read_text()) if self.path.exists() else {}
        except (OSError, ValueError) as error:
            # Treating it as empty would allocate an address twice.
            raise errors.cloud_api_unavailable(f"cannot read the allocations in {self.path}") from error
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
