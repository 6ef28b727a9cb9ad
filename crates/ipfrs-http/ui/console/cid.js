// Content IDs as bytes and as texts.

const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";
const BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/** Bytes before the multihash in a version 1: its number, the codec dag-pb, and the hash function identity. */
const INLINE_NODE = [1, 0x70, 0];

/**
 * Returns the bytes of a content ID of version 1 in base32.
 * @param {string} cid
 */
export function decode(cid) {
  if (!/^b[a-z2-7]+$/.test(cid)) throw new Error(`${cid} is not in base32`);
  const bytes = [];
  let [value, bits] = [0, 0];
  for (const digit of cid.slice(1)) {
    value = ((value << 5) | BASE32.indexOf(digit)) & 0xfff;
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push((value >> bits) & 0xff);
  }
  return bytes;
}

/**
 * Returns version 0 of the content ID of a dag-pb node with sha2-256: its multihash in base58.
 * @param {string} cid Version 1 in base32.
 */
export function version0(cid) {
  const [, , ...multihash] = decode(cid);
  let number = multihash.reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
  let text = "";
  for (; number > 0n; number /= 58n) text = BASE58[Number(number % 58n)] + text;
  return text;
}

/**
 * Returns the dag-pb node that a content ID consists of.
 * @param {string} cid
 */
export function inlineNode(cid) {
  // A digest of less than 128 bytes has one byte of length.
  const [version, codec, hash, , ...node] = decode(cid);
  if (`${[version, codec, hash]}` !== `${INLINE_NODE}`) throw new Error(`${cid} has no dag-pb node in it`);
  return node;
}
