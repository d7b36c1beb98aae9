"""Serves a provider: over a Unix socket, or over TCP with mutual TLS, until it is told to stop."""

from cloudprovider_sdk.server.run import Server, serve

__all__ = ["Server", "serve"]
