// The console, as an operator uses it.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { Daemon, launch, open, overflow } from "./harness.mjs";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const VIEWS = ["overview", "content", "add", "pins", "names", "operations", "configuration"];

let daemon, browser, directory;

before(async () => {
  [daemon, browser, directory] = await Promise.all([Daemon.start(), launch(), mkdtemp(path.join(tmpdir(), "ipfrs-console-"))]);
});

after(async () => {
  await browser?.close();
  await daemon?.stop();
  await rm(directory, { recursive: true });
});

/** Opens a view, lets `look` use it, and checks that the browser reported nothing unexpected. */
async function visit(view, look, { options = {}, expected = /$^/ } = {}) {
  const { page, complaints, close } = await open(browser, options);
  await page.goto(`${daemon.api}/ui/#/${view}`);
  await page.locator("#connection.live").waitFor();
  await look(page);
  assert.deepEqual(complaints.filter((text) => !expected.test(text)), []);
  await close();
}

/** Requests from a program. */
const rpc = async (command, body) => {
  const headers = { "content-type": "application/octet-stream" };
  return (await fetch(`${daemon.origin}/api/v0/${command}`, { method: "POST", body, headers })).text();
};

test("the modules have sound types", () => {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const checked = spawnSync(path.join(here, "node_modules/.bin/tsc"), ["-p", here], { encoding: "utf8" });
  assert.equal(checked.status, 0, checked.stdout + checked.stderr);
});

test("a folder is uploaded, listed and opened", async () => {
  const folder = path.join(directory, "site");
  await mkdir(path.join(folder, "deep"), { recursive: true });
  const large = Buffer.alloc(3_000_000, "large ");
  await writeFile(path.join(folder, "index.txt"), "the index");
  await writeFile(path.join(folder, "deep", "ünïcode & more.txt"), "deep text");
  await writeFile(path.join(folder, "large.bin"), large);
  await writeFile(path.join(folder, "empty"), "");
  await visit("add", async (page) => {
    await page.locator("#folder").setInputFiles(folder);
    const done = page.locator("[data-cid]");
    await done.waitFor();
    const cid = await done.getAttribute("data-cid");
    await done.getByRole("link").click();
    await page.getByRole("link", { name: "index.txt" }).click();
    await page.getByText("the index").waitFor();
    await page.goto(`${daemon.api}/ui/#/content/${cid}/deep`);
    await page.getByRole("link", { name: "ünïcode & more.txt" }).click();
    await page.getByText("deep text").waitFor();
    // The whole tree is there for everyone else, and pinned.
    assert.deepEqual(Buffer.from(await (await fetch(`${daemon.origin}/ipfs/${cid}/large.bin`)).arrayBuffer()), large);
    assert.equal((await fetch(`${daemon.origin}/ipfs/${cid}/empty`)).status, 200);
    await page.getByRole("link", { name: "Pins" }).click();
    await page.getByRole("cell", { name: "site", exact: true }).waitFor();
    await page.getByRole("button", { name: "Unpin site" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Unpin" }).click();
    await page.getByText("Nothing is pinned").waitFor();
    assert.equal((await rpc("pin/ls")).includes(cid), false);
  });
});

test("the same directory gets the content ID that add gives it", async () => {
  const folder = path.join(directory, "same");
  await mkdir(folder, { recursive: true });
  for (const name of ["b", "a", "Z"]) await writeFile(path.join(folder, name), name);
  const expected = await daemon.addDirectory({ b: "b", a: "a", Z: "Z" });
  const converted = JSON.parse(await rpc(`dag/resolve?arg=${expected}`)).Cid["/"];
  await visit("add", async (page) => {
    await page.locator("#folder").setInputFiles(folder);
    const done = page.locator("[data-cid]");
    await done.waitFor();
    const cid = await done.getAttribute("data-cid");
    const bytes = async (id) => Buffer.from(await (await fetch(`${daemon.origin}/ipfs/${id}?format=raw`)).arrayBuffer());
    assert.deepEqual(await bytes(cid), await bytes(converted));
  });
});

test("the charts move and events appear", async () => {
  await visit("overview", async (page) => {
    const blocks = page.locator(".tile", { hasText: "Blocks" }).locator("dd");
    await blocks.filter({ hasText: /\d/ }).waitFor();
    const line = page.locator(".chart", { hasText: "Requests per second" }).locator("path").first();
    let turn = 0;
    // A point appears every two seconds.
    for (;;) {
      await rpc("block/put", `moves the chart ${(turn += 1)}`);
      const drawn = (await line.getAttribute("d")) ?? "";
      const value = await page.getByLabel("Requests per second: HTTP").textContent();
      if (drawn.includes("L") && value !== "-" && value !== "0") break;
    }
    await page.locator("#view .log li", { hasText: "Block added" }).first().waitFor();
    await page.locator(".log").getByRole("link").first().click();
    await page.getByText("moves the chart").first().waitFor();
  });
});

test("an operation is cancelled", async () => {
  // A client that sends a part of what it announced, and then nothing.
  const tus = { "Tus-Resumable": "1.0.0" };
  const created = await fetch(`${daemon.origin}/v1/stream/upload?operation_id=slow-upload`, { method: "POST", headers: { ...tus, "Upload-Length": "1000" } });
  assert.equal(created.status, 201);
  await visit("operations", async (page) => {
    await page.getByRole("button", { name: "Cancel operation slow-upload" }).click();
    await page.getByText("failed: the operation was cancelled").waitFor();
    const gone = await fetch(new URL(created.headers.get("location"), daemon.origin), { method: "HEAD", headers: tus });
    assert.equal(gone.status, 404);
  });
});

test("the console recovers from a lost connection", async () => {
  const { page, close } = await open(browser);
  await page.goto(`${daemon.api}/ui/`);
  await page.locator("#connection.live").waitFor();
  const { api } = daemon;
  await daemon.restart();
  assert.equal(daemon.api, api);
  await page.locator("#connection.live").waitFor();
  await rpc("block/put", "after the restart");
  await page.locator("#view .log li", { hasText: "Block added" }).first().waitFor();
  await close();
});

test("an upload continues after the connection was lost", async () => {
  const large = path.join(directory, "continues.bin");
  await writeFile(large, Buffer.alloc(20_000_000, "continues "));
  const { page, close } = await open(browser);
  await page.goto(`${daemon.api}/ui/#/add`);
  let failures = 0;
  await page.route("**/v1/stream/upload/*", async (route) => {
    if (route.request().method() === "PATCH" && (failures += 1) <= 2) await route.abort("connectionreset");
    else await route.continue();
  });
  await page.locator("#files").setInputFiles(large);
  const cid = await page.locator("[data-cid]").getAttribute("data-cid");
  assert.ok(failures > 2);
  const response = await fetch(`${daemon.origin}/ipfs/${cid}`);
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), await readFile(large));
  await close();
});

