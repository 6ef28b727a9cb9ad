// The page that shows the OpenAPI description.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Daemon, launch, open } from "./harness.mjs";

let daemon, browser;

before(async () => {
  [daemon, browser] = await Promise.all([Daemon.start(), launch()]);
});

after(async () => {
  await browser?.close();
  await daemon?.stop();
});

test("the page lists the operations and sends a request, without the network", async () => {
  const { page, complaints, close } = await open(browser);
  const foreign = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(daemon.api) && !request.url().startsWith("data:")) foreign.push(request.url());
  });
  await page.goto(`${daemon.api}/docs`);
  assert.equal(page.url(), `${daemon.api}/docs/`);
  await page.getByRole("heading", { name: /Operation/ }).click();
  const operation = page.locator("#operations-Operation-get_health_live");
  await operation.locator("button").first().click();
  await operation.getByRole("button", { name: "Try it out" }).click();
  await operation.getByRole("button", { name: "Execute" }).click();
  await operation.locator(".live-responses-table").getByText('"status"').first().waitFor();
  assert.deepEqual(complaints, []);
  assert.deepEqual(foreign, []);
  await close();
});
