"""Compares the metrics of a gateway with the programs that read them.

Starts a gateway (IPFRS_CLI names the binary) and Prometheus, both on temporary directories, and uses every feature
until each query of examples/grafana-dashboard.json has returned data. promtool checks the metrics, examples/alerts.yml
and its tests. The first difference is an error.
"""

import asyncio
import base64
import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy
import safetensors.numpy
import websockets
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import harness

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}

# Seconds in which every query must have returned data, and the window of rates.
PATIENCE = 90
WINDOW = "5s"


def fetch(url, data=None, headers=None):
    request = urllib.request.Request(url, data=data, headers=headers or {})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


def rpc(url, command, data=b"", **arguments):
    headers = {"Content-Type": "application/octet-stream"}
    return json.loads(fetch(f"{url}/api/v0/{command}?{urllib.parse.urlencode(arguments)}", data, headers))


def use(url, turn):
    """Uses every feature once."""
    content = os.urandom(600_000)
    cid = json.loads(fetch(f"{url}/v1/stream/upload?filename=f", content))["cid"]
    for _ in range(4):
        fetch(f"{url}/ipfs/{cid}", headers=TRACEPARENT)
    small = rpc(url, "block/put", b"turn %d" % turn)["Key"]
    for _ in range(4):
        fetch(f"{url}/ipfs/{small}")
    with contextlib.suppress(urllib.error.HTTPError):
        fetch(f"{url}/ipfs/{cid}/missing")
    for path, body in [
        ("/v1/block/batch/get", {"cids": [small]}),
        ("/v1/block/batch/has", {"cids": [small]}),
        ("/v1/block/batch/put", {"blocks": [{"data": base64.b64encode(b"%d" % turn).decode()}]}),
        ("/graphql", {"query": "{ stats { blocks } }"}),
    ]:
        fetch(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    tensors = safetensors.numpy.save({"w": numpy.full((4, 4), turn, numpy.float32)})
    model = json.loads(fetch(f"{url}/v1/stream/upload?filename=m.safetensors", tensors))["cid"]
    fetch(f"{url}/v1/tensor/{model}?name=w&slice=0:2")
    # A message of gRPC-Web: flag, length, and the field `cid`.
    message = b"\x0a" + bytes([len(small)]) + small.encode()
    web = {"Content-Type": "application/grpc-web+proto", "X-Grpc-Web": "1"}
    frame = b"\0" + len(message).to_bytes(4, "big") + message
    fetch(f"{url}/ipfrs.block.v1.BlockService/HasBlock", frame, web)
    asyncio.run(watch(url, turn))
    rpc_lines = fetch(f"{url}/api/v0/repo/gc", b"")
    assert b"Error" not in rpc_lines, rpc_lines


async def watch(url, turn):
    async with websockets.connect(f"{url.replace('http', 'ws')}/ws") as connection:
        await connection.send(json.dumps({"type": "subscribe", "topic": "blocks"}))
        assert json.loads(await connection.recv())["type"] == "subscribed"
        await asyncio.to_thread(rpc, url, "block/put", b"watched %d" % turn)
        assert json.loads(await connection.recv())["type"] == "event"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def prometheus(target):
    """Runs Prometheus with the examples, changed to scrape `target` each second. Yields its URL."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(EXAMPLES, "prometheus.yml")) as file:
            config = file.read().replace("127.0.0.1:8080", target).replace("_interval: 15s", "_interval: 1s")
        with open(os.path.join(directory, "prometheus.yml"), "w") as file:
            file.write(config)
        shutil.copy(os.path.join(EXAMPLES, "alerts.yml"), directory)
        with open(os.path.join(directory, "log"), "w+") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={directory}/prometheus.yml",
                    f"--storage.tsdb.path={directory}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--enable-feature=exemplar-storage",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()
                process.wait()


def ask(server, path, **parameters):
    answer = json.loads(fetch(f"{server}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
    assert answer["status"] == "success", answer
    return answer["data"]


def queries():
    with open(os.path.join(EXAMPLES, "grafana-dashboard.json")) as file:
        dashboard = json.load(file)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", WINDOW).replace("$instance", ".*")
            assert "$" not in query, query
            yield f"{panel['title']}: {query}", query


def has_data(server, query):
    values = [float(sample["value"][1]) for sample in ask(server, "query", query=query)["result"]]
    return any(math.isfinite(value) for value in values)


def check_dashboard(url):
    with prometheus(url.removeprefix("http://")) as server:
        missing = dict(queries())
        assert len(missing) > 40, len(missing)
        deadline, turn = time.monotonic() + PATIENCE, 0
        while missing:
            assert time.monotonic() < deadline, f"no data: {missing}"
            turn += 1
            use(url, turn)
            with contextlib.suppress(urllib.error.URLError):
                missing = {name: query for name, query in missing.items() if not has_data(server, query)}
        rules = [rule for group in ask(server, "rules")["groups"] for rule in group["rules"]]
        assert rules and all(rule["health"] == "ok" and rule["state"] == "inactive" for rule in rules), rules
        exemplars = ask(
            server,
            "query_exemplars",
            query="ipfrs_http_request_duration_seconds_bucket",
            start=time.time() - PATIENCE,
            end=time.time(),
        )
        traces = {exemplar["labels"]["trace_id"] for series in exemplars for exemplar in series["exemplars"]}
        assert traces == {TRACE}, traces


def check_formats(url):
    text = fetch(f"{url}/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr.decode()
    families = list(text_string_to_metric_families(fetch(f"{url}/metrics", headers=OPENMETRICS).decode()))
    samples = [sample for family in families for sample in family.samples]
    assert {sample.exemplar.labels["trace_id"] for sample in samples if sample.exemplar} == {TRACE}
    names = {sample.name for sample in samples}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            assert line.split("{")[0].split(" ")[0] in names, line


def check_examples():
    for check in (["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        checked = subprocess.run(["promtool", *check], cwd=EXAMPLES, capture_output=True)
        assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()


if __name__ == "__main__":
    check_examples()
    with harness.Daemon() as daemon:
        check_dashboard(daemon.url)
        check_formats(daemon.url)
    print("monitoring: the dashboard, the alerts, the exemplars and both formats are as expected")
