// What is wrong in a document, and what could follow at a position. The document may be incomplete.

import { tokens } from "./lexer.js";
import { named, shown } from "./schema.js";

/**
 * @typedef {{ start: number, end: number, message: string }} Mistake
 * @typedef {{ label: string, insert: string, detail: string, description: string }} Proposal
 * @typedef {{ mistakes: Mistake[], proposals: Proposal[], from: number, operations: { name: string, kind: string }[] }} Analysis
 */

/** Maximum depth of selections and values. The daemon allows less. */
const MOST_DEPTH = 200;
/** Maximum number of mistakes that are noted. */
const MOST_MISTAKES = 100;

/** Reads a document once, from left to right. */
class Reader {
  /** Whether proposals for the end of the text were made. Those of the innermost brackets come first. */
  #isEndReached = false;
  #depth = 0;
  /** @type {{ token: import("./lexer.js").Token, isUsed: boolean }[] | undefined} Variables of the current operation. */
  #variables;

  /**
   * @param {string} text
   * @param {number} cursor
   * @param {import("./schema.js").Schema} schema
   */
  constructor(text, cursor, schema) {
    this.tokens = tokens(text).filter((token) => token.kind !== "comment");
    this.at = 0;
    this.text = text;
    this.cursor = cursor;
    this.schema = schema;
    /** @type {Mistake[]} */
    this.mistakes = [];
    /** @type {Proposal[]} */
    this.proposals = [];
    /** @type {{ name: string, kind: string }[]} */
    this.operations = [];
    /** @type {Map<string, string>} */
    this.fragments = new Map();
    for (let i = 0; i + 3 < this.tokens.length; i += 1) {
      const [first, name, on, type] = this.tokens.slice(i, i + 4);
      if (first.text === "fragment" && on.text === "on") this.fragments.set(name.text, type.text);
    }
  }

  get token() {
    return this.tokens[this.at];
  }

  /** @param {string} text */
  is(text) {
    return this.token?.kind !== "string" && this.token?.text === text;
  }

  /** @param {string} text */
  take(text) {
    if (!this.is(text)) return false;
    this.at += 1;
    return true;
  }

  /** @param {string} text */
  expect(text) {
    if (this.take(text)) return true;
    const at = this.token ?? { start: Math.max(this.text.trimEnd().length - 1, 0), end: this.text.length, text: "" };
    this.complain(at, at.text ? `${JSON.stringify(text)} is missing before ${JSON.stringify(at.text)}` : `${JSON.stringify(text)} is missing at the end`);
    return false;
  }

  /**
   * @param {{ start: number, end: number }} range
   * @param {string} message
   */
  complain(range, message) {
    if (this.mistakes.length < MOST_MISTAKES) this.mistakes.push({ start: range.start, end: range.end, message });
  }

