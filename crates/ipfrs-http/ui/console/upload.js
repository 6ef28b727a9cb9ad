// Resumable uploads of files (tus 1.0.0), which continue after lost connections and after the page was reloaded.

import { DaemonError } from "./api.js";
import { visible } from "./format.js";

const ENDPOINT = "/v1/stream/upload";
const TUS = { "Tus-Resumable": "1.0.0" };
/** Bytes of one request. The daemon confirms that they are durable. */
const CHUNK_BYTES = 32 * 1024 * 1024;
/** Files up to this size are sent with the request that creates their upload. */
const SMALL_BYTES = 1024 * 1024;
/** Attempts to remove an upload that ended early, of which the daemon may still be reading the last part. */
const REMOVALS = 10;
/** Delays before the next attempt, in milliseconds. Each success begins them anew. */
const DELAYS = [500, 1000, 2000, 5000, 10_000, 10_000, 20_000, 30_000, 30_000, 60_000];

/** Bytes in each of the samples by which a file is recognised, and their number: all bytes of a small file. */
const SAMPLE_BYTES = 64 * 1024;
const SAMPLES = 16;

/**
 * Name in the storage of the browser for an upload.
 * @param {File} file
 * @param {string} path
 * @param {boolean} pin
 */
const keyOf = (file, path, pin) => `ipfrs.upload.${path}:${file.size}:${file.lastModified}:${pin}`;

/**
 * Returns the hash of samples of a file, which tells it from others with the same name, length and time. Browsers have
 * no hash functions for pages that they received over plain HTTP from another machine: there, no upload continues after
 * the page was reloaded.
 * @param {File} file
 */
async function fingerprint(file) {
  if (!globalThis.crypto?.subtle) return "";
  // The first sample begins with the file, and the last one ends with it.
  const step = Math.max((file.size - SAMPLE_BYTES) / (SAMPLES - 1), SAMPLE_BYTES);
  const samples = new Blob(Array.from({ length: SAMPLES }, (_, index) => file.slice(Math.floor(index * step), Math.floor(index * step) + SAMPLE_BYTES)));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await samples.arrayBuffer()));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Whether a file is as it was when it was chosen. Requests with a file that changed or vanished since fail as if the
 * connection were lost.
 * @param {File} file
 */
async function isUnchanged(file) {
  // Browsers read nothing for a part of an empty file, and look at the file only if they read all of it.
  const sample = file.size === 0 ? file : file.slice(0, 1);
  return sample.arrayBuffer().then(() => true, () => false);
}

/**
 * Forgets uploads that were not pinned. They are remembered after their end, so that a folder continues with the next
 * file when it is chosen again.
 * @param {{ path: string, file: File }[]} items
 */
export function forget(items) {
  for (const { path, file } of items) localStorage.removeItem(keyOf(file, path, false));
}

/**
 * Uploads a file and returns its content ID. Without a pin, the caller has to `forget` it.
 * @param {File} file
 * @param {{ path: string, pin: boolean, signal: AbortSignal, progress: (bytes: number) => void, waiting: (why: string) => void }} options
 * @returns {Promise<string>}
 */
export async function upload(file, { path, pin, signal, progress, waiting }) {
  const key = keyOf(file, path, pin);
  // An error that ends a folder has to name the file.
  const named = path === file.name ? "" : `${visible(path)}: `;
  const print = await fingerprint(file).catch(() => {
    throw new Error(`${named}the browser cannot read the file: if it changed on disk, choose it again`);
  });
  let failures = 0;
  const [known, begun] = (localStorage.getItem(key) ?? "").split(" ");
  /** @type {string | null} */
  let location = begun && known === print ? begun : null;
  for (;;) {
    try {
      let state;
      if (location === null) {
        ({ location, state } = await create(file, pin, signal));
        if (state.cid === null && print !== "") remember(key, `${print} ${location}`);
      } else {
        state = await status(location, signal);
      }
      if (state === undefined) {
        // It has expired, or was cancelled.
        localStorage.removeItem(key);
        location = null;
        continue;
      }
      while (state.cid === null) {
        progress(state.offset);
        const { offset } = state;
        const chunk = file.slice(offset, offset + CHUNK_BYTES);
        state = await send(location, offset, chunk, signal, (sent) => progress(offset + sent));
        failures = 0;
      }
      if (pin) localStorage.removeItem(key);
      progress(file.size);
      return state.cid;
    } catch (error) {
      const hasChanged = !(error instanceof DaemonError) && !(await isUnchanged(file));
      if (signal.aborted || hasChanged) {
        localStorage.removeItem(key);
        if (location !== null) await remove(location);
        throw new Error(signal.aborted ? "cancelled" : `${named}the file changed on disk: choose it again`);
      }
      // Another request may still be sending, and a busy daemon or one that starts again soon accepts it.
      const isFinal = error instanceof DaemonError && ![409, 423, 429, 500, 502, 503, 504].includes(error.status);
      if (isFinal || failures >= DELAYS.length) throw error;
      waiting(error instanceof DaemonError ? error.message : "no connection");
      await sleep(DELAYS[failures], signal);
      failures += 1;
    }
  }
}

