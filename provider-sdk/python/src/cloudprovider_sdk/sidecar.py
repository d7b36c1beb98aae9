"""The complete main function of a sidecar."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from inspect import isawaitable

from cloudprovider_sdk import logs
from cloudprovider_sdk.options import ServeOptions, add_flags
from cloudprovider_sdk.provider import Provider
from cloudprovider_sdk.server import serve

Build = Callable[[argparse.Namespace], Provider | Awaitable[Provider]]


def main(build: Build, parser: argparse.ArgumentParser | None = None) -> None:
    """Parse the flags, set up logs on stderr, create the provider, and serve it until SIGTERM or SIGINT.

    `parser` may have flags of your own; those of `ServeOptions` are added. `build` receives all of them, runs in the event
    loop, and may be async.
    """
    flags = add_flags(parser or argparse.ArgumentParser()).parse_args()
    try:
        options = ServeOptions.from_flags(flags)
        logs.setup(options.log_format, options.log_level)
        asyncio.run(_serve(build, flags, options))
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")


async def _serve(build: Build, flags: argparse.Namespace, options: ServeOptions) -> None:
    provider = build(flags)
    await serve(await provider if isawaitable(provider) else provider, options)
