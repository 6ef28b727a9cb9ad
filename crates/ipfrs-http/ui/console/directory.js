// Directories from uploaded files.

import { rpc } from "./api.js";

/** Estimated size up to which a directory is one block, as in `add`. Longer ones are sharded, which needs `add`. */
const MOST_BYTES = 256 * 1024;
/** UnixFS data of a directory (type 1) in base64. */
const DIRECTORY = "CAE";

/** @typedef {{ cid: string, size: number }} Link A content ID, and the size of all blocks below it. */
/** @typedef {Map<string, Link | Tree>} Tree */

/**
 * Builds the directory of files by their paths, and returns its link.
 * @param {Map<string, string>} files Content IDs by path below the directory.
 * @returns {Promise<Link>}
 */
export async function buildDirectory(files) {
  /** @type {Tree} */
  const root = new Map();
  for (const [path, cid] of files) {
    const names = path.split("/");
    const name = names.pop() ?? "";
    let tree = root;
    for (const step of names) {
      const next = tree.get(step) ?? new Map();
      if (!(next instanceof Map)) throw new Error(`${path}: ${step} is a file and a directory`);
      tree.set(step, next);
      tree = next;
    }
    tree.set(name, await linkTo(cid));
  }
  return build(root);
}

/** @param {string} cid @returns {Promise<Link>} */
async function linkTo(cid) {
  const [{ CumulativeSize }] = await rpc("files/stat", [`/ipfs/${cid}`]);
  return { cid, size: CumulativeSize };
}

/** @param {Tree} tree @returns {Promise<Link>} */
async function build(tree) {
  const links = [];
  let estimate = 0;
  for (const [name, target] of tree) {
    const { cid, size } = target instanceof Map ? await build(target) : target;
    links.push({ Hash: { "/": cid }, Name: name, Tsize: size });
    estimate += name.length + cid.length;
  }
  if (estimate > MOST_BYTES) throw new Error(`a directory with ${links.length} entries is too long for the console: use ipfrs-cli add -r`);
  const encoder = new TextEncoder();
  links.sort((a, b) => compare(encoder.encode(a.Name), encoder.encode(b.Name)));
  const node = JSON.stringify({ Data: { "/": { bytes: DIRECTORY } }, Links: links });
  const form = new FormData();
  form.append("file", new Blob([node]));
  const [{ Cid }] = await rpc("dag/put", [], { "store-codec": "dag-pb", "input-codec": "dag-json" }, form);
  return linkTo(Cid["/"]);
}

/**
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 */
function compare(a, b) {
  for (let index = 0; index < Math.min(a.length, b.length); index += 1) {
    if (a[index] !== b[index]) return a[index] - b[index];
  }
  return a.length - b.length;
}
