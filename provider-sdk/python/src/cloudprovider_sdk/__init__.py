"""Build a sidecar: implement a class for each service that your cloud has, and `main` serves it.

The package's README lists what the SDK does for you, and what your provider must do.
"""

from cloudprovider_sdk import errors, logs, proto, results
from cloudprovider_sdk.call import Call, Peer
from cloudprovider_sdk.errors import ProviderError
from cloudprovider_sdk.options import Endpoint, ServeOptions, add_flags
from cloudprovider_sdk.paging import open_page_token, page, seal_page_token
from cloudprovider_sdk.provider import Provider
from cloudprovider_sdk.server import Server, serve
from cloudprovider_sdk.services import CloudProvider, Clusters, Instances, LoadBalancers, Routes, Volumes
from cloudprovider_sdk.sidecar import main
from cloudprovider_sdk.watch import Bookmark, ChangeFeed, InstanceWatch

__all__ = [
    "Bookmark",
    "Call",
    "ChangeFeed",
    "CloudProvider",
    "Clusters",
    "Endpoint",
    "InstanceWatch",
    "Instances",
    "LoadBalancers",
    "Peer",
    "Provider",
    "ProviderError",
    "Routes",
    "ServeOptions",
    "Server",
    "Volumes",
    "add_flags",
    "errors",
    "logs",
    "main",
    "open_page_token",
    "page",
    "proto",
    "results",
    "seal_page_token",
    "serve",
]
