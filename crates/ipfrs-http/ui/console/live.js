// Events of the daemon over one WebSocket, which reconnects and continues after the last event.

import { DaemonError, request } from "./api.js";

/** @typedef {{ topic: string, seq: number, time: string, data: any }} DaemonEvent */

const ADDRESS = "/ws";
const TOPICS = ["blocks", "pins", "operations", "gc", "retrieval"];
/** Delays before reconnecting, in milliseconds. */
const FIRST_DELAY = 500;
const LONGEST_DELAY = 10_000;
/** Time between two pings, in milliseconds. Without a message since the last ping, the connection is lost. */
const PING_INTERVAL = 10_000;

export class Live {
  /** @type {Map<string, { after: number, instance: string }>} Last event of each topic. */
  #seen = new Map();
  /** @type {Set<(event: DaemonEvent) => void>} */
  #listeners = new Set();
  #delay = FIRST_DELAY;
  #isLost = false;

  /** @param {(state: "live" | "lost" | "refused", text: string) => void} report */
  constructor(report) {
    this.report = report;
    this.#connect();
  }

  /**
   * Passes events on until the returned function is called. Events of the topic "recovered" say that the connection
   * was lost for a while, and events of the topic "lagged" how many were skipped.
   * @param {(event: DaemonEvent) => void} listener
   */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #connect() {
    const url = new URL(ADDRESS, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    let hasHeard = true;
    const pings = setInterval(() => {
      if (!hasHeard) return lose();
      hasHeard = false;
      if (socket.readyState === WebSocket.OPEN) socket.send('{"type":"ping"}');
    }, PING_INTERVAL);
    let isOver = false;
    const lose = () => {
      if (isOver) return;
      isOver = true;
      clearInterval(pings);
      socket.close();
      this.#isLost = true;
      this.report("lost", "Connection lost, trying again");
      const retry = setTimeout(() => this.#connect(), this.#delay);
      refusal().then((why) => {
        if (why === undefined) return;
        clearTimeout(retry);
        this.report("refused", `Connected without events: ${why}`);
      });
      this.#delay = Math.min(this.#delay * 2, LONGEST_DELAY);
    };
    socket.addEventListener("open", () => {
      for (const topic of TOPICS) socket.send(JSON.stringify({ type: "subscribe", topic, ...this.#seen.get(topic) }));
    });
    socket.addEventListener("message", ({ data }) => {
      hasHeard = true;
      if (!isOver) this.#receive(JSON.parse(data));
    });
    // A connection whose other side has disappeared closes minutes later.
    socket.addEventListener("close", lose);
  }

  /** @param {any} message */
  #receive(message) {
    if (message.type === "subscribed") {
      this.#delay = FIRST_DELAY;
      this.report("live", "Connected");
      this.#seen.set(message.topic, { after: message.seq, instance: message.instance });
      if (this.#isLost) this.#tell({ topic: "recovered", seq: 0, time: "", data: undefined });
      this.#isLost = false;
    } else if (message.type === "event") {
      const seen = this.#seen.get(message.topic);
      if (seen) seen.after = message.seq;
      this.#tell(message);
    } else if (message.type === "lagged") {
      this.#tell({ topic: "lagged", seq: 0, time: "", data: message.missed ?? 0 });
    } else if (message.type === "error" && message.code === "invalid_input") {
      // The daemon has restarted, or no longer has the event.
      this.#seen.clear();
    }
  }

  /** @param {DaemonEvent} event */
  #tell(event) {
    for (const listener of this.#listeners) listener(event);
  }
}

/**
 * Returns why the caller may not see events, if that is so: a WebSocket does not tell why it was refused. If the session
 * has ended, the page is loaded again, with the form for a key.
 */
async function refusal() {
  const error = await request(ADDRESS).catch((error) => error);
  if (!(error instanceof DaemonError)) return undefined;
  if (error.status === 401) location.reload();
  return error.status === 403 ? error.message : undefined;
}
