// The console, as an operator uses it.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { Daemon, launch, open, overflow, visit } from "./harness.mjs";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const VIEWS = ["overview", "content", "add", "pins", "names", "operations", "configuration"];

let daemon, browser;

before(async () => {
  [daemon, browser] = await Promise.all([Daemon.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("the modules have sound types", () => {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const checked = spawnSync(path.join(here, "node_modules/.bin/tsc"), ["-p", here], { encoding: "utf8" });
  assert.equal(checked.status, 0, checked.stdout + checked.stderr);
});

test("the charts move and events appear", async () => {
  await visit(browser, daemon, "overview", async (page) => {
    const blocks = page.locator(".tile", { hasText: "Blocks" }).locator("dd");
    await blocks.filter({ hasText: /\d/ }).waitFor();
    const line = page.locator(".chart", { hasText: "Requests per second" }).locator("path").first();
    let turn = 0;
    // A point appears every two seconds.
    for (;;) {
      await daemon.rpc("block/put", `moves the chart ${(turn += 1)}`);
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
  await visit(browser, daemon, "operations", async (page) => {
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
  await daemon.rpc("block/put", "after the restart");
  await page.locator("#view .log li", { hasText: "Block added" }).first().waitFor();
  await close();
});

test("a view that could not be loaded is loaded when the connection recovers", async () => {
  const { page, close } = await open(browser);
  await page.goto(`${daemon.api}/ui/`);
  await page.locator("#connection.live").waitFor();
  await page.route("**/graphql", (route) => route.abort("connectionrefused"));
  await page.getByRole("link", { name: "Pins" }).click();
  await page.getByText("the daemon does not respond").first().waitFor();
  await page.unroute("**/graphql");
  await daemon.restart();
  await page.locator(".failed").waitFor({ state: "detached" });
  await page.locator("#view table, #view .empty").waitFor();
  await close();
});

test("a daemon that stopped without closing the connection is noticed", async () => {
  const { page, close } = await open(browser);
  await page.clock.install();
  await page.goto(`${daemon.api}/ui/`);
  await page.locator("#connection.live").waitFor();
  daemon.process.kill("SIGSTOP");
  try {
    while ((await page.locator("#connection.lost").count()) === 0) await page.clock.runFor(5000);
  } finally {
    daemon.process.kill("SIGCONT");
  }
  while ((await page.locator("#connection.live").count()) === 0) await page.clock.runFor(1000);
  await close();
});

test("tensors have statistics and a histogram", async () => {
  const header = JSON.stringify({ w: { dtype: "F32", shape: [100, 10], data_offsets: [0, 4000] } });
  const data = new Float32Array(1000).map((_, index) => Math.sin(index));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const file = Buffer.concat([length, Buffer.from(header), Buffer.from(data.buffer)]);
  const { cid } = await (await fetch(`${daemon.origin}/v1/stream/upload`, { method: "POST", body: file })).json();
  await visit(browser, daemon, `content/${cid}`, async (page) => {
    await page.getByRole("button", { name: "Statistics of w" }).click();
    await page.getByText("Standard deviation", { exact: true }).waitFor();
    await page.getByRole("img", { name: /Histogram of 1,000 values/ }).waitFor();
  });
});

test("names are published, and the configuration is shown", async () => {
  await visit(browser, daemon, "names", async (page) => {
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
  await visit(browser, daemon, "pins", async (page) => {
    await page.getByLabel("Content path to pin").fill("nonsense");
    await page.getByRole("button", { name: "Pin", exact: true }).click();
    await page.locator(".notice.bad").getByText(/nonsense/).waitFor();
    await page.goto(`${daemon.api}/ui/#/content/bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy`);
    await page.locator(".bad").getByText(/not in this store|not found|bafkrei/).first().waitFor();
  }, { expected: /500|404/ });
});

test("every chart shows its latest values, by pointer and by keyboard", async () => {
  await visit(browser, daemon, "overview", async (page) => {
    const charts = page.locator(".chart");
    assert.equal(await charts.count(), 9);
    const line = charts.filter({ hasText: "Requests per second" }).locator("path.line").first();
    while (!((await line.getAttribute("d")) ?? "").includes("L")) await daemon.rpc("version");
    // Caches and durations have values only with requests.
    for (const title of ["Store", "Memory", "Connections and requests", "Blocks per second"]) {
      assert.match(await charts.filter({ hasText: title }).locator("path.line").first().getAttribute("d"), /L/, title);
    }
    const plot = page.getByRole("group", { name: /^Requests per second over time/ });
    await plot.focus();
    await page.keyboard.press("ArrowLeft");
    await plot.locator(".tip", { hasText: "gRPC" }).waitFor();
    await page.keyboard.press("Escape");
    await plot.locator(".tip").waitFor({ state: "hidden" });
    await plot.hover();
    await plot.locator(".tip", { hasText: "HTTP" }).waitFor();
    // Values that change every two seconds are not announced.
    assert.equal(await page.locator(".chart output:not([aria-live=off])").count(), 0);
  });
});

test("the keyboard is enough, and keeps its place", async () => {
  const large = await daemon.addDirectory(Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`entry-${index}`, `${index}`])));
  await visit(browser, daemon, "pins", async (page) => {
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent);
    await page.keyboard.press("Tab");
    assert.equal(await focused(), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "view");
    assert.equal(await page.getByRole("heading", { level: 2 }).textContent(), "Pins", "the view stays");
    await page.getByLabel("Content path to pin").focus();
    await page.keyboard.type("bafkqaaa");
    await page.keyboard.press("Tab");
    await page.keyboard.type("typed");
    await page.keyboard.press("Enter");
    await page.getByRole("cell", { name: "typed", exact: true }).waitFor();
    await page.getByRole("button", { name: "Unpin typed" }).focus();
    await page.keyboard.press("Enter");
    assert.equal(await focused(), "Keep", "what removes nothing is chosen");
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => document.activeElement?.getAttribute("aria-label") === "Unpin typed");
    await page.goto(`${daemon.api}/ui/#/content/${large}`);
    const more = page.getByRole("button", { name: "Show more" });
    await more.focus();
    await page.keyboard.press("Enter");
    await page.getByText("300 shown", { exact: true }).waitFor();
    assert.equal(await page.locator("tbody tr").count(), 300);
  });
});

test("names of all kinds are shown as they are, and lead to their content", async () => {
  const boundary = "a-boundary-that-no-name-has";
  const names = ["%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "photo%E2%80%AEgpj.exe", "line%0Abreak", "back%5Cslash", "caf%E9"];
  const parts = names.map((name) => `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="d%2F${name}"\r\nContent-Type: application/octet-stream\r\n\r\n${name}\r\n`);
  const headers = { "content-type": `multipart/form-data; boundary=${boundary}` };
  const added = await fetch(`${daemon.origin}/api/v0/add?quieter=true`, { method: "POST", headers, body: `${parts.join("")}--${boundary}--\r\n` });
  const root = JSON.parse((await added.text()).trim().split("\n").at(-1)).Hash;
  await visit(browser, daemon, `content/${root}`, async (page) => {
    const links = page.locator("td.name a");
    await links.first().waitFor();
    const shown = (await links.allTextContents()).sort();
    assert.deepEqual(shown, ["<img src=x onerror=alert(1)>", "back\\slash", "caf\ufffd", "line⟨U+000A⟩break", "photo⟨U+202E⟩gpj.exe"].sort());
    for (const href of await links.evaluateAll((links) => links.map((link) => link.getAttribute("href")))) {
      await page.goto(`${daemon.api}/ui/${href}`);
      const text = await page.getByRole("region", { name: "Preview" }).textContent();
      assert.ok(names.includes(text), text);
    }
    assert.equal(await page.locator("#view img, #view script").count(), 0);
  });
});

test("content is found by name and by the address of a gateway", async () => {
  const root = await daemon.addDirectory({ "found.txt": "it is here" });
  const form = new FormData();
  form.append("file", new Blob(["it is here"]));
  // Names of hosts have no upper case.
  const file = JSON.parse(await (await fetch(`${daemon.origin}/api/v0/add?cid-version=1`, { method: "POST", body: form })).text()).Hash;
  const key = JSON.parse(await daemon.rpc("key/gen?arg=explorer")).Id;
  await daemon.rpc(`name/publish?arg=/ipfs/${root}&key=explorer&allow-offline=true`);
  await visit(browser, daemon, "content", async (page) => {
    for (const address of [`/ipns/${key}/found.txt`, `${daemon.origin}/ipfs/${root}/found.txt`, `https://${file}.ipfs.example.com/`, `ipfs://${root}/found%2Etxt?query`]) {
      await page.goto(`${daemon.api}/ui/#/content`);
      await page.getByLabel("Content path").fill(address);
      await page.keyboard.press("Enter");
      await page.getByText("it is here").waitFor();
    }
  });
});

test("the links of a block are those of the block, and a block that cannot be decoded is shown as bytes", async () => {
  const nested = Buffer.alloc(1000, 0x81);
  nested[999] = 0x80;
  const form = new FormData();
  form.append("file", new Blob([nested]));
  const { Key } = JSON.parse(await (await fetch(`${daemon.origin}/api/v0/block/put?cid-codec=dag-cbor`, { method: "POST", body: form })).text());
  const root = await daemon.addDirectory({ inner: "a file" });
  await visit(browser, daemon, `content/${root}`, async (page) => {
    await page.getByText("Links of the block").click();
    await page.getByText("1 link", { exact: true }).waitFor();
    await page.goto(`${daemon.api}/ui/#/content/${Key}`);
    await page.getByText(/cannot be decoded: .*nested more than/).waitFor();
    await page.getByText("000010  81 81").waitFor();
  });
});

test("every view is accessible and fits, light and dark, from a phone to a wide screen", async () => {
  const root = await daemon.addDirectory({ "a.txt": "text", b: "more", ["long-name-".repeat(20)]: "long" });
  const views = [...VIEWS.map((view) => `#/${view}`), `#/content/${root}`, `#/content/${root}/a.txt`, "graphql"];
  for (const [colorScheme, width] of [["light", 390], ["dark", 768], ["light", 1280], ["dark", 1920]]) {
    const { page, complaints, close } = await open(browser, { viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
    for (const view of views) {
      await page.goto("about:blank");
      await page.goto(`${daemon.api}/ui/${view}`);
      await page.locator("#connection.live, #status:text-is('Ready')").waitFor();
      await page.waitForFunction(() => !document.body.textContent?.includes("Loading"));
      assert.equal(await overflow(page), 0, `${view} at ${width}`);
      const current = page.locator("nav [aria-current=page]");
      if (view !== "graphql") assert.ok(await current.evaluate((link) => link.getBoundingClientRect().right <= innerWidth && link.getBoundingClientRect().left >= 0), `${view} at ${width}`);
      await page.addScriptTag({ path: AXE });
      const { violations } = await page.evaluate(() => window.axe.run());
      const serious = violations.filter(({ impact }) => ["moderate", "serious", "critical"].includes(impact));
      assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), [], `${view}, ${colorScheme}`);
    }
    assert.deepEqual(complaints, []);
    await close();
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

test("the console asks for a key if the daemon authenticates its callers", async () => {
  const guarded = await Daemon.start("[auth]\nenabled = true\n");
  try {
    const admin = await readFile(path.join(guarded.repo, "api-token"), "utf8");
    const created = await fetch(`${guarded.origin}/v1/auth/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${admin}` },
      body: JSON.stringify({ name: "console", scopes: ["admin"] }),
    });
    const { token, key } = await created.json();
    const { page, complaints, close } = await open(browser, { bypassCSP: true });
    await page.goto(`${guarded.api}/ui/`);
    const field = page.getByLabel("API key");
    await field.fill("wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").getByText("not valid here").waitFor();
    await page.addScriptTag({ path: AXE });
    const problems = await page.evaluate(async () => (await axe.run()).violations.map(({ id }) => id));
    assert.deepEqual(problems, []);
    await field.fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.locator("#connection.live").waitFor();
    await page.getByText(`key:${key.id} (admin)`).waitFor();
    await page.goto(`${guarded.api}/ui/#/pins`);
    await page.getByText("Nothing is pinned").waitFor();
    // Scripts cannot read the session.
    assert.equal(await page.evaluate(() => document.cookie), "");
    // The sessions end with the daemon.
    await guarded.restart();
    await field.fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText(`key:${key.id} (admin)`).waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await field.waitFor();
    assert.deepEqual(complaints.filter((text) => !/401|WebSocket|ERR_CONNECTION|ERR_EMPTY/.test(text)), []);
    await close();
  } finally {
    await guarded.stop();
  }
});
