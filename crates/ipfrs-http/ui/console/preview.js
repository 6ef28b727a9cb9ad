// Previews of files: text, images and bytes. Content is never run or rendered as a page.

import { h } from "../dom.js";
import { request } from "./api.js";
import { bytes } from "./format.js";
import { failure } from "./parts.js";

/** Number of bytes of text or hexadecimal digits to show. */
const TEXT_BYTES = 64 * 1024;
const HEX_BYTES = 1024;
/** Images up to this size are shown. */
const IMAGE_BYTES = 16 * 1024 * 1024;

/** First bytes of images that browsers show; -1 for any byte. */
const IMAGES = /** @type {const} */ ([
  ["image/png", [0x89, 0x50, 0x4e, 0x47]],
  ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]],
  ["image/webp", [0x52, 0x49, 0x46, 0x46, -1, -1, -1, -1, 0x57, 0x45, 0x42, 0x50]],
]);

/**
 * Shows the beginning of a file. Returns its kind.
 * @param {string} cid
 * @param {string} name
 * @param {number} size
 * @param {HTMLElement} place
 * @returns {Promise<"text" | "image" | "bytes" | "tensors" | "nothing">}
 */
export async function preview(cid, name, size, place) {
  const address = `/v1/stream/download/${cid}`;
  try {
    if (size === 0) {
      place.replaceChildren(h("p", { class: "dim" }, "The file is empty."));
      return "nothing";
    }
    const start = await read(`${address}?limit=${TEXT_BYTES}`);
    const image = IMAGES.find(([, magic]) => magic.every((byte, index) => byte < 0 || start[index] === byte));
    if (image && size <= IMAGE_BYTES) {
      const whole = size <= start.length ? start : await read(address);
      const url = URL.createObjectURL(new Blob([whole], { type: image[0] }));
      const picture = h("img", { src: url, alt: `Preview of ${name}` });
      picture.addEventListener("load", () => URL.revokeObjectURL(url));
      picture.addEventListener("error", () => place.replaceChildren(h("p", { class: "dim" }, "The browser cannot show this image.")));
      place.replaceChildren(h("div", { class: "preview" }, picture));
      return "image";
    }
    if (isTensorFile(start)) {
      place.replaceChildren();
      return "tensors";
    }
    const text = asText(start, size > start.length);
    if (text === undefined) {
      place.replaceChildren(hexadecimal(start, size));
      return "bytes";
    }
    const rest = size > start.length ? h("p", { class: "dim" }, `The first ${bytes(start.length)} of ${bytes(size)}.`) : "";
    place.replaceChildren(box(text), rest);
    return "text";
  } catch (error) {
    place.replaceChildren(failure(error));
    return "nothing";
  }
}

/** @param {string} address */
async function read(address) {
  return new Uint8Array(await (await request(address)).arrayBuffer());
}

/** Whether a file begins as safetensors or .npy. @param {Uint8Array} start */
function isTensorFile(start) {
  const isNpy = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59].every((byte, index) => start[index] === byte);
  // Eight bytes with the length of the header, then a JSON object.
  return isNpy || (start.length > 9 && start[8] === 0x7b && start[6] === 0 && start[7] === 0);
}

/**
 * @param {Uint8Array} start
 * @param {boolean} isCut Whether the last character may be incomplete.
 */
function asText(start, isCut) {
  if (start.includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(start, { stream: isCut });
  } catch {
    return undefined;
  }
}

/** @param {string} text @param {string} [kind] */
function box(text, kind = "") {
  return h("div", { class: `preview ${kind}`, tabindex: "0", role: "region", "aria-label": "Preview" }, h("pre", {}, text));
}

/**
 * Shows the first bytes as hexadecimal digits.
 * @param {Uint8Array} data The first bytes, or all.
 * @param {number} size Number of all bytes.
 */
export function hexadecimal(data, size) {
  const shown = data.subarray(0, HEX_BYTES);
  const rest = size > shown.length ? h("p", { class: "dim" }, `The first ${bytes(shown.length)} of ${bytes(size)}.`) : "";
  return h("div", {}, box(hex(shown), "hex"), rest);
}

/** @param {Uint8Array} data */
function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}
