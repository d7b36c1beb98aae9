"""The socket: who can reach it, and who owns it."""

import asyncio
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cloud import Cloud
from fixture import PATIENCE, batch, clients, serving

from cloudprovider_sdk import Endpoint, ServeOptions, Server
from cloudprovider_sdk.server import run


def options(path: Path) -> ServeOptions:
    return ServeOptions(endpoint=Endpoint(path=path))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_socket_is_for_owner_and_group_in_a_private_directory(tmp_path: Path) -> None:
    async with serving(Cloud().provider(), tmp_path) as it:
        assert (mode(it.socket), mode(it.socket.parent)) == (0o660, 0o700)
    assert not it.socket.exists(), "gone at the end"


async def test_a_directory_is_shared_with_the_group_that_is_handed_on(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o2777)
    async with serving(Cloud().provider(), volume) as it:
        assert mode(it.socket.parent) == 0o2750


@pytest.mark.parametrize(("directory", "accepted"), [(0o700, True), (0o750, True), (0o755, False), (0o770, False)])
async def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path, directory: int, accepted: bool) -> None:
    place = tmp_path / "ccm"
    place.mkdir()
    place.chmod(directory)
    if accepted:
        async with serving(Cloud().provider(), tmp_path) as it:
            assert it.socket.exists()
    else:
        with pytest.raises(PermissionError, match=rf"mode 0{directory:o}.*use 0700, or 0750"):
            Server(Cloud().provider(), options(place / "provider.sock"))


async def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    place = tmp_path / "ccm"
    place.mkdir(mode=0o700)
    os.chown(place, 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to uid 12345"):
        Server(Cloud().provider(), options(place / "provider.sock"))


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "ccm"
    place.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place / "provider.sock"))
    async with serving(Cloud().provider(), tmp_path) as it, it.channel() as channel:
        await clients(channel).instances.BatchGetInstances(batch("fine"))


async def test_a_socket_in_use_is_left_alone(tmp_path: Path) -> None:
    async with serving(Cloud().provider(), tmp_path) as it, it.channel() as channel:
        with pytest.raises(OSError, match="already in use"):
            Server(Cloud().provider(), options(it.socket))
        await clients(channel).instances.BatchGetInstances(batch("fine"))


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "provider.sock"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="is not a socket"):
        Server(Cloud().provider(), options(path))
    assert path.read_text() == "precious"


async def test_a_start_that_fails_leaves_no_socket(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = ("127.0.0.1", other.getsockname()[1])
        server = Server(Cloud().provider(), replace(options(tmp_path / "ccm" / "p.sock"), metrics_address=address))
        with pytest.raises(OSError, match="cannot serve metrics"):
            await server.run(signals=False)
    assert not (tmp_path / "ccm" / "p.sock").exists()


async def test_a_silent_connection_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_HANDSHAKE_WITHIN_MS", 100)
    async with serving(Cloud().provider(), tmp_path) as it:
        reader, writer = await asyncio.open_unix_connection(str(it.socket))
        async with asyncio.timeout(PATIENCE):
            await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    async with serving(Cloud().provider(), tmp_path / "a b%20#?") as it:
        assert stat.S_ISSOCK(it.socket.stat().st_mode)
        _, writer = await asyncio.open_unix_connection(str(it.socket))
        writer.close()
        await writer.wait_closed()
