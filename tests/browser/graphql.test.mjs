// The query page, as a person uses it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Daemon, launch, open, overflow } from "./harness.mjs";

let daemon, browser;

before(async () => {
  [daemon, browser] = await Promise.all([Daemon.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await daemon?.stop();
});

/** Opens the page, lets `look` use it, and checks that the browser reported nothing. */
async function visit(options, look) {
  const { page, complaints, close } = await open(browser, options);
  // The main port shares its origin with content, so it sends people to the API listener.
  await page.goto(`${daemon.origin}/graphql`);
  assert.equal(page.url(), `${daemon.api}/ui/graphql`);
  await page.locator("#status", { hasText: /^Ready$/ }).waitFor();
  await look(page);
  assert.deepEqual(complaints, []);
  await close();
}

const query = (page) => page.getByRole("combobox", { name: "Query" });
const result = async (page) => JSON.parse(await page.locator("#result pre").first().textContent());

test("queries run with variables, and their history stays", async () => {
  await visit({}, async (page) => {
    await query(page).fill("query Page($first: Int) { pins(first: $first) { nodes { cid } } }");
    await page.getByRole("combobox", { name: "Variables" }).fill('{ "first": 3 }');
    await page.keyboard.press("Control+Enter");
    await page.locator("#status", { hasText: "Done" }).waitFor();
    assert.deepEqual(await result(page), { data: { pins: { nodes: [] } } });
    await page.reload();
    await page.locator("#status", { hasText: /^Ready$/ }).waitFor();
    assert.match(await query(page).inputValue(), /query Page/);
    await page.getByRole("tab", { name: "History" }).click();
    await query(page).fill("{ version { version } }");
    await page.getByRole("button", { name: /query Page/ }).click();
    assert.match(await query(page).inputValue(), /query Page/);
  });
});

test("the editor completes, and names mistakes", async () => {
  await visit({}, async (page) => {
    await query(page).fill("");
    await query(page).pressSequentially("{ sta");
    await page.getByRole("option", { name: /^stats/ }).waitFor();
    await page.keyboard.press("Enter");
    await query(page).pressSequentially(" { blo");
    await page.keyboard.press("Tab");
    assert.equal(await query(page).inputValue(), "{ stats { blocks");
    await page.getByText('"}" is missing at the end').first().waitFor();
    await query(page).pressSequentially(" nothing } block { cid } }");
    await page.getByText("Stats has no field nothing").waitFor();
    await page.getByText("the argument cid is missing").waitFor();
    await query(page).fill("{ stats { blocks } }");
    assert.equal(await page.locator(".mistakes li").count(), 0);
  });
});

test("variables are checked, and the innermost place is completed", async () => {
  await visit({}, async (page) => {
    await query(page).fill("query ($unused: Cid!) { block(cid: $missing) { size } }");
    await page.getByText("the operation does not declare $missing").waitFor();
    await page.getByText("the variable $unused is not used").waitFor();
    await query(page).fill("query ($cid: Cid!) { block(cid: $cid) { size } }");
    assert.equal(await page.locator(".mistakes li").count(), 0);
    const proposals = async (text) => {
      await query(page).fill(text);
      await page.keyboard.press("Control+Space");
      return page.getByRole("option").allTextContents();
    };
    assert.deepEqual((await proposals("{ pins(type: ")).map((text) => text.trim()), ["DIRECT", "RECURSIVE"]);
    assert.match((await proposals("{ stats { ")).join(), /diskBytes/);
    assert.equal((await proposals("{ stats { ")).join().includes("hasBlock"), false);
  });
});

test("hostile documents do not break the page", async () => {
  await visit({}, async (page) => {
    const aliases = Array.from({ length: 50_000 }, (_, index) => `a${index}: stats { blocks }`);
    for (const document of ["{a".repeat(10_000), "query ($a: " + "[".repeat(10_000), "{ a(b: " + "[".repeat(10_000), `{ ${aliases.join(" ")} }`]) {
      await query(page).fill(document);
      // What is painted is what was typed.
      assert.ok((await page.locator("#query pre").textContent()).startsWith(document.slice(0, 50_000)));
    }
    await query(page).fill("{ stats { blocks } }");
    await page.keyboard.press("Control+Enter");
    await page.locator("#status", { hasText: "Done" }).waitFor();
    assert.ok((await result(page)).data.stats);
  });
});

test("a full storage does not stop the page, and the keyboard changes tabs", async () => {
  await visit({}, async (page) => {
    await page.evaluate(() => {
      for (const size of [1_000_000, 10_000, 100, 1]) {
        try {
          for (let index = 0; ; index += 1) localStorage.setItem(`${size}-${index}`, "x".repeat(size));
        } catch {
          // It is full.
        }
      }
    });
    await query(page).fill("{ version { version } }");
    await page.keyboard.press("Control+Enter");
    await page.locator("#status", { hasText: "Done" }).waitFor();
    await page.getByRole("tab", { name: "Documentation" }).focus();
    await page.keyboard.press("ArrowRight");
    await page.getByRole("tabpanel", { name: "History" }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.id), "history-tab");
    await page.getByRole("link", { name: "Console" }).click();
    await page.locator("#connection.live").waitFor();
  });
});

test("subscriptions show events until they are stopped", async () => {
  await visit({}, async (page) => {
    await query(page).fill("subscription { blockAdded { size } }");
    await page.getByRole("button", { name: "Run" }).click();
    const metrics = async () => (await fetch(`${daemon.origin}/metrics`)).text();
    while (!(await metrics()).includes("ipfrs_graphql_subscriptions_active 1"));
    await fetch(`${daemon.origin}/api/v0/block/put`, { method: "POST", body: "12345" });
    await page.locator("#status", { hasText: /^1 result$/ }).waitFor();
    assert.deepEqual(await result(page), { data: { blockAdded: { size: 5 } } });
    await page.getByRole("button", { name: "Stop" }).click();
    await page.locator("#status", { hasText: "stopped" }).waitFor();
  });
});

test("the documentation finds fields, on a phone too", async () => {
  await visit({ viewport: { width: 390, height: 800 }, colorScheme: "dark" }, async (page) => {
    assert.equal(await overflow(page), 0);
    await page.getByRole("searchbox").fill("hasBlock");
    await page.getByRole("button", { name: "Query", exact: true }).click();
    await page.getByText("Whether a block is in this store.").waitFor();
    assert.equal(await overflow(page), 0);
  });
});
