// A daemon with a repo of its own, and a browser that looks at it. Both are ended by their handles.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import readline from "node:readline";
import { chromium } from "playwright-core";

/** The environment variable `name`, which `cargo xtask browser` sets. */
function told(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run this with cargo xtask browser`);
  return value;
}

/** A gateway on a port that the system chose: by its address with paths, as localhost with subdomains. */
export class Daemon {
  static async start(settings = "") {
    const daemon = new Daemon();
    daemon.repo = await mkdtemp(path.join(tmpdir(), "ipfrs-browser-"));
    const config = path.join(daemon.repo, "config.toml");
    await writeFile(config, '[gateway.hosts."localhost"]\nsubdomains = true\n' + settings);
    await daemon.run("0", "0");
    return daemon;
  }

  async run(port, apiPort) {
    const options = ["--repo", this.repo, "gateway", "start", "--port", port, "--grpc-port", "0", "--api-port", apiPort];
    this.process = spawn(told("IPFRS_CLI"), options, { stdio: ["ignore", "pipe", "inherit"] });
    this.ended = new Promise((resolve) => this.process.once("exit", resolve));
    for await (const line of readline.createInterface({ input: this.process.stdout })) {
      if (line.startsWith("Gateway: ")) this.origin = line.slice("Gateway: ".length);
      if (line.startsWith("API: ")) this.api = line.slice("API: ".length);
      if (line === "Ready") return;
    }
    throw new Error("the daemon ended before it was ready");
  }

  /** Kills the daemon and starts it again at the same addresses. */
  async restart() {
    this.process.kill("SIGKILL");
    await this.ended;
    await this.run(new URL(this.origin).port, new URL(this.api).port);
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
    await rm(this.repo, { recursive: true });
  }

  /** Sends an RPC command, as a program does, and gives the text of the response. */
  async rpc(command, body) {
    const headers = { "content-type": "application/octet-stream" };
    return (await fetch(`${this.origin}/api/v0/${command}`, { method: "POST", body, headers })).text();
  }

  /** Adds files, by their names within one directory, and gives the CID of the directory. */
  async addDirectory(files) {
    const boundary = "a-boundary-that-no-name-has";
    const parts = Object.entries(files).map(([name, content]) => {
      const filename = encodeURIComponent(`d/${name}`);
      return (
        `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${filename}"\r\n` +
        `Content-Type: application/octet-stream\r\n\r\n${content}\r\n`
      );
    });
    const body = `${parts.join("")}--${boundary}--\r\n`;
    const headers = { "content-type": `multipart/form-data; boundary=${boundary}` };
    const answer = await fetch(`${this.origin}/api/v0/add?quieter=true`, { method: "POST", headers, body });
    const lines = (await answer.text()).trim().split("\n");
    if (answer.status !== 200) throw new Error(`add: ${lines}`);
    return JSON.parse(lines.at(-1)).Hash;
  }
}

/** A browser without a window. */
export function launch() {
  return chromium.launch({ executablePath: told("CHROMIUM"), args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** A page in a browser session of its own, and everything that it complained about. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"], ...options });
  const page = await context.newPage();
  const complaints = [];
  // The console tells of violations of the Content-Security-Policy, too, and of what does not load.
  page.on("console", (message) => {
    // Beside files that are no pages, browsers ask for an icon.
    const isIcon = message.location().url.endsWith("/favicon.ico");
    if (["error", "warning"].includes(message.type()) && !isIcon) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", async (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  return { page, complaints, close: () => context.close() };
}

/** By how many pixels a page is wider than its window. */
export function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

/** Opens a view of the console, lets `look` use it, and checks that the browser reported nothing unexpected. */
export async function visit(browser, daemon, view, look, { options = {}, expected = /$^/ } = {}) {
  const { page, complaints, close } = await open(browser, options);
  await page.goto(`${daemon.api}/ui/#/${view}`);
  await page.locator("#connection.live").waitFor();
  await look(page);
  assert.deepEqual(complaints.filter((text) => !expected.test(text)), []);
  await close();
}