  /**
   * Proposes texts if the cursor is in or behind the current name, or in the gap before the next token.
   * @param {() => Proposal[]} proposals
   */
  propose(proposals) {
    const before = this.tokens[this.at - 1];
    const here = this.token;
    const isInName = here?.kind === "name" && here.start <= this.cursor && this.cursor <= here.end;
    const isInGap = (before?.end ?? 0) <= this.cursor && this.cursor <= (here?.start ?? this.text.length) && !(before?.kind === "name" && before.end === this.cursor);
    if (!isInName && !isInGap) return;
    if (!here && this.#isEndReached) return;
    if (!here) this.#isEndReached = true;
    this.proposals = proposals();
  }

  /**
   * Reads what brackets contain, unless they are nested too deep.
   * @param {() => void} read
   */
  nested(read) {
    this.#depth += 1;
    if (this.#depth <= MOST_DEPTH) read();
    else {
      this.complain(this.token ?? this.tokens[this.tokens.length - 1], `brackets are nested more than ${MOST_DEPTH} levels deep`);
      this.at = this.tokens.length;
    }
    this.#depth -= 1;
  }

  document() {
    if (this.tokens.length === 0) this.propose(() => this.keywords());
    while (this.token) {
      const start = this.at;
      this.propose(() => this.keywords());
      if (this.is("{")) {
        this.operations.push({ name: "", kind: "query" });
        this.selections(this.schema.roots.query);
      } else if (["query", "mutation", "subscription"].some((kind) => this.is(kind))) this.operation();
      else if (this.is("fragment")) this.fragment();
      else {
        this.complain(this.token, `${JSON.stringify(this.token.text)} begins neither an operation nor a fragment`);
        this.at += 1;
      }
      if (this.at === start) this.at += 1;
    }
  }

  keywords() {
    const kinds = ["query", "mutation", "subscription", "fragment"];
    return kinds.map((kind) => ({ label: kind, insert: `${kind} `, detail: "", description: "" }));
  }

  operation() {
    const kind = this.token.text;
    this.at += 1;
    let name = "";
    if (this.token?.kind === "name") {
      name = this.token.text;
      this.at += 1;
    }
    this.operations.push({ name, kind });
    this.#variables = [];
    if (this.take("(")) {
      while (this.token && !this.is(")")) {
        const start = this.at;
        if (this.token.kind === "variable") {
          this.#variables.push({ token: this.token, isUsed: false });
          this.at += 1;
        } else this.complain(this.token, "a variable begins with $");
        this.expect(":");
        this.type();
        if (this.take("=")) this.value();
        this.annotations();
        if (this.at === start) this.at += 1;
      }
      this.expect(")");
    }
    this.annotations();
    const root = this.schema.roots[kind];
    if (!root) this.complain(this.tokens[this.at - 1], `the schema has no ${kind}`);
    this.selections(root);
    // Fragments may use the others.
    const unused = this.fragments.size > 0 ? [] : this.#variables.filter(({ isUsed }) => !isUsed);
    for (const { token } of unused) this.complain(token, `the variable ${token.text} is not used`);
    this.#variables = undefined;
  }

  /** Notes the use of a variable. @param {import("./lexer.js").Token} token */
  use(token) {
    if (!this.#variables) return;
    const known = this.#variables.filter((variable) => variable.token.text === token.text);
    for (const variable of known) variable.isUsed = true;
    if (known.length === 0) this.complain(token, `the operation does not declare ${token.text}`);
  }

  type() {
    if (this.take("[")) {
      this.nested(() => {
        this.type();
        this.expect("]");
      });
    } else {
      this.propose(() => {
        const inputs = [...this.schema.types.values()].filter((type) => ["SCALAR", "ENUM", "INPUT_OBJECT"].includes(type.kind));
        return inputs.map((type) => ({ label: type.name, insert: type.name, detail: type.kind.toLowerCase(), description: type.description ?? "" }));
      });
      const token = this.token;
      if (token?.kind === "name") {
        this.at += 1;
        if (!this.schema.types.has(token.text)) this.complain(token, `there is no type ${token.text}`);
      }
    }
    this.take("!");
  }

  fragment() {
    this.at += 1;
    if (this.token?.kind === "name") this.at += 1;
    this.expect("on");
    const type = this.token?.text;
    if (this.token?.kind === "name") this.at += 1;
    this.annotations();
    this.selections(type);
  }

  /** @param {string | undefined} type */
  selections(type) {
    if (this.expect("{")) this.nested(() => this.selected(type));
  }

  /** @param {string | undefined} type */
  selected(type) {
    let count = 0;
    while (this.token && !this.is("}")) {
      const start = this.at;
      count += 1;
      this.propose(() => this.fields(type));
      if (this.take("...")) this.spread(type);
      else if (this.token.kind === "name") this.field(type);
      else this.complain(this.token, `${JSON.stringify(this.token.text)} is not a field`);
      if (this.at === start) this.at += 1;
    }
    this.propose(() => this.fields(type));
    if (count === 0) this.complain(this.tokens[this.at - 1], "select at least one field");
    this.expect("}");
  }

  /** @param {string | undefined} type */
  fields(type) {
    const fields = this.schema.types.get(type ?? "")?.fields ?? [];
    return fields.map((field) => ({ label: field.name, insert: field.name, detail: shown(field.type), description: field.description ?? "" }));
  }

  /** @param {string | undefined} type */
  spread(type) {
    if (this.take("on")) {
      const inner = this.token?.text;
      if (this.token?.kind === "name") this.at += 1;
      this.annotations();
      this.selections(inner);
    } else if (this.token?.kind === "name") {
      if (!this.fragments.has(this.token.text)) this.complain(this.token, `there is no fragment ${this.token.text}`);
      this.at += 1;
      this.annotations();
    } else {
      this.annotations();
      this.selections(type);
    }
  }

  /** @param {string | undefined} type */
  field(type) {
    let name = this.token;
    this.at += 1;
    if (this.take(":")) {
      this.propose(() => this.fields(type));
      if (this.token?.kind === "name") {
        name = this.token;
        this.at += 1;
      }
    }
    const field = this.schema.field(type, name.text);
    if (!field && type) this.complain(name, `${type} has no field ${name.text}`);
    this.args(field?.args ?? [], field ? name : undefined);
    this.annotations();
    const result = field ? named(field.type) : undefined;
    if (this.is("{")) {
      if (result && !this.schema.hasFields(result)) this.complain(this.token, `${name.text} is of the type ${result}, which has no fields`);
      this.selections(result);
    } else if (result && this.schema.hasFields(result)) {
      this.complain(name, `select fields of ${name.text}: ${name.text} { ... }`);
    }
  }

  /**
   * @param {import("./schema.js").InputValue[]} known
   * @param {import("./lexer.js").Token | undefined} owner
   */
  args(known, owner) {
    /** @type {Set<string>} */
    const given = new Set();
    if (this.take("(")) {
      while (this.token && !this.is(")")) {
        const start = this.at;
        this.propose(() => this.argumentsOf(known, given));
        const name = this.token;
        if (name.kind === "name") {
          this.at += 1;
          given.add(name.text);
          const argument = known.find((argument) => argument.name === name.text);
          if (owner && !argument) this.complain(name, `${owner.text} has no argument ${name.text}`);
          this.expect(":");
          this.value(argument?.type);
        } else this.complain(name, `${JSON.stringify(name.text)} is not an argument`);
        if (this.at === start) this.at += 1;
      }
      this.propose(() => this.argumentsOf(known, given));
      this.expect(")");
    }
    for (const argument of known) {
      const isNeeded = argument.type.kind === "NON_NULL" && argument.defaultValue === null;
      if (owner && isNeeded && !given.has(argument.name)) this.complain(owner, `the argument ${argument.name} is missing`);
    }
  }

  /**
   * @param {import("./schema.js").InputValue[]} known
   * @param {Set<string>} given
   */
  argumentsOf(known, given) {
    const left = known.filter((argument) => !given.has(argument.name));
    return left.map((argument) => ({ label: argument.name, insert: `${argument.name}: `, detail: shown(argument.type), description: argument.description ?? "" }));
  }

  /** @param {import("./schema.js").TypeRef} [type] */
  value(type) {
    const values = this.schema.types.get(type ? named(type) : "")?.enumValues;
    if (values) this.propose(() => values.map(({ name, description }) => ({ label: name, insert: name, detail: "", description: description ?? "" })));
    else this.propose(() => []);
    if (this.take("[")) this.nested(() => this.list(type));
    else if (this.take("{")) this.nested(() => this.object());
    else if (this.token && ["name", "number", "string", "variable"].includes(this.token.kind)) {
      if (this.token.kind === "variable") this.use(this.token);
      this.at += 1;
    } else this.complain(this.tokens[this.at - 1], "a value is missing");
  }

  /** @param {import("./schema.js").TypeRef} [type] */
  list(type) {
    while (this.token && !this.is("]")) {
      const start = this.at;
      this.value(type);
      if (this.at === start) this.at += 1;
    }
    this.expect("]");
  }

  object() {
    while (this.token && !this.is("}")) {
      const start = this.at;
      if (this.token.kind === "name") this.at += 1;
      this.expect(":");
      this.value();
      if (this.at === start) this.at += 1;
    }
    this.expect("}");
  }

  annotations() {
    while (this.token?.kind === "directive") {
      const token = this.token;
      this.at += 1;
      const directive = this.schema.directives.find(({ name }) => `@${name}` === token.text);
      if (!directive) this.complain(token, `there is no directive ${token.text}`);
      this.args(directive?.args ?? [], directive ? token : undefined);
    }
  }
}

/**
 * Analyses a document.
 * @param {string} text
 * @param {number} cursor
 * @param {import("./schema.js").Schema} schema
 * @returns {Analysis}
 */
export function analyse(text, cursor, schema) {
  const reader = new Reader(text, cursor, schema);
  reader.document();
  for (const token of reader.tokens) {
    if (token.kind === "invalid") reader.complain(token, `${JSON.stringify(token.text)} is not part of GraphQL`);
  }
  const prefix = /[_0-9A-Za-z]*$/.exec(text.slice(0, cursor))?.[0] ?? "";
  const isIn = (/** @type {Proposal} */ { label }) => label !== prefix && label.toLowerCase().startsWith(prefix.toLowerCase());
  const proposals = reader.proposals.filter(isIn);
  return { mistakes: reader.mistakes, proposals, from: cursor - prefix.length, operations: reader.operations };
}
