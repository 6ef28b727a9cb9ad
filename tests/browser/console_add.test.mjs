// Adding files and folders in the console.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { Daemon, launch, open, visit } from "./harness.mjs";

let daemon, browser, directory;

before(async () => {
  [daemon, browser, directory] = await Promise.all([Daemon.start(), launch(), mkdtemp(path.join(tmpdir(), "ipfrs-console-"))]);
});

after(async () => {
  await browser?.close();
  await daemon?.stop();
  await rm(directory, { recursive: true });
});

/** Drops files and folders on the view that adds them. */
async function drop(page, ...files) {
  const { x, y } = await page.locator(".drop").boundingBox();
  const session = await page.context().newCDPSession(page);
  const data = { items: [], files, dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"]) await session.send("Input.dispatchDragEvent", { type, x: x + 9, y: y + 9, data });
}

/** The content ID that the command line gives a folder. */
function contentId(folder) {
  const added = spawnSync(process.env.IPFRS_CLI, ["--repo", daemon.repo, "add", "-r", "-H", "-n", "-Q", folder], { encoding: "utf8" });
  assert.equal(added.status, 0, added.stderr);
  return added.stdout.trim();
}

test("a folder is uploaded, listed and opened", async () => {
  const folder = path.join(directory, "site");
  await mkdir(path.join(folder, "deep"), { recursive: true });
  const large = Buffer.alloc(3_000_000, "large ");
  await writeFile(path.join(folder, "index.txt"), "the index");
  await writeFile(path.join(folder, "deep", "ünïcode & more.txt"), "deep text");
  await writeFile(path.join(folder, "large.bin"), large);
  await writeFile(path.join(folder, "empty"), "");
  await visit(browser, daemon, "add", async (page) => {
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
    assert.equal((await daemon.rpc("pin/ls")).includes(cid), false);
  });
});

test("the same directory gets the content ID that add gives it", async () => {
  const folder = path.join(directory, "same");
  await mkdir(path.join(folder, "below"), { recursive: true });
  const files = { b: "b", a: "a", Z: "Z", "below/c": "c" };
  for (const [name, content] of Object.entries(files)) await writeFile(path.join(folder, name), content);
  const expected = await daemon.addDirectory(files);
  await visit(browser, daemon, "add", async (page) => {
    await page.locator("#folder").setInputFiles(folder);
    const done = page.locator("[data-cid]");
    await done.waitFor();
    assert.equal(await done.getAttribute("data-cid"), expected);
  });
});

test("a dropped folder keeps its empty directories", async () => {
  const folder = path.join(directory, "hollow");
  await mkdir(path.join(folder, "full", "empty"), { recursive: true });
  await mkdir(path.join(folder, "nothing", "in", "it"), { recursive: true });
  await writeFile(path.join(folder, "full", "file.bin"), Buffer.alloc(3_000_000, "file "));
  const empty = path.join(directory, "empty-folder");
  await mkdir(empty);
  await visit(browser, daemon, "add", async (page) => {
    await drop(page, folder, empty);
    for (const dropped of [folder, empty]) {
      const done = page.locator("[data-cid]", { hasText: `${path.basename(dropped)}/` });
      assert.equal(await done.getAttribute("data-cid"), contentId(dropped));
    }
  });
});

test("a file that changes or vanishes while it is sent is refused, and its upload is removed", async () => {
  const changes = {
    "changed.bin": { bytes: 2_000_000, when: "PATCH", change: (file) => writeFile(file, "other") },
    "second.bin": { bytes: 34_000_000, when: "second PATCH", change: (file) => utimes(file, 1, 1) },
    "vanished.bin": { bytes: 2_000_000, when: "PATCH", change: (file) => rm(file) },
    "small.bin": { bytes: 10, when: "POST", change: (file) => writeFile(file, "other") },
    "empty.bin": { bytes: 0, when: "POST", change: (file) => rm(file) },
  };
  const { page, close } = await open(browser);
  await page.goto(`${daemon.api}/ui/#/add`);
  for (const [name, { bytes, when, change }] of Object.entries(changes)) {
    const file = path.join(directory, name);
    await writeFile(file, Buffer.alloc(bytes, "before "));
    let upload;
    await page.route(/\/v1\/stream\/upload/, async (route) => {
      const request = route.request();
      if (request.method() === "PATCH") upload = request.url();
      const isSecond = Number(request.headers()["upload-offset"]) > 0;
      if (when === (isSecond ? "second PATCH" : request.method())) await change(file);
      await route.continue();
    });
    await page.locator("#files").setInputFiles(file);
    const row = page.locator(".tile", { hasText: name });
    await row.getByText("the file changed on disk: choose it again", { exact: true }).waitFor();
    if (upload) assert.equal((await fetch(upload, { method: "HEAD", headers: { "Tus-Resumable": "1.0.0" } })).status, 404);
    assert.equal(await page.evaluate(() => localStorage.length), 0);
    await page.unrouteAll();
  }
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

test("files that are dropped anywhere on the page are added", async () => {
  await visit(browser, daemon, "add", async (page) => {
    const dropped = await page.evaluate(() => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["dropped"], "<b>.txt"));
      const target = document.querySelector("header");
      const event = (kind) => new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true });
      target.dispatchEvent(event("dragover"));
      const isMarked = document.querySelector(".drop").classList.contains("over");
      const drop = event("drop");
      target.dispatchEvent(drop);
      return { isMarked, isTaken: drop.defaultPrevented };
    });
    assert.deepEqual(dropped, { isMarked: true, isTaken: true });
    const done = page.locator("[data-cid]", { hasText: "<b>.txt" });
    await done.waitFor();
    const cid = await done.getAttribute("data-cid");
    assert.equal(await (await fetch(`${daemon.origin}/ipfs/${cid}`)).text(), "dropped");
  });
});