/**
 * Creates an upload. A small file is sent at once, so that folders of many files need one request for each.
 * @param {File} file
 * @param {boolean} pin
 * @param {AbortSignal} signal
 */
async function create(file, pin, signal) {
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(file.name)));
  const isSmall = file.size <= SMALL_BYTES;
  const headers = { ...TUS, "Upload-Length": String(file.size), "Upload-Metadata": `filename ${name}`, ...(isSmall ? { "Content-Type": "application/offset+octet-stream" } : {}) };
  const response = await fetch(`${ENDPOINT}?pin=${pin}`, { method: "POST", headers, signal, body: isSmall ? file : undefined });
  if (response.status !== 201) throw await refusal(response);
  return { location: response.headers.get("Location") ?? "", state: stateOf((header) => response.headers.get(header)) };
}

/** @param {string} key @param {string} text */
function remember(key, text) {
  try {
    localStorage.setItem(key, text);
  } catch {
    // The storage is full or disabled. The upload continues unless the page is reloaded.
  }
}

/** Removes an upload. @param {string} location */
async function remove(location) {
  for (let attempt = 1; attempt <= REMOVALS; attempt += 1) {
    const response = await fetch(location, { method: "DELETE", headers: TUS }).catch(() => undefined);
    if (response && ![409, 423].includes(response.status)) return;
    await new Promise((resolve) => setTimeout(resolve, 100 * attempt));
  }
}

/**
 * Returns the state of an upload, or nothing if there is no such upload.
 * @param {string} location
 * @param {AbortSignal} signal
 */
async function status(location, signal) {
  const response = await fetch(location, { method: "HEAD", headers: TUS, signal });
  if (response.status === 404 || response.status === 410) return undefined;
  if (!response.ok) throw new DaemonError(`the upload could not continue: ${response.status}`, response.status);
  return stateOf((name) => response.headers.get(name));
}

/** @param {(name: string) => string | null} header */
const stateOf = (header) => ({ offset: Number(header("Upload-Offset")), cid: header("X-Ipfs-Cid") });

/**
 * Sends a part of a file. Unlike fetch, XMLHttpRequest reports progress.
 * @param {string} location
 * @param {number} offset
 * @param {Blob} chunk
 * @param {AbortSignal} signal
 * @param {(sent: number) => void} progress
 * @returns {Promise<{ offset: number, cid: string | null }>}
 */
function send(location, offset, chunk, signal, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PATCH", location);
    const headers = { ...TUS, "Upload-Offset": String(offset), "Content-Type": "application/offset+octet-stream" };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", ({ loaded }) => progress(loaded));
    const stop = () => request.abort();
    signal.addEventListener("abort", stop);
    request.addEventListener("loadend", () => {
      signal.removeEventListener("abort", stop);
      if (request.status === 204) resolve(stateOf((name) => request.getResponseHeader(name)));
      else if (request.status === 0) reject(new TypeError("no connection"));
      else reject(new DaemonError(detail(request.responseText) || `the upload failed: ${request.status}`, request.status));
    });
    request.send(chunk);
  });
}

/** @param {Response} response */
async function refusal(response) {
  return new DaemonError(detail(await response.text()) || `the upload was refused: ${response.status}`, response.status);
}

/** @param {string} text */
function detail(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return text.trim();
  }
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
