// The pages of a gateway, as a person meets them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Daemon, launch, open, overflow } from "./harness.mjs";

const PHONE = { viewport: { width: 320, height: 640 } };
const ENTRIES = 20_000;
const HOSTILE = {
  "<script>alert(1)<script>": "a",
  "<img src=x onerror=alert(2)>": "b",
  '"onmouseover="alert(3)" x="': "c",
  "javascript:alert(4)": "d",
  "photo\u202egpj.exe": "e",
  "line\nbreak": "f",
  "100%41 #fragment ?query=1 &amp; a+b": "g",
  "日本語 עברית ünï": "h",
};
const FILES = {
  ...HOSTILE,
  "docs/deep/note.txt": "a note",
  "docs/readme.md": "# read me",
  "picture.png": "no picture",
  ["a-very-long-name-".repeat(14)]: "long",
};

let daemon, browser, root, large;

before(async () => {
  [daemon, browser] = await Promise.all([Daemon.start(), launch()]);
  root = await daemon.addDirectory(FILES);
  const names = Array.from({ length: ENTRIES }, (_, i) => [`entry-${i}.txt`, `${i}`]);
  large = await daemon.addDirectory(Object.fromEntries(names));
});

after(async () => {
  await browser?.close();
  await daemon?.stop();
});

/** Opens `path`, lets `look` look at it, and holds that the browser had nothing to complain about. */
async function visit(path, options, look) {
  const { page, complaints, close } = await open(browser, options);
  await page.goto(`${daemon.origin}${path}`);
  await look(page, complaints);
  assert.deepEqual(complaints, []);
  await close();
}

const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

test("a listing shows every name as it is, and runs none of them", async () => {
  await visit(`/ipfs/${root}/`, {}, async (page) => {
    const names = await page.locator("td.name a").allTextContents();
    const shown = Object.keys(HOSTILE).map((name) => name.replace("\u202e", "⟨U+202E⟩").replace("\n", "⟨U+000A⟩"));
    for (const name of shown) assert.ok(names.includes(name), name);
    assert.equal(await page.title(), `Index of /ipfs/${root}`);
    assert.equal(await page.locator("td.name img, td.name script").count(), 0);
    for (const handle of await page.locator("td.name a").all()) await handle.hover();
  });
});

test("every link of a listing leads to its content", async () => {
  await visit(`/ipfs/${root}/`, {}, async (page) => {
    const links = await page.locator("td a").evaluateAll((links) => links.map((link) => link.href));
    const found = await Promise.all(links.map(async (link) => (await fetch(link)).text()));
    // Once by its name, once by its CID.
    for (const content of Object.values(HOSTILE)) {
      assert.equal(found.filter((text) => text === content).length, 2, content);
    }
  });
});

test("the headings lead up, and directories lead down", async () => {
  await visit(`/ipfs/${root}/`, {}, async (page) => {
    await page.getByRole("link", { name: "docs", exact: true }).click();
    await page.getByRole("link", { name: "deep", exact: true }).click();
    assert.equal(new URL(page.url()).pathname, `/ipfs/${root}/docs/deep/`);
    await page.getByRole("link", { name: "..", exact: true }).click();
    assert.equal(new URL(page.url()).pathname, `/ipfs/${root}/docs/`);
    await page.getByRole("navigation").getByRole("link", { name: root }).click();
    assert.equal(new URL(page.url()).pathname, `/ipfs/${root}/`);
  });
});

test("a CID is copied by mouse and by keyboard", async () => {
  await visit(`/ipfs/${root}/docs/`, {}, async (page) => {
    const row = page.getByRole("row").filter({ hasText: "readme.md" });
    const cid = await row.locator(".ipfs-hash").textContent();
    const pasted = () => page.evaluate(() => navigator.clipboard.readText());
    await row.getByRole("button").click();
    await page.getByText("Copied", { exact: true }).waitFor({ state: "attached" });
    assert.equal(await pasted(), cid);
    await page.locator(".about button").focus();
    await page.keyboard.press("Enter");
    await page.locator(".about button.copied").waitFor();
    assert.equal(await pasted(), await page.locator(".about code").textContent());
  });
});

test("without script a listing is whole, and has no buttons that do nothing", async () => {
  await visit(`/ipfs/${root}/`, { javaScriptEnabled: false }, async (page) => {
    assert.equal(await page.locator("td.name a").count(), Object.keys(FILES).length - 1);
    assert.equal(await page.getByRole("button").count(), 0);
    assert.equal(await page.getByRole("searchbox").count(), 0);
    assert.ok(await page.getByRole("columnheader", { name: "Name" }).isVisible());
  });
});

const shownNames = (page) => page.locator("tbody.entries td.name a").allTextContents();

test("the filter of a listing leaves the entries whose names contain it", async () => {
  await visit(`/ipfs/${root}/`, {}, async (page) => {
    const all = await shownNames(page);
    const filter = page.getByRole("searchbox", { name: "Filter entries by name" });
    await filter.fill(" PHOTO");
    assert.deepEqual(await shownNames(page), ["photo⟨U+202E⟩gpj.exe"]);
    assert.equal(await page.getByRole("status").textContent(), `1 of ${all.length} entries`);
    assert.equal(await page.getByRole("link", { name: "..", exact: true }).count(), 0, "a root has no parent");
    await filter.fill("no such name");
    assert.deepEqual(await shownNames(page), []);
    await filter.press("Escape");
    assert.deepEqual(await shownNames(page), all, "the order of the directory is restored");
  });
});

