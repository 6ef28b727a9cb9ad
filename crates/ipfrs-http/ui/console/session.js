// Who the console acts for, if the daemon authenticates its callers.

import { byId, h } from "../dom.js";
import { DaemonError, message, request } from "./api.js";

const SESSION = "/v1/auth/session";

/**
 * Returns whether the console may begin. If not, it shows a form for an API key.
 * @param {HTMLElement} place
 */
export async function enter(place) {
  try {
    const caller = await (await request(SESSION)).json();
    if (caller.enabled) showCaller(caller);
    return true;
  } catch (error) {
    if (!(error instanceof DaemonError && error.status === 401)) return true;
    place.replaceChildren(...form());
    byId("connection").textContent = "Not logged in";
    byId("token").focus();
    return false;
  }
}

/** @param {{ principal: string, scopes: string[] }} caller */
function showCaller({ principal, scopes }) {
  const leave = async () => {
    await fetch(SESSION, { method: "DELETE" });
    location.reload();
  };
  byId("caller").replaceChildren(`${principal} (${scopes.join(", ")}) `, h("button", { click: leave }, "Log out"));
}

/** Returns the form for an API key. */
function form() {
  const token = /** @type {HTMLInputElement} */ (
    h("input", { id: "token", type: "password", autocomplete: "current-password", required: true })
  );
  const failed = h("p", { class: "failed", role: "alert" });
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    try {
      const headers = { authorization: `Bearer ${token.value.trim()}` };
      await request(SESSION, { method: "POST", headers });
    } catch (error) {
      failed.textContent = message(error);
      return;
    }
    // Browsers keep the cookie of a session only over HTTPS, and for the machine itself.
    if ((await fetch(SESSION)).ok) location.reload();
    else failed.textContent = "the browser keeps no session for this address: use HTTPS, or localhost";
  };
  const create = h("code", {}, "ipfrs-cli auth key create console --scope admin");
  return [
    h("h2", {}, "Log in"),
    h("form", { class: "panel", submit }, h("label", { for: "token" }, "API key "), token, " ", h("button", {}, "Log in"), failed),
    h("p", {}, "Create a key on the machine of the daemon: ", create),
  ];
}
