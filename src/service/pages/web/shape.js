// SPDX-License-Identifier: Apache-2.0
// shape: how an answer is laid out: a tree of fields, made from the answer's JSON schema; where
// there is none, from the answer itself. A node is {kind, name, label, hint, isNullable, …}; kind
// is choice, switch, number, text, list, group, shares or json.

const REFS_MAX = 16; // depth of one schema behind another: a circle ends here
const DEPTH_MAX = 6; // a deeper value is shown and corrected as JSON
const REASON =
  /^(?:(.+?)[_ -]?)?(?:reasons?|reasoning|rationale|explanation|justification|evidence|why|begründung|begruendung)(?:[_ -](.+))?$/i;

export const isObject = value => value !== null && typeof value === "object"
  && !Array.isArray(value);

/** What a pointer of `$ref` means; pointers to other documents mean nothing here. */
function pointed(root, pointer) {
  if (pointer === "#") return root;
  if (!pointer.startsWith("#/")) return {};
  const steps = pointer.slice(2).split("/").map(
    step => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return steps.reduce(
    (place, step) => isObject(place) && Object.hasOwn(place, step) ? place[step] : {}, root);
}

function resolved(schema, root) {
  let plain = isObject(schema) ? schema : {};
  for (let i = 0; i < REFS_MAX && typeof plain.$ref === "string"; i++) {
    const {$ref, ...rest} = plain, target = pointed(root, $ref);
    plain = {...(isObject(target) ? target : {}), ...rest};
  }
  return plain;
}

/** A schema without references and alternatives of null: [schema, isNullable]. */
function simplified(schema, root) {
  let plain = resolved(schema, root), isNullable = false;
  if (Array.isArray(plain.allOf) && plain.allOf.length === 1)
    plain = {...plain, ...resolved(plain.allOf[0], root)};
  const others = plain.anyOf ?? plain.oneOf;
  if (Array.isArray(others)) {
    const {anyOf, oneOf, ...rest} = plain, all = others.map(one => resolved(one, root)),
                         some = all.filter(one => one.type !== "null");
    isNullable = some.length < all.length;
    if (some.length === 1) plain = {...rest, ...some[0]};
    else if (some.length && some.every(one => Array.isArray(one.enum) || "const" in one))
      plain = {...rest, enum: some.flatMap(one => one.enum ?? [one.const])};
  }
  if (Array.isArray(plain.type)) {
    const types = plain.type.filter(type => type !== "null");
    isNullable ||= types.length < plain.type.length;
    plain = {...plain, type: types.length === 1 ? types[0] : undefined};
  }
  return [plain, isNullable];
}

function typeOf(schema, value) {
  if (typeof schema.type === "string") return schema.type;
  if (schema.properties) return "object";
  if (schema.items) return "array";
  if (Array.isArray(value)) return "array";
  return value === null || value === undefined ? "" : typeof value;
}

export function labelOf(name, schema = {}) {
  if (typeof schema.title === "string" && schema.title) return schema.title;
  const words = name.replaceAll("_", " ").trim();
  return words ? words[0].toLocaleUpperCase() + words.slice(1) : name;
}

function optionsOf(schema) {
  const options = Array.isArray(schema.enum) ? schema.enum
    : "const" in schema                      ? [schema.const]
                                             : null;
  return options?.every(option => !isObject(option) && !Array.isArray(option)) ? options : null;
}

/** A field that gives the reason of another stands behind it. */
function ordered(fields) {
  const names = new Map(fields.map(field => [field.name.toLowerCase(), field])), behind = new Map();
  for (const field of fields) {
    const [, before, after] = REASON.exec(field.name) ?? [],
                     of = names.get((before ?? after ?? "").toLowerCase());
    field.isReason = before !== undefined || after !== undefined ? of !== undefined
                                                                 : REASON.test(field.name);
    if (of && of !== field) behind.set(field, of);
  }
  return fields.filter(field => !behind.has(field))
    .flatMap(field => [field, ...fields.filter(other => behind.get(other) === field)]);
}

function groupOf(schema, value, root, depth) {
  const properties = isObject(schema.properties) ? schema.properties : {},
        has = isObject(value) ? value : {};
  const names = [...new Set([...Object.keys(properties), ...Object.keys(has)])];
  return ordered(names.map(name => ({
    ...shapeOf(properties[name], has[name], {root, name, depth: depth + 1}),
    isRequired: Array.isArray(schema.required) ? schema.required.includes(name)
                                               : name in has && !(name in properties)
  })));
}

/**
 * Shares, such as the probabilities of options: numbers from 0 to 1 that add up to 1, with no
 * schema that says more.
 */
function isShares(schema, value) {
  const numbers = isObject(value) && !schema.properties ? Object.values(value) : [];
  return numbers.length > 1
    && numbers.every(number => typeof number === "number" && number >= 0 && number <= 1)
    && Math.abs(numbers.reduce((sum, number) => sum + number, 0) - 1) < 0.01;
}

/** The node of one value; `value` undefined: a value that is not there yet. */
function shapeOf(schema, value, {root = schema, name = "", depth = 0} = {}) {
  const [plain, isNullable] = simplified(schema, root), options = optionsOf(plain);
  const node = {
    name,
    label: labelOf(name, plain),
    hint: typeof plain.description === "string" ? plain.description : "",
    isNullable
  };
  if (options)
    return {
      ...node,
      kind: "choice",
      options: isNullable && !options.includes(null) ? [...options, null] : options
    };
  const type = typeOf(plain, value);
  if (type === "boolean")
    return isNullable ? {...node, kind: "choice", options: [true, false, null]}
                      : {...node, kind: "switch"};
  if (type === "number" || type === "integer")
    return {
      ...node,
      kind: "number",
      isWhole: type === "integer",
      least: plain.minimum ?? plain.exclusiveMinimum,
      most: plain.maximum ?? plain.exclusiveMaximum,
      isAbove: plain.minimum === undefined && plain.exclusiveMinimum !== undefined,
      isBelow: plain.maximum === undefined && plain.exclusiveMaximum !== undefined
    };
  if (type === "string")
    return {...node, kind: "text", shortest: plain.minLength ?? 0, longest: plain.maxLength};
  if (isShares(plain, value)) return {...node, kind: "shares"};
  if (depth >= DEPTH_MAX) return {...node, kind: "json"};
  if (type === "array")
    return {
      ...node,
      kind: "list",
      fewest: plain.minItems ?? 0,
      most: plain.maxItems,
      itemOf: (item, like) => shapeOf(plain.items,
        item === undefined && !plain.items ? like ?? "" : item, {root, depth: depth + 1})
    };
  if (type === "object")
    return {...node, kind: "group", fields: groupOf(plain, value, root, depth)};
  return {...node, kind: "json"};
}

/** The node of a whole answer. An answer that is no object is one text. */
export function shapeOfAnswer(schema, answer) {
  return isObject(answer) ? {
    ...shapeOf(schema ?? {type: "object"}, answer),
    kind: "group",
    fields: groupOf(simplified(schema ?? {}, schema)[0], answer, schema, 0)
  }
                          : {
                              kind: "group",
                              name: "",
                              label: "",
                              fields: [{
                                kind: "text",
                                name: ".text",
                                label: "Answer",
                                hint: "",
                                shortest: 0,
                                isNullable: false,
                                isRequired: true
                              }]
                            };
}
