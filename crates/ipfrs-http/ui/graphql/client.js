// Requests to /graphql.

/**
 * @typedef {{ query: string, variables?: Record<string, unknown>, operationName?: string }} Operation
 */

/**
 * Executes a query or a mutation.
 * @param {Operation} operation
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function execute(operation, signal) {
  const headers = { "content-type": "application/json", accept: "application/graphql-response+json, application/json" };
  const response = await fetch("/graphql", { method: "POST", headers, body: JSON.stringify(operation), signal });
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${response.status} ${response.statusText}: ${text.trim()}`);
  }
}

/**
 * Subscribes over a WebSocket (graphql-transport-ws) and passes each result on. Returns a function that ends it.
 * @param {Operation} operation
 * @param {{ next: (result: any) => void, end: (reason: string) => void }} listener
 */
export function subscribe(operation, { next, end }) {
  const url = new URL("/graphql/ws", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url, "graphql-transport-ws");
  let isOver = false;
  const finish = (/** @type {string} */ reason) => {
    if (isOver) return;
    isOver = true;
    socket.close(1000);
    end(reason);
  };
  const send = (/** @type {object} */ message) => socket.send(JSON.stringify(message));
  socket.addEventListener("open", () => send({ type: "connection_init" }));
  socket.addEventListener("close", ({ code, reason }) => finish(reason || `the connection was closed (${code})`));
  socket.addEventListener("message", ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "connection_ack") send({ type: "subscribe", id: "1", payload: operation });
    else if (message.type === "ping") send({ type: "pong" });
    else if (message.type === "next") next(message.payload);
    else if (message.type === "error") {
      next({ errors: message.payload });
      finish("refused");
    } else if (message.type === "complete") finish("complete");
  });
  return () => finish("stopped");
}
