// Documentation of the schema.

import { h } from "../dom.js";
import { named, shown } from "./schema.js";

/**
 * Returns the documentation of a schema, with a search.
 * @param {import("./schema.js").Schema} schema
 * @returns {HTMLElement}
 */
export function documentation(schema) {
  const content = h("div", { class: "content" });
  const roots = Object.values(schema.roots).filter((name) => name !== undefined);
  /** @param {string} name */
  const show = (name) => content.replaceChildren(...ofType(schema, name, show, overview));
  const overview = () => {
    const others = [...schema.types.values()].filter(({ name }) => !name.startsWith("__") && !roots.includes(name));
    const item = (/** @type {string} */ name) => h("li", {}, link(name, show));
    content.replaceChildren(
      h("h3", {}, "Operations"), h("ul", {}, ...roots.map(item)),
      h("h3", {}, "Types"), h("ul", {}, ...others.map(({ name }) => item(name))),
    );
  };
  const search = h("input", {
    type: "search", placeholder: "Search fields and types", "aria-label": "Search fields and types",
    input: (event) => {
      const wanted = event.target.value.trim().toLowerCase();
      if (wanted === "") return overview();
      const found = [];
      for (const type of schema.types.values()) {
        if (type.name.startsWith("__")) continue;
        if (type.name.toLowerCase().includes(wanted)) found.push(h("li", {}, link(type.name, show)));
        for (const field of type.fields ?? []) {
          if (field.name.toLowerCase().includes(wanted)) found.push(h("li", {}, link(type.name, show), `.${field.name}`));
        }
      }
      content.replaceChildren(found.length > 0 ? h("ul", {}, ...found) : h("p", {}, "Nothing has this name."));
    },
  });
  overview();
  return h("div", { class: "documentation" }, search, content);
}

/**
 * @param {string} name
 * @param {(name: string) => void} show
 */
function link(name, show) {
  return h("button", { type: "button", class: "link", click: () => show(name) }, name);
}

/**
 * @param {import("./schema.js").Schema} schema
 * @param {string} name
 * @param {(name: string) => void} show
 * @param {() => void} overview
 */
function ofType(schema, name, show, overview) {
  const type = schema.types.get(name);
  const typed = (/** @type {import("./schema.js").TypeRef} */ reference) => {
    const [before, after] = shown(reference).split(named(reference));
    return [before, link(named(reference), show), after];
  };
  const described = (/** @type {string | null | undefined} */ text) => (text ? [h("p", {}, text)] : []);
  const fields = (type?.fields ?? []).map((field) => {
    const parameters = field.args.map((argument) =>
      h("li", {}, h("code", {}, argument.name, ": ", ...typed(argument.type), argument.defaultValue === null ? "" : ` = ${argument.defaultValue}`), ...described(argument.description)),
    );
    return h("li", {}, h("code", {}, h("b", {}, field.name), ": ", ...typed(field.type)), ...described(field.description), ...(parameters.length > 0 ? [h("ul", {}, ...parameters)] : []));
  });
  const values = (type?.enumValues ?? []).map((value) => h("li", {}, h("code", {}, value.name), ...described(value.description)));
  return [
    h("button", { type: "button", class: "link", click: overview }, "← All types"),
    h("h3", {}, name), ...described(type?.description),
    h("ul", { class: "fields" }, ...fields, ...values),
  ];
}