test("the headings of a listing sort by name and by size", async () => {
  const sizes = { "10.txt": "a".repeat(2_000), "9.txt": "b".repeat(30), "é.txt": "", "dir/x": "c", "f.txt": "d".repeat(1_500) };
  const directory = await daemon.addDirectory(sizes);
  await visit(`/ipfs/${directory}/`, {}, async (page) => {
    const stored = await shownNames(page);
    const sortBy = async (name, state, names) => {
      await page.getByRole("button", { name, exact: true }).click();
      assert.deepEqual(await shownNames(page), names, `${name} ${state}`);
      assert.equal(await page.getByRole("columnheader", { name }).getAttribute("aria-sort"), state);
    };
    await sortBy("Name", "ascending", ["9.txt", "10.txt", "dir", "é.txt", "f.txt"]);
    await sortBy("Name", "descending", ["f.txt", "é.txt", "dir", "10.txt", "9.txt"]);
    await sortBy("Name", null, stored);
    await sortBy("Size", "ascending", ["dir", "é.txt", "9.txt", "f.txt", "10.txt"]);
    await page.getByRole("searchbox").fill("txt");
    assert.deepEqual(await shownNames(page), ["é.txt", "9.txt", "f.txt", "10.txt"], "the filter keeps the order");
    await sortBy("Size", "descending", ["10.txt", "f.txt", "9.txt", "é.txt"]);
  });
});

test("the header of a long listing stays in view, also on a phone", async () => {
  for (const options of [{}, PHONE]) {
    await visit(`/ipfs/${large}/`, options, async (page) => {
      await page.locator("tbody.entries tr").last().scrollIntoViewIfNeeded();
      const heading = page.getByRole("button", { name: "Size", exact: true });
      assert.ok(Math.abs((await page.locator("thead").boundingBox()).y) < 2, "it is at the top of the window");
      await heading.click();
      assert.equal(await page.locator("tbody.entries tr").count(), ENTRIES);
      await page.getByRole("searchbox").fill("entry-19999");
      assert.deepEqual(await shownNames(page), ["entry-19999.txt"]);
    });
  }
});

test("pages fit a phone and follow the colours of the system", async () => {
  for (const path of [`/ipfs/${root}/`, "/ipfs/not-a-cid/" + "x".repeat(300), "/"]) {
    const colours = [];
    for (const colorScheme of ["light", "dark"]) {
      const { page, close } = await open(browser, { ...PHONE, colorScheme });
      await page.goto(`${daemon.origin}${path}`);
      assert.equal(await overflow(page), 0, `${path} ${colorScheme}`);
      colours.push(await background(page));
      await close();
    }
    assert.notEqual(colours[0], colours[1], path);
  }
});

test("an error is a page that says why, and shows a hostile path as text", async () => {
  const { page, complaints, close } = await open(browser);
  const path = `/ipfs/${root}/<script>alert(5)<%2Fscript>/missing`;
  const answer = await page.goto(`${daemon.origin}${path}`);
  assert.equal(answer.status(), 404);
  assert.equal(answer.headers()["cache-control"], "no-store");
  const text = await page.locator("main").innerText();
  assert.match(text, /404/);
  assert.ok(text.includes("<script>alert(5)</script>/missing"), text);
  assert.ok(text.includes(answer.headers()["x-request-id"]), text);
  // The one complaint is the browser's own, about the status.
  assert.deepEqual(complaints.filter((complaint) => !complaint.includes("404")), []);
  await close();
});

test("the welcome leads to what is typed", async () => {
  await visit("/", {}, async (page) => {
    await page.getByRole("textbox").fill(`ipfs://${root}/docs/deep/note.txt`);
    await page.keyboard.press("Enter");
    await page.waitForURL(`**/ipfs/${root}/docs/deep/note.txt`);
    assert.equal(await page.locator("body").innerText(), "a note");
  });
});

test("on a gateway with subdomains the form and all links lead to origins of their own", async () => {
  const { page, complaints, close } = await open(browser);
  const { port } = new URL(daemon.origin);
  await page.goto(`http://localhost:${port}/`);
  await page.getByRole("textbox").fill(`/ipfs/${root}/docs/`);
  await page.keyboard.press("Enter");
  await page.waitForURL(/^http:\/\/[a-z0-9]+\.ipfs\.localhost:\d+\/docs\/$/);
  const { origin } = new URL(page.url());
  await page.getByRole("link", { name: "deep", exact: true }).click();
  assert.equal(page.url(), `${origin}/docs/deep/`);
  await page.getByRole("navigation").getByRole("link").first().click();
  assert.equal(page.url(), `${origin}/`);
  const byCid = page.getByRole("row").filter({ hasText: "docs" }).locator(".ipfs-hash");
  await byCid.click();
  assert.match(page.url(), /^http:\/\/[a-z0-9]+\.ipfs\.localhost:\d+\/\?filename=docs$/);
  assert.deepEqual(complaints, []);
  await close();
});

test(`a directory of ${ENTRIES} entries is listed whole and scrolls`, async () => {
  await visit(`/ipfs/${large}/`, {}, async (page) => {
    assert.equal(await page.locator("td.cid").count(), ENTRIES);
    const last = page.locator("td.name a").last();
    await last.scrollIntoViewIfNeeded();
    assert.ok(await last.isVisible());
    assert.equal(await overflow(page), 0);
    await page.locator("footer").scrollIntoViewIfNeeded();
    assert.ok((await page.locator("footer").innerText()).includes("20,000 entries"));
  });
});
