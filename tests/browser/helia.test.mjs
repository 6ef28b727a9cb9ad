// Helia, the IPFS implementation in JavaScript, and a daemon exchange content over Bitswap on loopback.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import readline from "node:readline";
import { after, before, test } from "node:test";

// Node.js before 22 lacks this function, which libp2p calls. It must exist before libp2p is loaded.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new this((...functions) => ([resolve, reject] = functions));
  return { promise, resolve, reject };
};

const { noise } = await import("@chainsafe/libp2p-noise");
const { yamux } = await import("@chainsafe/libp2p-yamux");
const { withBitswap } = await import("@helia/bitswap");
const { withLibp2pLight } = await import("@helia/libp2p");
const { unixfs } = await import("@helia/unixfs");
const { identify } = await import("@libp2p/identify");
const { tcp } = await import("@libp2p/tcp");
const { multiaddr } = await import("@multiformats/multiaddr");
const { createHeliaLight } = await import("helia");
const { CID } = await import("multiformats/cid");

/** Milliseconds that one transfer may take. */
const TRANSFER_MS = 10_000;

let daemon, helia, files;

/** A signal that aborts a transfer after its time. Helia adds a listener for each block, which is no leak. */
function limit() {
  const signal = AbortSignal.timeout(TRANSFER_MS);
  setMaxListeners(0, signal);
  return signal;
}

/** Calls a command of the daemon's RPC. */
async function rpc(command, body) {
  const response = await fetch(`${daemon.origin}/api/v0/${command}`, { method: "POST", body, signal: limit() });
  const text = await response.text();
  assert.equal(response.status, 200, `${command}: ${text}`);
  return text.trim().split("\n").map((line) => JSON.parse(line));
}

/** Adds files, by their paths, and gives the CID of the last entry: the file, or the directory around all. */
async function add(entries) {
  const form = new FormData();
  for (const [name, content] of Object.entries(entries)) {
    form.append("file", new Blob([content]), encodeURIComponent(name));
  }
  return CID.parse((await rpc("add?quieter=true", form)).at(-1).Hash);
}

/** A daemon with an empty repo, which other nodes can connect to. */
async function startDaemon() {
  const cli = process.env.IPFRS_CLI;
  if (!cli) throw new Error("IPFRS_CLI is not set: run this with cargo xtask browser");
  const repo = await mkdtemp(path.join(tmpdir(), "ipfrs-helia-"));
  const config = path.join(repo, "config.toml");
  await writeFile(config, '[retrieval.bitswap]\nenabled = true\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n');
  const options = ["--repo", repo, "gateway", "start", "--port", "0", "--grpc-port", "0", "--api-port", "0"];
  const process_ = spawn(cli, options, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => process_.once("exit", resolve));
  const stop = async () => {
    process_.kill("SIGTERM");
    await ended;
    await rm(repo, { recursive: true });
  };
  let origin;
  for await (const line of readline.createInterface({ input: process_.stdout })) {
    if (line.startsWith("Gateway: ")) origin = line.slice("Gateway: ".length);
    if (line === "Ready") return { origin, stop };
  }
  await stop();
  throw new Error("the daemon ended before it was ready");
}

/** A Helia node that exchanges blocks with connected peers only: no DHT, no gateways. */
function startHelia() {
  const network = {
    addresses: { listen: ["/ip4/127.0.0.1/tcp/0"] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    services: { identify: identify() },
  };
  return withBitswap(withLibp2pLight(createHeliaLight(), network)).start();
}

before(async () => {
  daemon = await startDaemon();
  helia = await startHelia();
  files = unixfs(helia);
});

after(async () => {
  await helia?.stop();
  await daemon?.stop();
});

/** The bytes of a file, which Helia fetches. */
async function cat(cid) {
  const pieces = [];
  for await (const piece of files.cat(cid, { signal: limit() })) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** The bytes of a file, which the daemon fetches. */
async function get(cid) {
  const response = await fetch(`${daemon.origin}/ipfs/${cid}`, { signal: limit() });
  const body = Buffer.from(await response.arrayBuffer());
  assert.equal(response.status, 200, String(body.subarray(0, 1000)));
  return body;
}

/** Closes the connection on Helia's side, and waits until the daemon has noticed. */
async function disconnect() {
  await Promise.all(helia.libp2p.getConnections().map((connection) => connection.close()));
  while ((await rpc("swarm/peers"))[0].Peers?.length) await new Promise((resolve) => setTimeout(resolve, 10));
}

// Helia receives over connections of either side, and so does the daemon.
for (const [side, connect] of [
  ["Helia", async () => helia.libp2p.dial(multiaddr((await rpc("id"))[0].Addresses[0]))],
  ["the daemon", () => rpc(`swarm/connect?arg=${encodeURIComponent(helia.libp2p.getMultiaddrs()[0])}`)],
]) {
  test(`content is exchanged over a connection that ${side} opened`, { timeout: 20_000 }, async (t) => {
    await connect();
    t.after(disconnect);

    await t.test("Helia fetches a file of several blocks", async () => {
      const content = randomBytes(5_000_000);
      assert.ok(content.equals(await cat(await add({ file: content }))));
    });

    await t.test("Helia fetches a directory", async () => {
      const texts = Array.from({ length: 20 }, (_, i) => [`${i}.txt`, `${side} ${i} ${Math.random()}`]);
      const entries = Object.fromEntries(texts);
      const cid = await add(Object.fromEntries(Object.entries(entries).map(([name, text]) => [`d/${name}`, text])));
      const found = {};
      for await (const entry of files.ls(cid, { signal: limit() })) found[entry.name] = String(await cat(entry.cid));
      assert.deepEqual(found, entries);
    });

    for (const [amount, size] of [["one block", 1000], ["many blocks", 20_000_000]]) {
      await t.test(`the daemon fetches a file of ${amount}`, async () => {
        const content = randomBytes(size);
        assert.ok(content.equals(await get(await files.addBytes(content))));
      });
    }
  });
}
