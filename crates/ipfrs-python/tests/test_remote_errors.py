"""Client behaviour with faulty daemons: wrong data, broken connections, missing tokens, and partial reads."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import ipfrs

HELLO = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq"
WORLD = "bafkreicinj7kgqv7cs3jm5bvbeehnvuopylpbnwfywkqlalbc5sbv3vpuq"
CHUNK = 262_144


class Handler(BaseHTTPRequestHandler):
    """Handles every request with the script of its server."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        self.server.script(self, body)  # type: ignore[attr-defined]

    do_GET = do_POST = answer

    def send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


Requests = list[tuple[str, dict[str, str], bytes]]


@contextmanager
def scripted(script: Callable[[Handler, bytes], None]) -> Iterator[tuple[str, Requests]]:
    """Runs a scripted HTTP server. Yields its URL and the requests that it receives."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.script, server.requests = script, []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.requests  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def saying(body: bytes, status: int = 200, **headers: str) -> Callable[[Handler, bytes], None]:
    return lambda handler, _: handler.send(body, status, **headers)


def test_wrong_blocks_are_rejected() -> None:
    with scripted(saying(b"a lie")) as (url, _), ipfrs.Client(url) as client:
        with pytest.raises(ipfrs.CorruptError, match=HELLO) as caught:
            client.get(HELLO)
        assert url in str(caught.value) and isinstance(caught.value, OSError)
        with pytest.raises(ipfrs.CorruptError, match="CAR"):
            client.get_many([HELLO])


def test_archive_with_wrong_or_extra_block_is_rejected(node: ipfrs.Node) -> None:
    other = node.put(b"what nobody asked for")
    car = b"".join(node.export_car(other))
    for lie in (car, car.replace(b"what nobody", b"what nobodY"), car[:-3]):
        with scripted(saying(lie)) as (url, _), ipfrs.Client(url) as client:
            with pytest.raises(ipfrs.CorruptError):
                client.get_many([HELLO])


@pytest.mark.parametrize("size", [0, 3, 4, 12])
def test_a_tensor_of_another_size_than_its_shape_is_refused(size: int) -> None:
    answer = saying(bytes(size), X_Tensor_Dtype="F32", X_Tensor_Shape="2")
    with scripted(answer) as (url, _), ipfrs.Client(url) as client:
        with pytest.raises(ipfrs.CorruptError, match=f"received {size} bytes of tensor 'w', which has 8"):
            client.tensor(HELLO, "w")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_token_is_sent_always_and_never_shown(asynchronous: bool, wait: Callable[[Any], Any]) -> None:
    with scripted(saying(b'{"Version":"1"}')) as (url, requests):
        if asynchronous:
            aclient = ipfrs.AsyncClient(url + "/prefix/", "s3cret")
            assert "s3cret" not in repr(aclient) and wait(aclient.version()) == "1"
            wait(aclient.close())
        else:
            with ipfrs.Client(url + "/prefix/", "s3cret") as client:
                assert "s3cret" not in repr(client) and client.version() == "1"
        assert [path for path, _, _ in requests] == ["/prefix/api/v0/version"]
        headers = {name.lower(): value for name, value in requests[0][1].items()}
        assert headers["authorization"] == "Bearer s3cret" and headers["user-agent"].startswith("ipfrs-python/")
    with pytest.raises(ipfrs.InvalidInputError) as caught:
        ipfrs.Client(url, "s3cret\n")
    assert "s3cret" not in str(caught.value)
    with ipfrs.Client("http://me:s3cret@127.0.0.1:1/at@home") as client:
        assert repr(client) == "<ipfrs.Client http://127.0.0.1:1/at@home>"
        with pytest.raises(ipfrs.UnavailableError) as unanswered:
            client.version()
        assert "s3cret" not in str(unanswered.value)


@pytest.mark.parametrize(
    "answer, error",
    [
        (saying(b'{"Message":"m","Code":0,"Type":"error","Kind":"conflict"}', 500), ipfrs.ConflictError),
        (saying(b'{"Message":"m: ipld: could not find b","Code":0,"Type":"error"}', 500), ipfrs.NotFoundError),
        (saying(b'{"Message":"m","Code":0,"Type":"error"}', 500), ipfrs.InternalError),
        (saying(b'{"Message":"m is blocked and cannot be provided","Code":0,"Type":"error"}', 500), ipfrs.GoneError),
        (saying(b'{"detail":"m","code":"no_space"}', 507), ipfrs.NoSpaceError),
        (saying(b"m", 401), ipfrs.UnauthenticatedError),
        (saying(b"m", 403), PermissionError),
        (saying(b"m", 429), ipfrs.RateLimitedError),
        (saying(b"m", 502), ipfrs.UnavailableError),
        (saying(b"<html>m</html>", 404), ipfrs.UnsupportedError),
        (saying(b"", 308, Location="https://m.example/"), ipfrs.InvalidInputError),
    ],
)
def test_daemon_error_kind_is_preserved(answer: Callable[[Handler, bytes], None], error: type[Exception]) -> None:
    with scripted(answer) as (url, requests), ipfrs.Client(url) as client:
        with pytest.raises(error, match="m") as caught:
            client.put(b"hello")
        assert "ipld" not in str(caught.value) and len(requests) == 1


def test_response_of_impossible_length_raises() -> None:
    def boast(handler: Handler, _: bytes) -> None:
        if handler.path.startswith("/v1/block/batch/put"):
            handler.send(b'{"transaction_status":"committed"}')
        else:
            handler.send_response(200)
            handler.send_header("Content-Length", str(2**62))
            handler.end_headers()
            handler.close_connection = True

    with scripted(boast) as (url, _), ipfrs.Client(url) as client:
        with pytest.raises(ipfrs.CorruptError, match="sent more than"):
            client.put_many([b"hello"], pin=True)
        with pytest.raises(ipfrs.CorruptError, match="sent more than"):
            client.get(HELLO)
        with pytest.raises(MemoryError):
            client.cat(HELLO)


def test_path_cannot_reach_another_route() -> None:
    with scripted(saying(b"", 404)) as (url, requests), ipfrs.Client(url) as client:
        for path in ("../../api/v0/version", f"/ipfs/{HELLO}/../{WORLD}", f"{HELLO}/./a"):
            with pytest.raises(ipfrs.UnsupportedError):
                client.tensors(path)
        # The one command that takes the dots as names, in its query.
        assert [request[0].partition("?")[0] for request in requests] == ["/api/v0/files/stat"] * 3
        with pytest.raises(ipfrs.UnsupportedError):
            client.tensors(f"{HELLO}/a?b#c%2e/\u00fc")
        assert requests[3][0] == f"/v1/tensor/{HELLO}/a%3Fb%23c%252e/%C3%BC?info="


def test_client_requires_url_and_accepts_any_timeout(client: ipfrs.Client) -> None:
    with ipfrs.Client(client.url, timeout=1e19) as patient:
        assert patient.cat(patient.add(b"hello")) == b"hello"
    with pytest.raises(ipfrs.InvalidInputError, match="that of a daemon"):
        ipfrs.Client("")
    with pytest.raises(ipfrs.InvalidInputError, match="above 0"):
        ipfrs.Client(client.url, timeout=0)


def test_truncated_response_raises() -> None:
    def break_off(handler: Handler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"half")
        handler.close_connection = True

    with scripted(break_off) as (url, requests), ipfrs.Client(url) as client:
        buffer = bytearray(1000)
        calls: list[Callable[[], Any]] = [
            lambda: client.get(HELLO),
            lambda: client.cat(HELLO),
            lambda: client.readinto(HELLO, buffer),
            lambda: list(client.chunks(HELLO)),
            lambda: client.version(),
            lambda: client.get_many([HELLO]),
            lambda: client.ls(HELLO),
        ]
        for call in calls:
            with pytest.raises(ConnectionError, match="4 bytes") as caught:
                call()
            assert isinstance(caught.value, ipfrs.UnavailableError)


def test_stream_failure_raises_error_of_daemon() -> None:
    entry = {"Objects": [{"Hash": HELLO, "Links": [{"Name": "a", "Hash": HELLO, "Size": 5, "Type": 2, "Target": ""}]}]}
    failure = {"Message": "block b is not in this store", "Code": 0, "Type": "error", "Kind": "not_found"}
    lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (entry, failure))
    with scripted(saying(lines.encode())) as (url, _), ipfrs.Client(url) as client:
        with pytest.raises(ipfrs.NotFoundError, match="block b is not"):
            client.ls(HELLO)

    def with_trailer(handler: Handler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Trailer", "X-Stream-Error")
        handler.end_headers()
        handler.wfile.write(b"4\r\nhalf\r\n0\r\nX-Stream-Error: no such: ipld: could not find b\r\n\r\n")

    with scripted(with_trailer) as (url, requests), ipfrs.Client(url) as client:
        with pytest.raises(ipfrs.NotFoundError, match="^no such$"):
            list(client.export_car(HELLO))
        assert requests[0][1]["te"] == "trailers"


def test_missing_block_within_file_is_named(tmp_path: Path) -> None:
    with ipfrs.Gateway(repo=tmp_path) as gateway, gateway.client() as client:
        content = bytes(range(256)) * (3 * CHUNK // 256) + b"end"
        cid = client.add(content, raw_leaves=True, pin=False)
        last = client.put(b"end")
        client.rm(last)
        assert client.cat(cid, length=3 * CHUNK) == content[:-3]
        pieces = client.chunks(cid)
        with pytest.raises(ipfrs.NotFoundError, match=last):
            list(pieces)
        with pytest.raises(ipfrs.NotFoundError, match=last):
            client.cat(cid)


def test_daemon_killed_during_response_raises(tmp_path: Path) -> None:
    code = (
        "import ipfrs, sys, time\n"
        "gateway = ipfrs.Gateway(repo=sys.argv[1]).start()\n"
        "print(gateway.url, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            with ipfrs.Client(url) as client:
                size = 24 * 1024 * 1024
                pieces = client.chunks(client.add(bytes(size)))
                next(pieces)
                process.kill()
                process.wait()
                with pytest.raises(ipfrs.UnavailableError, match="ended early after"):
                    list(pieces)
                with pytest.raises(ipfrs.UnavailableError, match="gateway start"):
                    client.version()
        finally:
            process.kill()


def test_read_on_closed_idle_connection_is_retried() -> None:
    answered: list[str] = []

    def serve(listener: socket.socket) -> None:
        body = b'{"Version":"1","Key":"k","Size":1}'
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                for count in range(2):
                    head = [line for line in iter(stream.readline, b"\r\n") if line]
                    if not head:
                        break
                    if count == 1:
                        # The server reads the second request on the connection, and closes the connection.
                        break
                    lengths = [int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length")]
                    stream.read(sum(lengths))
                    answered.append(head[0].decode())
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            with ipfrs.Client(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
                assert [client.version() for _ in range(3)] == ["1"] * 3
                # The daemon may have executed a request with side effects, so the client must not send it again.
                with pytest.raises(ipfrs.UnavailableError, match="before the response"):
                    client.pin(HELLO)
            assert len(answered) == 3
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_batch_size_adapts_to_limit_of_daemon(tmp_path: Path) -> None:
    with ipfrs.Gateway(repo=tmp_path, batch={"max_batch_size": 100}) as gateway, gateway.client() as client:
        blocks = [b"%d" % number for number in range(100)]
        cids = client.put_many(blocks)
        asked = cids * 7 + [WORLD]
        assert [None if block is None else bytes(block) for block in client.get_many(asked)] == [*blocks * 7, None]
        assert client.has_many(asked) == [True] * 700 + [False]
        with pytest.raises(ipfrs.TooLargeError, match="batch.max_batch_size"):
            client.put_many([b"%d" % number for number in range(101)])
        assert not client.has(client.add(b"100", only_hash=True, cid_version=1))


def test_many_blocks_are_one_request(gateway: ipfrs.Gateway) -> None:
    counted: list[str] = []

    def forward(handler: Handler, body: bytes) -> None:
        import urllib.request

        counted.append(urlsplit(handler.path).path)
        headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
        request = urllib.request.Request(gateway.url + handler.path, body or None, headers, method=handler.command)
        with urllib.request.urlopen(request, timeout=30) as answer:
            handler.send(answer.read())

    with scripted(forward) as (url, _), ipfrs.Client(url) as client:
        blocks = [b"block %d" % number for number in range(1000)]
        cids = client.put_many(blocks)
        assert [bytes(block or b"") for block in client.get_many(cids)] == blocks and all(client.has_many(cids))
    assert counted == [f"/v1/block/batch/{name}" for name in ("put", "get", "has")]


def test_add_options_use_kubo_names() -> None:
    line = b'{"Name":"","Hash":"' + HELLO.encode() + b'","Size":"5"}\n'

    def drain(handler: Handler, _: bytes) -> None:
        while size := int(handler.rfile.readline(), 16):
            handler.rfile.read(size + 2)
        handler.rfile.readline()
        handler.send(line)

    with scripted(drain) as (url, requests), ipfrs.Client(url) as client:
        assert client.add(b"hello", cid_version=1, chunker="size-1024", trickle=True, inline=True, pin=False) == HELLO
        query = parse_qs(urlsplit(requests[0][0]).query)
    assert query == {
        "pin": ["false"],
        "cid-version": ["1"],
        "chunker": ["size-1024"],
        "trickle": ["true"],
        "inline": ["true"],
        "inline-limit": ["32"],
    }


def test_unreadable_file_fails_upload_with_cause(client: ipfrs.Client, tmp_path: Path) -> None:
    before = client.pins()
    with pytest.raises(FileNotFoundError, match="missing"):
        client.add_dir(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "good").write_bytes(bytes(3_000_000))
    with socket.socket(socket.AF_UNIX) as special:
        special.bind(str(tmp_path / "folder" / "special"))
        with pytest.raises(ipfrs.InvalidInputError, match="neither a file nor a directory"):
            client.add_dir(tmp_path / "folder")
    assert client.pins() == before


def test_a_listing_is_bounded() -> None:
    def send_too_much(handler: Handler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("X-Content-Length", str(2**31))
        handler.end_headers()
        handler.wfile.write(b'{"Objects":[],"Cid":"%b"}\n' % HELLO.encode())
        handler.close_connection = True

    with scripted(send_too_much) as (url, _), ipfrs.Client(url) as client:
        for ask in (lambda: client.ls(HELLO), client.pins):
            with pytest.raises(ipfrs.TooLargeError, match="listing of more than"):
                ask()


def test_closing_client_drops_unread_responses() -> None:
    gone = threading.Event()

    def send_for_ever(handler: Handler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("X-Content-Length", str(2**60))
        handler.send_header("Content-Length", str(2**60))
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(bytes(1024 * 1024))
        except OSError:
            gone.set()
        handler.close_connection = True

    with scripted(send_for_ever) as (url, _):
        with ipfrs.Client(url) as client:
            pieces = client.chunks(HELLO)
            next(pieces)
        assert gone.wait(30)
        with pytest.raises(ipfrs.ClosedError):
            next(pieces)
