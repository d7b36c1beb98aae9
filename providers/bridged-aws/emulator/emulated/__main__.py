"""Serves on a free port of the loopback address, prints the address to stdout, and exits when stdin ends."""

import logging
import sys

from moto.server import ThreadedMotoServer

from . import balancers, groups, instances, routes  # noqa: F401

logging.getLogger("werkzeug").setLevel(logging.WARNING)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