test("tensors have statistics and a histogram", async () => {
  const header = JSON.stringify({ w: { dtype: "F32", shape: [100, 10], data_offsets: [0, 4000] } });
  const data = new Float32Array(1000).map((_, index) => Math.sin(index));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const file = Buffer.concat([length, Buffer.from(header), Buffer.from(data.buffer)]);
  const { cid } = await (await fetch(`${daemon.origin}/v1/stream/upload`, { method: "POST", body: file })).json();
  await visit(`content/${cid}`, async (page) => {
    await page.getByRole("button", { name: "Statistics of w" }).click();
    await page.getByText("Standard deviation").waitFor();
    await page.getByRole("img", { name: /Histogram of 1,000 values/ }).waitFor();
  });
});

test("names are published, and the configuration is shown", async () => {
  await visit("names", async (page) => {
    await page.getByLabel("Name of the new key").fill("site");
    await page.getByRole("button", { name: "Create key" }).click();
    await page.getByLabel("Content path for site").fill("/ipfs/bafkqaaa");
    await page.getByRole("button", { name: "Publish under site" }).click();
    await page.getByRole("link", { name: "bafkqaaa" }).waitFor();
    await page.getByRole("link", { name: "Configuration" }).click();
    await page.getByLabel("Filter").fill("max_request_seconds");
    await page.getByRole("row", { name: /max_request_seconds/ }).waitFor();
  });
});

test("mistakes are named", async () => {
  await visit("pins", async (page) => {
    await page.getByLabel("Content path to pin").fill("nonsense");
    await page.getByRole("button", { name: "Pin", exact: true }).click();
    await page.locator(".notice.bad").getByText(/nonsense/).waitFor();
    await page.goto(`${daemon.api}/ui/#/content/bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy`);
    await page.locator(".bad").getByText(/not in this store|not found|bafkrei/).first().waitFor();
  }, { expected: /500|404/ });
});

test("every view is accessible, light and dark, on a phone and on a wide screen", async () => {
  const root = await daemon.addDirectory({ "a.txt": "text", b: "more" });
  for (const [colorScheme, width] of [["light", 390], ["dark", 1920]]) {
    const options = { viewport: { width, height: 900 }, colorScheme, bypassCSP: true };
    for (const view of [...VIEWS, `content/${root}`, `content/${root}/a.txt`]) {
      await visit(view, async (page) => {
        await page.waitForFunction(() => !document.body.textContent?.includes("Loading"));
        assert.equal(await overflow(page), 0, `${view} at ${width}`);
        await page.addScriptTag({ path: AXE });
        const { violations } = await page.evaluate(() => window.axe.run());
        const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
        assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), [], `${view}, ${colorScheme}`);
      }, { options });
    }
  }
});

test("the console needs no other server and is small", async () => {
  const { page, close } = await open(browser);
  const loaded = new Map();
  page.on("response", async (response) => {
    const url = new URL(response.url());
    assert.equal(url.origin, daemon.api);
    if (url.pathname.startsWith("/ui/")) loaded.set(url.pathname, gzipSync(await response.body()).length);
  });
  await page.goto(`${daemon.api}/ui`);
  assert.equal(page.url(), `${daemon.api}/ui/`);
  await page.locator("#connection.live").waitFor();
  assert.ok(loaded.size > 15);
  assert.ok([...loaded.values()].reduce((sum, size) => sum + size) < 100_000);
  // The main port has no pages of its own.
  assert.equal((await fetch(`${daemon.origin}/ui/`, { redirect: "manual" })).status, 307);
  await close();
});
