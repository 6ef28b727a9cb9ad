// The schema, as introspection describes it.

/**
 * @typedef {{ kind: string, name: string | null, ofType: TypeRef | null }} TypeRef
 * @typedef {{ name: string, description: string | null, type: TypeRef, defaultValue: string | null }} InputValue
 * @typedef {{ name: string, description: string | null, args: InputValue[], type: TypeRef }} Field
 * @typedef {{ kind: string, name: string, description: string | null, fields: Field[] | null,
 *   inputFields: InputValue[] | null, enumValues: { name: string, description: string | null }[] | null,
 *   possibleTypes: { name: string }[] | null }} Type
 */

const TYPE = "kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } }";
const VALUE = `name description defaultValue type { ${TYPE} }`;
const QUERY = `query Schema {
  __schema {
    queryType { name } mutationType { name } subscriptionType { name }
    directives { name description args { ${VALUE} } }
    types {
      kind name description
      fields { name description args { ${VALUE} } type { ${TYPE} } }
      inputFields { ${VALUE} }
      enumValues { name description }
      possibleTypes { name }
    }
  }
}`;

/** The types of a schema, by name. */
export class Schema {
  /** @param {any} described The result of the introspection. */
  constructor(described) {
    /** @type {Map<string, Type>} */
    this.types = new Map(described.types.map((/** @type {Type} */ type) => [type.name, type]));
    /** @type {Record<string, string | undefined>} */
    this.roots = {
      query: described.queryType?.name,
      mutation: described.mutationType?.name,
      subscription: described.subscriptionType?.name,
    };
    /** @type {{ name: string, description: string | null, args: InputValue[] }[]} */
    this.directives = described.directives;
  }

  /**
   * Loads the schema.
   * @param {(query: string) => Promise<any>} run
   */
  static async load(run) {
    const { data, errors } = await run(QUERY);
    if (!data) throw new Error(errors?.[0]?.message ?? "the schema could not be loaded");
    return new Schema(data.__schema);
  }

  /**
   * Returns a field of a type.
   * @param {string | undefined} type
   * @param {string} name
   * @returns {Field | undefined}
   */
  field(type, name) {
    if (name === "__typename") {
      const string = { kind: "SCALAR", name: "String", ofType: null };
      return { name, description: "Name of the type.", args: [], type: string };
    }
    return this.types.get(type ?? "")?.fields?.find((field) => field.name === name);
  }

  /**
   * Whether a type has fields of its own, which must be selected.
   * @param {string} name
   */
  hasFields(name) {
    return ["OBJECT", "INTERFACE", "UNION"].includes(this.types.get(name)?.kind ?? "");
  }
}

/**
 * Returns the name of a type without lists and non-null.
 * @param {TypeRef} type
 * @returns {string}
 */
export function named(type) {
  return type.ofType ? named(type.ofType) : (type.name ?? "");
}

/**
 * Returns a type as text, such as `[Cid!]!`.
 * @param {TypeRef} type
 * @returns {string}
 */
export function shown(type) {
  if (type.kind === "NON_NULL" && type.ofType) return `${shown(type.ofType)}!`;
  if (type.kind === "LIST" && type.ofType) return `[${shown(type.ofType)}]`;
  return type.name ?? "";
}
