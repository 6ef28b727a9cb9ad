"""A daemon inside the process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import ipfrs
from conftest import url_of

NO_GRPC: Any = {"enabled": False}
ANY_PORT: Any = {"port": 0}


def test_gateway_serves_any_http_client(gateway: ipfrs.Gateway) -> None:
    with gateway.client() as client:
        folder = client.add(b"hello", name="a.txt", wrap=True)
    with urllib.request.urlopen(f"{gateway.url}/ipfs/{folder}/a.txt", timeout=30) as answer:
        assert (answer.status, answer.read()) == (200, b"hello")
        assert answer.headers["Content-Type"].startswith("text/plain")


def test_gateway_restart_keeps_content(tmp_path: Path) -> None:
    gateway = ipfrs.Gateway(repo=tmp_path, server=ANY_PORT, grpc=NO_GRPC)
    assert not gateway.running and repr(gateway) == "<ipfrs.Gateway (stopped)>"
    with gateway, gateway.client() as client:
        assert gateway.start() is gateway and gateway.urls == [gateway.url] and gateway.url in repr(gateway)
        cid = client.add(b"hello")
        with pytest.raises(ipfrs.ConflictError):
            ipfrs.Node(tmp_path)
    gateway.stop()
    for ask in (lambda: gateway.url, lambda: gateway.client(), lambda: gateway.repo):
        with pytest.raises(RuntimeError, match="start"):
            ask()
    with gateway, gateway.client() as client:
        assert client.cat(cid) == b"hello"
    with ipfrs.Node(tmp_path) as node:
        assert node.cat(cid) == b"hello"


def test_sections_win_over_the_configuration_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(
        '[server]\nport = 1\nhost = "127.0.0.1"\n[import]\nprofile = "unixfs-v1-2025"\n'
    )
    sections = {"server": {"port": 1, "host": "127.0.0.1"}, "import": {"profile": "unixfs-v1-2025"}}
    for config in (tmp_path / "gateway.toml", sections):
        with ipfrs.Gateway(config, repo=tmp_path / "repo", server=ANY_PORT, grpc=NO_GRPC) as gateway:  # type: ignore[arg-type]
            assert not gateway.url.endswith(":1") and gateway.grpc_addresses == []
            with gateway.client() as client:
                assert client.add(b"hello world") == "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"


def test_invalid_configuration_is_named_in_error(tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"server": {"prt": 0}}, "port"),
        ({"sever": {"port": 0}}, "server"),
        ({"server": {"port": 70_000}}, "port"),
        ({"server": {"port": "x"}}, "port"),
    ]
    for sections, named in wrong:
        with pytest.raises(ipfrs.InvalidInputError, match=named):
            ipfrs.Gateway(sections, repo=tmp_path / "repo")
    with pytest.raises(TypeError, match="server is int, not a section"):
        ipfrs.Gateway(repo=tmp_path, server=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="config"):
        ipfrs.Gateway(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        ipfrs.Gateway(tmp_path / "missing.toml", repo=tmp_path / "repo")
    assert not (tmp_path / "repo").exists()


def test_grpc_listens_where_it_is_asked_to(tmp_path: Path) -> None:
    with ipfrs.Gateway(repo=tmp_path, server=ANY_PORT, grpc=ANY_PORT) as gateway:
        assert len(gateway.grpc_addresses) == 1


def test_client_reports_unreachable_daemon(tmp_path: Path) -> None:
    with ipfrs.Gateway(repo=tmp_path, server=ANY_PORT, grpc=NO_GRPC) as gateway:
        client = gateway.client()
    with client, pytest.raises(ConnectionError) as caught:
        client.version()
    assert isinstance(caught.value, ipfrs.UnavailableError) and client.url in str(caught.value)


def test_client_timeout_is_respected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = url_of(silent)
        with ipfrs.Client(url, timeout=0.05) as client, pytest.raises(TimeoutError) as caught:
            client.version()
    assert isinstance(caught.value, ipfrs.TimeoutError)


@pytest.mark.parametrize("url", ["", "no url", "ftp://127.0.0.1", "http://", "127.0.0.1:8080"])
def test_invalid_url_is_rejected_at_once(url: str) -> None:
    with pytest.raises(ipfrs.InvalidInputError):
        ipfrs.Client(url)
    with pytest.raises(ipfrs.InvalidInputError):
        ipfrs.AsyncClient(url)


def test_gateway_defaults_to_free_port_and_no_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ipfrs.Gateway(repo=tmp_path / "first") as first, ipfrs.Gateway(repo=tmp_path / "second") as second:
        assert first.url != second.url and first.grpc_addresses == second.grpc_addresses == []
        for one, other in ((first, second), (second, first)):
            with one.client() as client, other.client() as stranger:
                cid = client.add(one.url.encode())
                assert client.cat(cid) == one.url.encode() and not stranger.has(cid)
        with pytest.raises(ipfrs.ConflictError):
            ipfrs.Gateway(repo=tmp_path / "first").start()
    (tmp_path / "first" / "config.toml").write_text("[grpc]\nport = 0\n")
    with ipfrs.Gateway(repo=tmp_path / "first") as gateway:
        assert len(gateway.grpc_addresses) == 1
    monkeypatch.setenv("IPFRS_IMPORT_PROFILE", "unixfs-v1-2025")
    with ipfrs.Gateway(repo=tmp_path / "first") as gateway, gateway.client() as client:
        assert client.add(b"hello").startswith("bafk")


def test_gateway_stopped_by_request_is_not_running(tmp_path: Path) -> None:
    gateway = ipfrs.Gateway(repo=tmp_path).start()
    urllib.request.urlopen(urllib.request.Request(f"{gateway.url}/api/v0/shutdown", method="POST"), timeout=30).close()
    gateway.stop()
    assert not gateway.running
    with ipfrs.Node(tmp_path) as node:
        assert node.stats()["blocks"] == 0


def test_dropped_gateway_stops_without_blocking(tmp_path: Path) -> None:
    size = 16 * 1024 * 1024
    gateway = ipfrs.Gateway(repo=tmp_path).start()
    with gateway.client() as client:
        pieces = client.chunks(client.add(bytes(size)))
        received = len(next(pieces))
        # Waiting here would deadlock, because this thread reads the rest of the transfer afterwards.
        with pytest.warns(ResourceWarning, match="stop"):
            del gateway
        assert received + sum(map(len, pieces)) == size


def test_interpreter_exit_waits_for_dropped_gateway(tmp_path: Path) -> None:
    code = "import ipfrs, sys; gateway = ipfrs.Gateway(repo=sys.argv[1]).start(); del gateway"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], check=True, timeout=60)
    assert not (tmp_path / "api").exists()
    with ipfrs.Node(tmp_path) as node:
        assert node.stats()["blocks"] == 0


def test_gateway_stop_lets_transfers_finish(tmp_path: Path) -> None:
    size = 16 * 1024 * 1024
    with ipfrs.Gateway(repo=tmp_path) as gateway, gateway.client() as client:
        pieces = client.chunks(client.add(bytes(size)))
        received = len(next(pieces))
        stopping = threading.Thread(target=gateway.stop)
        stopping.start()
        received += sum(map(len, pieces))
        stopping.join()
    assert received == size and not (tmp_path / "api").exists()


def test_a_gateway_is_silent_and_ends_with_the_interpreter(tmp_path: Path) -> None:
    code = (
        "import ipfrs, sys\n"
        "gateway = ipfrs.Gateway(repo=sys.argv[1]).start()\n"
        "client = gateway.client()\n"
        "assert not client.has(client.add(b'hello', only_hash=True, cid_version=1))\n"
        "try:\n"
        "    client.cat('bafkreiafvynwucuwsa6bekk6pffisurkiqckyv4tphi7ndscjxaskatcny')\n"
        "except KeyError:\n"
        "    print('once')\n"
        "pieces = client.chunks(client.add(bytes(16 * 1024 * 1024)))\n"
        "next(pieces)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "once\n", "")
    assert not (tmp_path / "api").exists()


def test_node_retrieves_what_it_lacks(gateway: ipfrs.Gateway, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4_000
    with gateway.client() as client:
        cid = client.add(content)
    retrieval = {"gateways": [gateway.url]}
    with ipfrs.Node(tmp_path, config={"retrieval": retrieval}) as node:
        assert not node.has(cid)
        assert node.cat(cid) == content


def test_gateway_authenticates_its_callers(tmp_path: Path) -> None:
    auth: Any = {"enabled": True}
    with ipfrs.Gateway(repo=tmp_path, server=ANY_PORT, grpc=NO_GRPC, auth=auth) as gateway:
        with gateway.client() as own:
            cid = own.add(b"hello")
            created = urllib.request.Request(
                f"{gateway.url}/v1/auth/keys",
                data=b'{"scopes": ["read"]}',
                headers={"Authorization": f"Bearer {(tmp_path / 'api-token').read_text()}"},
            )
            with urllib.request.urlopen(created, timeout=30) as answer:
                token = json.load(answer)["token"]
        with ipfrs.Client(gateway.url, token) as reader:
            assert reader.cat(cid) == b"hello"
            with pytest.raises(ipfrs.ForbiddenError, match="this needs write"):
                reader.add(b"more")
        for wrong in (None, "wrong"):
            with ipfrs.Client(gateway.url, wrong) as stranger, pytest.raises(ipfrs.UnauthenticatedError):
                stranger.stats()
    assert not (tmp_path / "api-token").exists()
