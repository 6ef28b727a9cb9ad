"""Uses a gateway with the clients from PyPI: websockets for events, gql for GraphQL over HTTP and WebSockets, and
aioipfs for the RPC of Kubo.

IPFRS_CLI names the binary. The first wrong response is an error.
"""

import asyncio
import base64
import json
import urllib.request

import aioipfs
import websockets
from gql import Client, FileVar, gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.requests import RequestsHTTPTransport
from gql.transport.websockets import WebsocketsTransport

import harness


def add_block(url, data):
    request = urllib.request.Request(f"{url}/api/v0/block/put", data=data, method="POST")
    request.add_header("Content-Type", "application/octet-stream")
    with urllib.request.urlopen(request) as response:
        return json.load(response)["Key"]


async def events(url):
    async with websockets.connect(f"{url.replace('http', 'ws')}/ws") as socket:
        await socket.send(json.dumps({"type": "subscribe", "topic": "blocks", "filter": {"action": "added"}}))
        assert json.loads(await socket.recv())["type"] == "subscribed"
        cid = await asyncio.to_thread(add_block, url, b"for websockets")
        event = json.loads(await socket.recv())
        assert event["data"] == {"action": "added", "cid": cid, "size": 14}, event
        await (await socket.ping())
        await socket.send("x" * 65_537)
        try:
            await socket.recv()
            raise AssertionError("a long message was accepted")
        except websockets.ConnectionClosedError as closed:
            assert closed.rcvd.code == 1009, closed


def queries(url):
    transport = RequestsHTTPTransport(url=f"{url}/graphql")
    # The client validates each document against the schema that it fetches.
    with Client(transport=transport, fetch_schema_from_transport=True) as client:
        add = gql("mutation ($data: Base64!) { addBlock(data: $data, pin: true) { cid size } }")
        add.variable_values = {"data": base64.b64encode(b"hello").decode()}
        added = client.execute(add)["addBlock"]
        read = gql("query ($cid: Cid!) { block(cid: $cid) { data } pins { nodes { cid } } }")
        read.variable_values = {"cid": added["cid"]}
        result = client.execute(read)
        assert result == {"block": {"data": "aGVsbG8="}, "pins": {"nodes": [{"cid": added["cid"]}]}}, result
        upload = gql("mutation ($file: Upload!) { addFile(file: $file) { size } }")
        upload.variable_values = {"file": FileVar(__file__)}
        with open(__file__, "rb") as file:
            size = len(file.read())
        assert client.execute(upload, upload_files=True)["addFile"]["size"] == size
        try:
            client.execute(gql('{ file(path: "/ipfs/bafkqaaa/none") { size } }'))
            raise AssertionError("a missing file was found")
        except TransportQueryError as error:
            assert error.errors[0]["extensions"]["code"], error.errors


async def subscriptions(url):
    transport = WebsocketsTransport(url=f"{url.replace('http', 'ws')}/graphql")
    async with Client(transport=transport) as session:
        assert (await session.execute(gql("{ stats { blocks } }")))["stats"]["blocks"] > 0
        subscription = session.subscribe(gql("subscription { blockAdded { cid size } }"))
        first = asyncio.ensure_future(anext(subscription))

        def is_open():
            with urllib.request.urlopen(f"{url}/metrics") as response:
                return b"ipfrs_graphql_subscriptions_active 1" in response.read()

        while not await asyncio.to_thread(is_open):
            pass
        cid = await asyncio.to_thread(add_block, url, b"for gql")
        assert await first == {"blockAdded": {"cid": cid, "size": 7}}
        await subscription.aclose()


async def rpc(url):
    client = aioipfs.AsyncIPFS(host="127.0.0.1", port=int(url.rsplit(":", 1)[1]))
    try:
        # The client selects commands by the version in the daemon's name.
        assert await client.agent_version_get() >= aioipfs.IpfsDaemonVersion("0.40.0")
        cid = (await client.add_bytes(b"for aioipfs"))["Hash"]
        assert await client.cat(cid) == b"for aioipfs"
        assert cid in (await client.pin.ls(pintype="recursive"))["Keys"]
        await client.files.mkdir("/aioipfs")
        await client.files.cp(f"/ipfs/{cid}", "/aioipfs/copy")
        assert await client.files.read("/aioipfs/copy") == b"for aioipfs"
        key = await client.key.gen("aioipfs")
        assert key["Id"] in [known["Id"] for known in (await client.key.list())["Keys"]]
        assert (await client.diag.sys())["ipfs_version"] == (await client.core.version())["Version"]
        assert "API" in await client.config.show()
        try:
            await client.cat("bad")
            raise AssertionError("a malformed path was found")
        except aioipfs.APIError as error:
            assert error.message == 'invalid path "bad": path does not have enough components', error.message
    finally:
        await client.close()


with harness.Daemon() as daemon:
    asyncio.run(events(daemon.url))
    queries(daemon.url)
    asyncio.run(subscriptions(daemon.url))
    asyncio.run(rpc(daemon.url))
print("websockets, gql and aioipfs: as expected")
