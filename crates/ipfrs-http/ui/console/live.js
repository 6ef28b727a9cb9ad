// Events of the daemon over one WebSocket, which reconnects and continues after the last event.

/** @typedef {{ topic: string, seq: number, time: string, data: any }} DaemonEvent */

const TOPICS = ["blocks", "pins", "operations", "gc"];
/** Delays before reconnecting, in milliseconds. */
const FIRST_DELAY = 500;
const LONGEST_DELAY = 10_000;

export class Live {
  /** @type {Map<string, { after: number, instance: string }>} Last event of each topic. */
  #seen = new Map();
  /** @type {Set<(event: DaemonEvent) => void>} */
  #listeners = new Set();
  #delay = FIRST_DELAY;

  /** @param {(state: "live" | "lost", text: string) => void} report */
  constructor(report) {
    this.report = report;
    this.#connect();
  }

  /**
   * Passes events on until the returned function is called.
   * @param {(event: DaemonEvent) => void} listener
   */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #connect() {
    const url = new URL("/ws", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    socket.addEventListener("open", () => {
      for (const topic of TOPICS) socket.send(JSON.stringify({ type: "subscribe", topic, ...this.#seen.get(topic) }));
    });
    socket.addEventListener("message", ({ data }) => this.#receive(JSON.parse(data)));
    socket.addEventListener("close", () => {
      this.report("lost", "Connection lost, trying again");
      setTimeout(() => this.#connect(), this.#delay);
      this.#delay = Math.min(this.#delay * 2, LONGEST_DELAY);
    });
  }

  /** @param {any} message */
  #receive(message) {
    if (message.type === "subscribed") {
      this.#delay = FIRST_DELAY;
      this.report("live", "Connected");
      this.#seen.set(message.topic, { after: message.seq, instance: message.instance });
    } else if (message.type === "event") {
      const seen = this.#seen.get(message.topic);
      if (seen) seen.after = message.seq;
      for (const listener of this.#listeners) listener(message);
    } else if (message.type === "error" && message.code === "invalid_input") {
      // The daemon has restarted, or no longer has the event.
      this.#seen.clear();
    }
  }
}