test("a folder is dropped; a directory that is too long is refused before it is sent", async () => {
  const folder = path.join(directory, "dropped");
  await mkdir(path.join(folder, "inner"), { recursive: true });
  await writeFile(path.join(folder, "inner", "deep.txt"), "from a drop");
  const long = path.join(directory, "long");
  await mkdir(long, { recursive: true });
  const name = (index) => `${"n".repeat(230)}${index}`;
  await Promise.all(Array.from({ length: 1000 }, (_, index) => writeFile(path.join(long, name(index)), "")));
  await visit(browser, daemon, "add", async (page) => {
    await drop(page, folder);
    const done = page.locator("[data-cid]");
    await done.waitFor();
    const cid = await done.getAttribute("data-cid");
    assert.equal(await (await fetch(`${daemon.origin}/ipfs/${cid}/inner/deep.txt`)).text(), "from a drop");
    let sent = 0;
    page.on("request", (request) => (sent += Number(request.url().includes("/v1/stream/upload"))));
    await page.locator("#folder").setInputFiles(long);
    await page.getByText("the folder has 1,000 entries, too many for the console: use ipfrs-cli add -r").first().waitFor();
    assert.equal(sent, 0);
  });
});

test("an upload that is cancelled while it is sent leaves nothing on the daemon", async () => {
  const large = path.join(directory, "cancelled.bin");
  await writeFile(large, Buffer.alloc(200_000_000, "cancelled "));
  await visit(browser, daemon, "add", async (page) => {
    await page.locator("#files").setInputFiles(large);
    await page.waitForFunction(() => document.querySelector("progress")?.value > 0);
    await page.getByRole("button", { name: "Cancel the upload of cancelled.bin" }).click();
    await page.getByText("Cancelled", { exact: true }).waitFor();
    const running = async () => (await (await fetch(`${daemon.origin}/v1/progress`)).json()).operations;
    while ((await running()).length > 0);
    assert.equal(await page.evaluate(() => localStorage.length), 0);
  }, { expected: /409/ });
});

test("an upload continues on a new page", async () => {
  const large = path.join(directory, "again.bin");
  await writeFile(large, Buffer.alloc(100_000_000, "again "));
  const { page, close } = await open(browser);
  const offsets = [];
  page.context().on("request", (request) => {
    if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
  });
  await page.goto(`${daemon.api}/ui/#/add`);
  await page.locator("#files").setInputFiles(large);
  while (!offsets.some((offset) => offset > 0)) await page.evaluate(() => new Promise(requestAnimationFrame));
  await page.close();
  offsets.length = 0;
  const next = await page.context().newPage();
  await next.goto(`${daemon.api}/ui/#/add`);
  await next.locator("#files").setInputFiles(large);
  const cid = await next.locator("[data-cid]").getAttribute("data-cid");
  assert.equal(offsets.includes(0), false, "it does not begin anew");
  assert.deepEqual(Buffer.from(await (await fetch(`${daemon.origin}/ipfs/${cid}`)).arrayBuffer()), await readFile(large));
  await close();
});

