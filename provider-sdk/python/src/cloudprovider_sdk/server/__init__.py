"""Serves a provider until it is stopped: over a Unix socket, or over TCP with mutual TLS."""

from cloudprovider_sdk.server.run import Server, serve

__all__ = ["Server", "serve"]
