// kubo-rpc-client, the client of Kubo's RPC for JavaScript, as its users write it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { create } from "kubo-rpc-client";
import { Daemon } from "./harness.mjs";

const bytes = (text) => new TextEncoder().encode(text);

let daemon;
let client;

before(async () => {
  daemon = await Daemon.start();
  client = create({ url: daemon.origin });
});

after(() => daemon?.stop());

async function all(items) {
  const list = [];
  for await (const item of items) list.push(item);
  return list;
}

async function text(pieces) {
  return Buffer.concat(await all(pieces)).toString();
}

test("files are added, listed, read and pinned", async () => {
  const progress = [];
  const added = await all(
    client.addAll(
      [
        { path: "tree/a.txt", content: "hello\n" },
        { path: "tree/b.bin", content: bytes("x".repeat(600_000)) },
      ],
      { progress: (read) => progress.push(read) },
    ),
  );
  assert.deepEqual(added.map((entry) => entry.path), ["tree/a.txt", "tree/b.bin", "tree"]);
  assert.deepEqual(progress.slice(-3), [262_144, 524_288, 600_000]);
  const root = added.at(-1).cid;
  assert.deepEqual((await all(client.ls(root))).map(({ name, size, type }) => [name, size, type]), [
    ["a.txt", 6, "file"],
    ["b.bin", 600_000, "file"],
  ]);
  assert.equal(await text(client.cat(`${root}/a.txt`, { offset: 1, length: 4 })), "ello");
  assert.equal((await all(client.pin.ls({ paths: [root] })))[0].type, "recursive");
  await assert.rejects(text(client.cat(`${root}/none`)), /no link named "none"/);
  await assert.rejects(all(client.pin.ls({ paths: [`${root}/none`] })), /no link named/);
});

test("blocks and nodes are stored in every codec and hash of the client", async () => {
  const block = await client.block.put(bytes("block"), { format: "raw", mhtype: "sha3-512" });
  assert.equal(Buffer.from(await client.block.get(block)).toString(), "block");
  const node = await client.dag.put({ a: [1, { b: block }] });
  assert.equal((await client.dag.get(node, { path: "/a/0" })).value, 1);
  assert.equal((await client.dag.resolve(node, { path: "/a/0" })).remainderPath, "/a/0");
  const [car] = [await all(client.dag.export(node))];
  const [{ root }] = await all(client.dag.import(car));
  assert.equal(String(root.cid), String(node));
});

test("mutable files, keys and names", async () => {
  await client.files.write("/docs/a.txt", "one", { create: true, parents: true });
  await client.files.write("/docs/a.txt", "TWO", { offset: 1 });
  assert.equal(await text(client.files.read("/docs/a.txt")), "oTWO");
  assert.deepEqual((await all(client.files.ls("/docs"))).map((entry) => entry.name), ["a.txt"]);
  await client.files.cp("/docs/a.txt", "/b.txt");
  await client.files.rm("/docs", { recursive: true });
  await assert.rejects(client.files.stat("/docs"), /file does not exist/);
  const { cid } = await client.files.stat("/b.txt");
  const key = await client.key.gen("site");
  await client.name.publish(cid, { key: "site", allowOffline: true });
  assert.deepEqual(await all(client.name.resolve(`/ipns/${key.id}`)), [`/ipfs/${cid}`]);
  await assert.rejects(client.key.gen("site"), /key with name 'site' already exists/);
});

test("links of nodes are patched", async () => {
  const leaf = (await client.add("leaf")).cid;
  await client.files.mkdir("/empty");
  const directory = (await client.files.stat("/empty")).cid;
  const patched = await client.object.patch.addLink(directory, { Name: "leaf", Hash: leaf, Tsize: 12 });
  assert.equal(await text(client.cat(`${patched}/leaf`)), "leaf");
  assert.equal(String(await client.object.patch.rmLink(patched, { Name: "leaf", Hash: leaf, Tsize: 12 })), String(directory));
});

test("the daemon describes itself", async () => {
  assert.match((await client.version()).version, /^0\.\d+\.\d+$/);
  assert.match((await client.id()).agentVersion, /^ipfrs\/0\.\d+\.\d+\/\d/);
  const commands = (await client.commands()).Subcommands.map((command) => command.Name);
  for (const name of ["add", "diag", "files", "object", "pin"]) assert.ok(commands.includes(name), name);
  assert.ok((await client.diag.cmds()).some((command) => command.Command === "commands"));
  assert.ok((await client.log.ls()).includes("ipfrs_http"));
  assert.equal((await client.config.get("Addresses.API")).startsWith("/ip4/127.0.0.1/tcp/"), true);
  await assert.rejects(client.config.set("Addresses.API", "x"), /config\.toml/);
  assert.deepEqual((await client.bootstrap.list()).Peers, []);
  await assert.rejects(client.swarm.peers(), /must be run in online mode/);
});
