// Resumable uploads of files (tus 1.0.0), which continue after lost connections and after the page was reloaded.

import { DaemonError } from "./api.js";

const ENDPOINT = "/v1/stream/upload";
const TUS = { "Tus-Resumable": "1.0.0" };
/** Bytes of one request. The daemon confirms that they are durable. */
const CHUNK_BYTES = 32 * 1024 * 1024;
/** Delays before the next attempt, in milliseconds. Each success begins them anew. */
const DELAYS = [500, 1000, 2000, 5000, 10_000, 10_000, 20_000, 30_000, 30_000, 60_000];

/**
 * Uploads a file and returns its content ID.
 * @param {File} file
 * @param {{ path: string, pin: boolean, signal: AbortSignal, progress: (bytes: number) => void, waiting: (why: string) => void }} options
 * @returns {Promise<string>}
 */
export async function upload(file, { path, pin, signal, progress, waiting }) {
  const key = `ipfrs.upload.${path}:${file.size}:${file.lastModified}:${pin}`;
  let failures = 0;
  for (;;) {
    try {
      const location = localStorage.getItem(key) ?? (await create(file, pin, key, signal));
      let state = await status(location, signal);
      if (state === undefined) {
        // It has expired, or was cancelled.
        localStorage.removeItem(key);
        continue;
      }
      while (state.cid === null) {
        progress(state.offset);
        const { offset } = state;
        const chunk = file.slice(offset, offset + CHUNK_BYTES);
        state = await send(location, offset, chunk, signal, (sent) => progress(offset + sent));
        failures = 0;
      }
      localStorage.removeItem(key);
      progress(file.size);
      return state.cid;
    } catch (error) {
      if (signal.aborted) {
        const location = localStorage.getItem(key);
        localStorage.removeItem(key);
        if (location) await fetch(location, { method: "DELETE", headers: TUS }).catch(() => {});
        throw new Error("cancelled");
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
 * @param {File} file
 * @param {boolean} pin
 * @param {string} key
 * @param {AbortSignal} signal
 */
async function create(file, pin, key, signal) {
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(file.name)));
  const headers = { ...TUS, "Upload-Length": String(file.size), "Upload-Metadata": `filename ${name}` };
  const response = await fetch(`${ENDPOINT}?pin=${pin}`, { method: "POST", headers, signal });
  if (response.status !== 201) throw await refusal(response);
  const location = response.headers.get("Location") ?? "";
  localStorage.setItem(key, location);
  return location;
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
