"""Serves on a free port of the loopback address, prints the address to stdout, and exits when stdin ends."""

import logging
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

from . import balancers, groups, instances, routes  # noqa: F401

turn = threading.Lock()
answer = DomainDispatcherApplication.__call__


def answer_in_turn(self, environ, start_response):
    """In moto a call that walks over a table fails if another call adds to the table meanwhile."""
    with turn:
        return answer(self, environ, start_response)


DomainDispatcherApplication.__call__ = answer_in_turn
logging.getLogger("werkzeug").setLevel(logging.WARNING)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
