// Clients from npm, as their users write them: ws for events, and three clients of GraphQL.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { GraphQLClient, gql } from "graphql-request";
import { createClient as createSseClient } from "graphql-sse";
import { createClient as createWsClient } from "graphql-ws";
import WebSocket from "ws";
import { Daemon } from "./harness.mjs";

let daemon;

before(async () => {
  daemon = await Daemon.start();
});

after(() => daemon?.stop());

async function addBlock(text) {
  const response = await fetch(`${daemon.origin}/api/v0/block/put`, { method: "POST", body: text });
  return (await response.json()).Key;
}

/** The value that `begin` resolves, once `act` has run. */
async function during(begin, act) {
  const result = begin();
  await act();
  return result;
}

test("ws receives events", async () => {
  const socket = new WebSocket(`${daemon.origin.replace("http", "ws")}/ws`);
  const messages = [];
  const next = async () => {
    while (messages.length === 0) await new Promise((resolve) => socket.once("message", resolve));
    return messages.shift();
  };
  socket.on("message", (data) => messages.push(JSON.parse(data)));
  await new Promise((resolve) => socket.once("open", resolve));
  socket.send(JSON.stringify({ type: "subscribe", topic: "blocks", id: "a" }));
  assert.equal((await next()).type, "subscribed");
  const cid = await addBlock("for ws");
  assert.deepEqual((await next()).data, { action: "added", cid, size: 6 });
  const pong = new Promise((resolve) => socket.once("pong", (data) => resolve(String(data))));
  socket.ping("are you there");
  assert.equal(await pong, "are you there");
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.close(1000, "done");
  assert.equal(await closed, 1000);
});

test("graphql-request sends queries, mutations and files", async () => {
  const client = new GraphQLClient(`${daemon.origin}/graphql`);
  const { addBlock: added } = await client.request(gql`
    mutation ($data: Base64!) {
      addBlock(data: $data) {
        cid
        size
      }
    }
  `, { data: Buffer.from("hello").toString("base64") });
  const { block } = await client.request(gql`query ($cid: Cid!) { block(cid: $cid) { size codec } }`, { cid: added.cid });
  assert.deepEqual([added.size, block], [5, { size: 5, codec: "raw" }]);
  await assert.rejects(client.request("{ nothing }"), (error) => error.response.errors[0].extensions.code === "invalid_input");
  const form = new FormData();
  form.set("operations", JSON.stringify({ query: "mutation ($file: Upload!) { addFile(file: $file) { cid size } }", variables: { file: null } }));
  form.set("map", JSON.stringify({ file: ["variables.file"] }));
  form.set("file", new Blob(["x".repeat(1_000_000)]), "large.txt");
  const response = await fetch(`${daemon.origin}/graphql`, { method: "POST", body: form });
  assert.equal((await response.json()).data.addFile.size, 1_000_000);
});

for (const [name, create] of [
  ["graphql-ws", (origin) => createWsClient({ url: `${origin.replace("http", "ws")}/graphql`, webSocketImpl: WebSocket, retryAttempts: 0 })],
  ["graphql-sse", (origin) => createSseClient({ url: `${origin}/graphql`, retryAttempts: 0 })],
]) {
  test(`${name} subscribes, and ends a subscription`, async () => {
    const client = create(daemon.origin);
    const subscription = client.iterate({ query: "subscription { blockAdded { cid size } }" });
    const text = `for ${name}`;
    let cid;
    const event = await during(
      () => subscription.next(),
      async () => {
        // The subscription is open once the daemon counts it.
        const open = async () => (await (await fetch(`${daemon.origin}/metrics`)).text()).includes("ipfrs_graphql_subscriptions_active 1");
        while (!(await open()));
        cid = await addBlock(text);
      },
    );
    assert.deepEqual(event.value, { data: { blockAdded: { cid, size: text.length } } });
    await subscription.return();
    const query = client.iterate({ query: "{ stats { blocks } }" });
    assert.ok((await query.next()).value.data.stats.blocks > 0);
    assert.ok((await query.next()).done);
    const refused = client.iterate({ query: "{ nothing }" });
    const outcome = await refused.next().then(({ value }) => value.errors, (errors) => errors);
    assert.equal(outcome[0].extensions.code, "invalid_input");
    await client.dispose();
  });
}
