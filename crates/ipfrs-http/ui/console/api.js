// Requests to the daemon.

import { execute } from "../graphql/client.js";

/** Error response of the daemon. */
export class DaemonError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * Returns the message of an error response in any of the daemon's formats.
 * @param {Response} response
 */
async function failure(response) {
  const text = (await response.text()).trim();
  try {
    const { Message, detail, title } = JSON.parse(text);
    return new DaemonError(Message ?? detail ?? title ?? text, response.status);
  } catch {
    return new DaemonError(text || `${response.status} ${response.statusText}`, response.status);
  }
}

/**
 * Sends a request, and fails for an error response.
 * @param {string} path
 * @param {RequestInit} [init]
 */
export async function request(path, init) {
  const response = await fetch(path, init);
  if (!response.ok) throw await failure(response);
  return response;
}

/**
 * Runs a command of the RPC and returns the objects of its response.
 * @param {string} command
 * @param {string[]} [args]
 * @param {Record<string, string>} [options]
 * @param {BodyInit} [body]
 * @returns {Promise<any[]>}
 */
export async function rpc(command, args = [], options = {}, body) {
  const query = new URLSearchParams([...args.map((arg) => ["arg", arg]), ...Object.entries(options)]);
  const response = await request(`/api/v0/${command}?${query}`, { method: "POST", body });
  const lines = (await response.text()).split("\n").filter((line) => line.trim() !== "");
  return lines.map((line) => JSON.parse(line));
}

/**
 * Runs a query or mutation and returns its data.
 * @param {string} query
 * @param {Record<string, unknown>} [variables]
 * @returns {Promise<any>}
 */
export async function graphql(query, variables) {
  const { data, errors } = await execute({ query, variables });
  if (errors?.length > 0) throw new DaemonError(errors[0].message, 200);
  return data;
}

/** @param {unknown} error */
export function message(error) {
  if (error instanceof TypeError) return "the daemon does not respond";
  return error instanceof Error ? error.message : String(error);
}