test("another file with the same name, length and time is not continued", async () => {
  const [one, other] = ["one", "other"].map((name) => path.join(directory, name, "same.bin"));
  for (const [file, byte] of [[one, 1], [other, 2]]) {
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, Buffer.alloc(100_000_000, byte));
    await utimes(file, 1, 1);
  }
  const { page, close } = await open(browser);
  const offsets = [];
  page.context().on("request", (request) => {
    if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
  });
  await page.goto(`${daemon.api}/ui/#/add`);
  await page.locator("#files").setInputFiles(one);
  while (!offsets.some((offset) => offset > 0)) await page.evaluate(() => new Promise(requestAnimationFrame));
  await page.close();
  const next = await page.context().newPage();
  await next.goto(`${daemon.api}/ui/#/add`);
  await next.locator("#files").setInputFiles(other);
  const cid = await next.locator("[data-cid]").getAttribute("data-cid");
  assert.deepEqual(Buffer.from(await (await fetch(`${daemon.origin}/ipfs/${cid}`)).arrayBuffer()), await readFile(other));
  await close();
});

test("a folder that is chosen again continues with the next file", async () => {
  const folder = path.join(directory, "continued");
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, "first.bin"), Buffer.alloc(3_000_000, "first "));
  await writeFile(path.join(folder, "second.bin"), Buffer.alloc(100_000_000, "second "));
  const { page, close } = await open(browser);
  const offsets = [];
  page.context().on("request", (request) => {
    if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
  });
  await page.goto(`${daemon.api}/ui/#/add`);
  await page.locator("#folder").setInputFiles(folder);
  await page.getByText("1 of 2 files").waitFor();
  while (!offsets.some((offset) => offset > 0)) await page.evaluate(() => new Promise(requestAnimationFrame));
  await page.close();
  offsets.length = 0;
  const next = await page.context().newPage();
  await next.goto(`${daemon.api}/ui/#/add`);
  await next.locator("#folder").setInputFiles(folder);
  const cid = await next.locator("[data-cid]").getAttribute("data-cid");
  // Nothing is sent at all if the daemon had received everything when the page was closed.
  assert.equal(offsets.includes(0), false, `${offsets}`);
  assert.equal((await (await fetch(`${daemon.origin}/ipfs/${cid}/first.bin`)).arrayBuffer()).byteLength, 3_000_000);
  assert.equal((await (await fetch(`${daemon.origin}/ipfs/${cid}/second.bin`)).arrayBuffer()).byteLength, 100_000_000);
  assert.equal(await next.evaluate(() => localStorage.length), 0);
  await close();
});

test("a key that may only write adds a folder, and is told that it sees no events", async () => {
  const folder = path.join(directory, "written");
  await mkdir(path.join(folder, "below"), { recursive: true });
  await writeFile(path.join(folder, "large.bin"), Buffer.alloc(3_000_000, "written "));
  await writeFile(path.join(folder, "below", "small.txt"), "small");
  const guarded = await Daemon.start("[auth]\nenabled = true\n");
  try {
    const authorization = `Bearer ${await readFile(path.join(guarded.repo, "api-token"), "utf8")}`;
    const asAdmin = (address, body) => fetch(`${guarded.origin}${address}`, { method: "POST", headers: { authorization }, body });
    const { token } = await (await asAdmin("/v1/auth/keys", JSON.stringify({ name: "writer", scopes: ["write"] }))).json();
    const { page, close } = await open(browser);
    let connections = 0;
    page.on("websocket", () => (connections += 1));
    await page.clock.install();
    await page.goto(`${guarded.api}/ui/#/add`);
    await page.getByLabel("API key").fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.locator("#connection").getByText(/without events: .* needs read/).waitFor();
    const before = connections;
    await page.clock.runFor(60_000);
    await page.locator("#folder").setInputFiles(folder);
    const cid = await page.locator("[data-cid]").getAttribute("data-cid");
    assert.equal(cid, contentId(folder));
    assert.equal((await asAdmin(`/api/v0/pin/ls?arg=${cid}&type=recursive`)).status, 200);
    assert.equal(connections, before, "it does not try to connect again");
    await close();
  } finally {
    await guarded.stop();
  }
});
