// Directories from uploaded files.

import { rpc } from "./api.js";
import { inlineNode, version0 } from "./cid.js";
import { count } from "./format.js";

/** Estimated size up to which a directory is one block, as in `add`. Longer ones are sharded, which needs `add`. */
const MOST_BYTES = 256 * 1024;
/** Bytes of a content ID in the estimate: version, codec, hash function, length of the digest, and the digest. */
const CID_BYTES = 36;
/** UnixFS data of a directory (type 1) in base64. */
const DIRECTORY = "CAE";
/** Content ID that consists of an empty directory: it has the hash function identity. */
const INLINE_DIRECTORY = "bafyaabakaieac";
/** Number of requests that are open at the same time. */
const AT_A_TIME = 4;

const encoder = new TextEncoder();

/** @typedef {{ cid: string, size: number }} Link A content ID, and the size of all blocks below it. */
/** @typedef {Map<string, Link | Tree>} Tree */

/**
 * Fails if a directory below is too long for one block, before its files are uploaded.
 * @param {string[]} paths Paths of all files and empty directories.
 */
export function checkLengths(paths) {
  /** @type {Map<string, Set<string>>} */
  const directories = new Map();
  for (const path of paths) {
    for (let end = path.length; end > 0; ) {
      const slash = path.lastIndexOf("/", end - 1);
      const [directory, name] = [path.slice(0, Math.max(slash, 0)), path.slice(slash + 1, end)];
      const names = directories.get(directory) ?? new Set();
      directories.set(directory, names);
      if (names.has(name)) break;
      names.add(name);
      end = slash;
    }
  }
  for (const [directory, names] of directories) {
    const estimate = [...names].reduce((sum, name) => sum + encoder.encode(name).length + CID_BYTES, 0);
    if (estimate > MOST_BYTES) throw new Error(`${directory || "the folder"} has ${count(names.size)} entries, too many for the console: use ipfrs-cli add -r`);
  }
}

/**
 * Builds the directory of files by their paths, and returns its link. The scope `write` is enough.
 * @param {Map<string, string>} files Content IDs by path below the directory.
 * @param {string[]} directories Paths of empty directories below it; that of the directory itself is "".
 * @returns {Promise<Link>}
 */
export async function buildDirectory(files, directories) {
  /** @type {Tree} */
  const root = new Map();
  const sizes = await sizesOf([...new Set(files.values())]);
  for (const [path, cid] of files) {
    const names = path.split("/");
    const name = names.pop() ?? "";
    treeAt(root, names).set(name, { cid, size: sizes.get(cid) ?? 0 });
  }
  for (const path of directories) treeAt(root, path === "" ? [] : path.split("/"));
  // As in `add`, nodes have the version that the daemon is configured for. Leaves that are raw have another one.
  const form = new FormData();
  form.append("file", new Blob([]));
  const [{ Hash }] = await rpc("add", [], { "only-hash": "true", "raw-leaves": "false" }, form);
  return build(root, Hash.startsWith("Qm"), true);
}

/**
 * Returns the directory at a path, which is created if it is missing.
 * @param {Tree} root
 * @param {string[]} names
 */
function treeAt(root, names) {
  let tree = root;
  for (const name of names) {
    const next = tree.get(name) ?? new Map();
    if (!(next instanceof Map)) throw new Error(`${names.join("/")}: ${name} is a file and a directory`);
    tree.set(name, next);
    tree = next;
  }
  return tree;
}

/**
 * Returns the sizes of all blocks below files. Requests for several files are open at a time.
 * @param {string[]} cids
 */
async function sizesOf(cids) {
  /** @type {Map<string, number>} */
  const sizes = new Map();
  const waiting = [...cids];
  const work = async () => {
    for (let cid = waiting.pop(); cid !== undefined; cid = waiting.pop()) sizes.set(cid, (await linkTo(cid)).size);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  return sizes;
}

/**
 * Returns the link to a node, with its size. Commands that tell the size need the scope `read`. This one needs `write`:
 * it adds the link to an inline directory, and the content ID of the result contains the link.
 * @param {string} cid
 * @returns {Promise<Link>}
 */
async function linkTo(cid) {
  const [{ Hash }] = await rpc("object/patch/add-link", [INLINE_DIRECTORY, "a", cid], { "allow-big-block": "true" });
  return { cid, size: sizeOfLink(inlineNode(Hash)) };
}

/**
 * Returns the size in the only link of a dag-pb node: the link's fields are the content ID, the name "a" and the size.
 * @param {number[]} node
 */
function sizeOfLink(node) {
  const [, , , length] = node;
  const fields = node.slice(4 + length);
  if (`${fields.slice(0, 4)}` !== `${[0x12, 1, 0x61, 0x18]}`) throw new Error("the daemon added no link");
  let size = 0;
  for (let [index, unit] = [4, 1]; ; index += 1, unit *= 128) {
    size += (fields[index] & 0x7f) * unit;
    if (!(fields[index] & 0x80)) return size;
  }
}

/**
 * @param {Tree} tree
 * @param {boolean} isVersion0
 * @param {boolean} pin
 * @returns {Promise<Link>}
 */
async function build(tree, isVersion0, pin) {
  const links = [];
  for (const [name, target] of tree) {
    const { cid, size } = target instanceof Map ? await build(target, isVersion0, false) : target;
    links.push({ Hash: { "/": cid }, Name: name, Tsize: size });
  }
  links.sort((a, b) => compare(encoder.encode(a.Name), encoder.encode(b.Name)));
  const node = JSON.stringify({ Data: { "/": { bytes: DIRECTORY } }, Links: links });
  const form = new FormData();
  form.append("file", new Blob([node]));
  const [{ Cid }] = await rpc("dag/put", [], { "store-codec": "dag-pb", "input-codec": "dag-json", pin: String(pin) }, form);
  return linkTo(isVersion0 ? version0(Cid["/"]) : Cid["/"]);
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
