"""Compares the responses of a gateway with its own OpenAPI document, by requests that schemathesis makes up.

IPFRS_CLI names the binary. IPFRS_SCHEMA_EXAMPLES is the number of requests per operation, and IPFRS_SCHEMA_SEED makes
others of them. With more than 20, each limit of each parameter of the RPC is tried too, which takes minutes. Failures
are printed with their operation, check and curl command. Any failure is an error.
"""

import json
import os
import pathlib
import sys
import tempfile
import urllib.request
import zlib
from typing import Any

import schemathesis
from schemathesis.cli import schemathesis as command

import harness

EXAMPLES = int(os.environ.get("IPFRS_SCHEMA_EXAMPLES", "4"))
SEED = os.environ.get("IPFRS_SCHEMA_SEED")

# Ends the daemon; with `poll` has no end.
EXCLUDED = ["/api/v0/shutdown", "/api/v0/stats/bw"]
# Settings of the daemons: no line of the audit log for each request, and no limit for wrong credentials.
LOG = '[log]\nlevel = "warn"\n'
AUTH = "[auth]\nenabled = true\nmax_failures_per_minute = 60000\n"

CONFIG = """
cache.enabled = false
continue-on-failure = true
warnings = false
# The tokens end with the daemons.
output.sanitization.enabled = false
generation.database = "none"
generation.dictionaries.string = { dictionary = "known", probability = 0.3 }
dictionaries.known.values = KNOWN
phases.stateful.enabled = CALLER
phases.coverage.enabled = CALLER

[checks]
# A schema does not tell a content ID from other text, and parameters that an operation lacks are ignored.
positive_data_acceptance.enabled = false
negative_data_rejection.enabled = false
missing_required_header.enabled = false  # tus wants 412
# A hash function or an operation that this version does not have.
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]
ignored_auth.enabled = AUTH

# The RPC of Kubo responds 500 to whatever fails, and its lines of JSON are not one document: `rpc_schema_conformance`.
[[operations]]
include-path-regex = "^/api/v0/"
checks.not_a_server_error.enabled = false
checks.response_schema_conformance.enabled = false
phases.coverage.enabled = LONG
phases.fuzzing.generation.mode = "positive"

# Would wait up to a minute for an operation that has not begun.
[[operations]]
include-path = "/v1/progress/{id}"
parameters = { wait = 0 }
"""

BINARY = ["application/offset+octet-stream", "application/vnd.ipfs.ipns-record"]
schemathesis.serializer.alias(BINARY, "application/octet-stream")
known: list[str] = []


@schemathesis.hook
def map_query(context: schemathesis.HookContext, query: dict[str, object] | None) -> dict[str, object] | None:
    """Makes commands succeed: keeps their arguments and few of their options, and most arguments become known text."""
    path = context.operation.path if context.operation else ""
    if not query or not path.startswith("/api/v0/"):
        return query
    kept = {name: value for name, value in query.items() if name == "arg" or drawn(path, query, name) % 8 == 0}
    if isinstance(arguments := kept.get("arg"), list):
        choices = [drawn(path, query, i) % (len(known) + 2) for i in range(len(arguments))]
        kept["arg"] = [known[i] if i < len(known) else old for i, old in zip(choices, arguments, strict=True)]
    return kept


def drawn(*values: object) -> int:
    return zlib.crc32(repr(values).encode())


@schemathesis.check
def rpc_schema_conformance(_: object, response: schemathesis.Response, case: "schemathesis.Case[Any]") -> None:
    """Compares each line of a response of the RPC with the schema, or with that of errors if the last line is one."""
    if not case.operation.path.startswith("/api/v0/"):
        return
    is_lines = "x-chunked-output" in response.headers and response.headers["content-type"] == ["application/json"]
    for content in response.content.splitlines() if is_lines else [response.content]:
        status, headers, elapsed = response.status_code, response.headers, response.elapsed
        if is_lines and content.startswith(b'{"Message":') and response.content.endswith(content + b"\n"):
            status = 500
        line = schemathesis.Response(status, headers, content, response.request, elapsed, response.verify)
        case.operation.schema.validate_response(case.operation, line, case=case)


def store(url: str, token: str) -> None:
    """Stores a file with a tensor in a directory, and remembers this and other text that means something."""
    header = b'{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    data = len(header).to_bytes(8, "little") + header + b"ab"
    cids = []
    for wrap in ["false", "true"]:
        request = urllib.request.Request(f"{url}/v1/stream/upload?filename=f&wrap={wrap}", data)
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request) as response:
            cids.append(json.load(response)["cid"])
    words = ["w", "self", "raw", "text", "json", "sha2-256", "base32", "1"]
    known[:] = [*cids, f"/ipfs/{cids[1]}/f", f"{cids[1]}/f", "/", "/f", *words]


def compare(name: str, url: str, token: str, is_caller: bool, has_auth: bool) -> bool:
    """Returns whether the daemon responds to all requests as its document says."""
    print(f"-- {name}", flush=True)
    config = CONFIG
    for placeholder, value in [("KNOWN", known), ("LONG", EXAMPLES > 20), ("CALLER", is_caller), ("AUTH", has_auth)]:
        config = config.replace(placeholder, json.dumps(value))
    with tempfile.TemporaryDirectory() as directory:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = directory
        path = pathlib.Path(directory, "schemathesis.toml")
        path.write_text(config)
        arguments = ["--config-file", str(path), "--no-color", "run", f"{url}/openapi.json"]
        # Without credentials, almost all responses are the same.
        arguments += [f"--max-examples={EXAMPLES if is_caller else 1}"]
        arguments += [f"--seed={SEED}"] if SEED else ["--generation-deterministic"]
        arguments += [f"--exclude-path={excluded}" for excluded in EXCLUDED]
        # Commands that fail after their first line reset the connections of clients that take no trailers.
        arguments += ["--header=TE: trailers"]
        arguments += [f"--header=Authorization: Bearer {token}"] if token else []
        try:
            command.main([*arguments, *sys.argv[1:]])
        except SystemExit as end:
            return end.code == 0
    return False


with harness.Daemon(LOG) as daemon:
    store(daemon.url, "none")
    results = [compare("no [auth]", daemon.url, "", True, False)]
with harness.Daemon(LOG + AUTH) as daemon:
    # This has all scopes. A key would be found in the list of keys, and revoked.
    token = pathlib.Path(daemon.repo, "api-token").read_text().strip()
    store(daemon.url, token)
    results.append(compare("[auth], no credentials", daemon.url, "", False, True))
    # On the listener on which a session of the console can begin.
    results.append(compare("[auth], all scopes", daemon.api, token, True, True))
if not all(results):
    sys.exit("a response is not as the document says")
print("schemathesis: as documented")
