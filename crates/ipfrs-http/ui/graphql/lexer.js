// Tokens of GraphQL documents (https://spec.graphql.org/October2021/#sec-Language).

/**
 * @typedef {"name" | "variable" | "directive" | "number" | "string" | "punctuation" | "comment" | "invalid"} Kind
 * @typedef {{ kind: Kind, text: string, start: number, end: number }} Token
 */

/** @type {[Kind, RegExp][]} */
const RULES = [
  ["comment", /#[^\n\r]*/y],
  ["string", /"""(?:\\"""|[^])*?"""|"(?:\\.|[^"\\\n\r])*"/y],
  ["variable", /\$[_A-Za-z][_0-9A-Za-z]*/y],
  ["directive", /@[_A-Za-z][_0-9A-Za-z]*/y],
  ["name", /[_A-Za-z][_0-9A-Za-z]*/y],
  ["number", /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y],
  ["punctuation", /\.\.\.|[!$&()\[\]{}:=|]/y],
];

/**
 * Splits a document into tokens. Space and commas are in none.
 * @param {string} text
 * @returns {Token[]}
 */
export function tokens(text) {
  const found = [];
  let at = 0;
  while (at < text.length) {
    if (/[\s,\uFEFF]/.test(text[at])) {
      at += 1;
      continue;
    }
    /** @type {Token} */
    let token = { kind: "invalid", text: text[at], start: at, end: at + 1 };
    for (const [kind, rule] of RULES) {
      rule.lastIndex = at;
      const match = rule.exec(text);
      if (match) {
        token = { kind, text: match[0], start: at, end: at + match[0].length };
        break;
      }
    }
    found.push(token);
    at = token.end;
  }
  return found;
}
