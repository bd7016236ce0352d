// SPDX-License-Identifier: Apache-2.0
// fields: the values of an answer as a reader sees them, laid out by their nodes (shape.js).
// editors.js has them as controls.

import {element, longText, terms} from "/pages/dom.js";
import {percent} from "/pages/figures.js";
import {isObject} from "/pages/shape.js";

const OPTIONS_SHOWN = 8; // options in a choice; of more, the chosen one alone

export const isSame = (one, other) => JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.keys(value).sort().map(key => [key, sorted(value[key])]));
}

/** A scalar as a word. */
export function wordOf(value) {
  if (value === null) return "none";
  if (value === true) return "yes";
  if (value === false) return "no";
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

/** A value in one line, for comparisons. */
export const lineOf = value => value === undefined ? "not there"
  : value !== null && typeof value === "object"    ? JSON.stringify(value)
                                                   : wordOf(value);

/** The values in which two answers differ: [{path, before, now}]; of lists, the list as a whole. */
export function differences(before, now, path = []) {
  if (isSame(before, now)) return [];
  if (!isObject(before) || !isObject(now)) return [{path, before, now}];
  return [...new Set([...Object.keys(before), ...Object.keys(now)])].flatMap(
    name => differences(before[name], now[name], [...path, name]));
}

/** A text as it is, with its line breaks. */
export const prose = (text, name = "div") => element(name, {class: "prose"}, longText(text));

/** JSON as names and values, whatever its depth. */
export function tree(value, depth = 0) {
  if (value === null || typeof value !== "object") return prose(wordOf(value), "span");
  if (depth > 8) return prose(JSON.stringify(value), "span");
  if (Array.isArray(value))
    return value.length
      ? element("ul", {class: "tree"}, value.map(item => element("li", {}, tree(item, depth + 1))))
      : element("span", {class: "absent"}, "empty list");
  const pairs = Object.entries(value);
  if (!pairs.length) return element("span", {class: "absent"}, "empty");
  return element(
    "dl", {class: "tree"}, terms(pairs.map(([name, item]) => [name, tree(item, depth + 1)])));
}

function numberView(node, value) {
  const hasRange = node.least !== undefined && node.most !== undefined;
  return element("div", {class: "figure"}, element("span", {class: "value"}, wordOf(value)),
    hasRange && element("span", {class: "range"}, `${node.least} to ${node.most}`),
    hasRange && typeof value === "number"
      && element("meter", {min: node.least, max: node.most, value, "aria-hidden": "true"}));
}

function choiceView(node, value) {
  if (node.options.length > OPTIONS_SHOWN || !node.options.includes(value))
    return element("span", {class: "option", "data-chosen": true}, wordOf(value));
  return element("div", {class: "options"},
    node.options.map(option => option === value
        ? element("strong", {class: "option", "data-chosen": true}, wordOf(option))
        : element("span", {class: "option", "aria-hidden": "true"}, wordOf(option))));
}

const sharesView = value => element("table", {class: "parts"},
  element("tbody", {},
    Object.entries(value)
      .sort(([, one], [, other]) => other - one)
      .map(([name, part]) => element("tr", {}, element("th", {scope: "row"}, name),
             element("td", {}, element("meter", {max: 1, value: part, "aria-hidden": "true"})),
             element("td", {class: "number"}, percent(part))))));

function listView(node, value) {
  if (!value.length) return element("span", {class: "absent"}, "empty list");
  return element("ul", {class: "entries"},
    value.map(item => element("li", {}, view(node.itemOf(item, value[0]), item))));
}

/** One value, without its label. */
export function view(node, value) {
  if (value === undefined) return element("span", {class: "absent"}, "not answered");
  if (node.kind === "choice") return choiceView(node, value);
  if (value === null) return element("span", {class: "absent"}, "none");
  if (node.kind === "number" && typeof value === "number") return numberView(node, value);
  if (node.kind === "shares") return sharesView(value);
  if (node.kind === "list" && Array.isArray(value)) return listView(node, value);
  if (node.kind === "group" && typeof value === "object" && !Array.isArray(value))
    return groupView(node, value);
  if (node.kind === "text" && typeof value === "string")
    return value === "" ? element("span", {class: "absent"}, "empty") : prose(value);
  return tree(value);
}

/**
 * The fields of a group below each other. `extra(field)` adds to a field what the card knows of
 * it.
 */
export function groupView(node, value, extra = () => null) {
  return element("div", {class: "group"},
    node.fields.filter(field => field.name in value || field.isRequired)
      .map(field => element("div", {
        class: "field",
        "data-kind": field.kind,
        "data-reason": field.isReason,
        "data-name": field.name
      },
             element("div", {class: "label"}, field.label), view(field, value[field.name]),
             extra(field))));
}
