// SPDX-License-Identifier: Apache-2.0
// profile: a request to be read: the last message of the user, and the rest of the request behind
// buttons.

import {element, folded} from "/pages/dom.js";
import {prose, tree} from "/pages/fields.js";

const FENCE = /^```(\w*)[ \t]*\n([\s\S]*?)^```[ \t]*$/gm;
const SEARCHED_CHARACTERS = 200000; // characters in one text, in which JSON is looked for

function parsed(text) {
  const trimmed = text.trim();
  if (!/^[[{][\s\S]*[\]}]$/.test(trimmed) || trimmed.length > SEARCHED_CHARACTERS) return undefined;
  try {
    return JSON.parse(trimmed);
  } catch {
    return undefined;
  }
}

/** A text that ends, or consists of, JSON: the JSON is shown as names and values. */
function plainParts(text) {
  const trimmed = text.trim();
  if (!trimmed) return [];
  const whole = parsed(trimmed);
  if (whole !== undefined) return [tree(whole)];
  const start = trimmed.length > SEARCHED_CHARACTERS ? -1 : trimmed.search(/^[[{]/m),
        tail = start > 0 ? parsed(trimmed.slice(start)) : undefined;
  return tail === undefined ? [prose(trimmed)]
                            : [prose(trimmed.slice(0, start).trim()), tree(tail)];
}

/** The parts of a text: prose, JSON, and blocks between fences. */
function partsOf(text) {
  const parts = [];
  let at = 0;
  if (text.length <= SEARCHED_CHARACTERS)
    for (const found of text.matchAll(FENCE)) {
      parts.push(plainParts(text.slice(at, found.index)));
      const value = parsed(found[2]);
      parts.push(value === undefined ? element("pre", {}, found[2]) : tree(value));
      at = found.index + found[0].length;
    }
  return [...parts, plainParts(text.slice(at))].flat();
}

function contentParts(content) {
  if (typeof content === "string") return partsOf(content);
  if (!Array.isArray(content))
    return content === null || content === undefined ? [] : [tree(content)];
  return content.map(part => typeof part?.text === "string"
      ? partsOf(part.text)
      : element("p", {class: "absent"}, `A part that is no text: ${part?.type ?? "unknown"}`));
}

/** What the request asks about: [its parts, the messages before it]. */
function subjectOf(body) {
  const messages = Array.isArray(body?.messages)                         ? body.messages
    : Array.isArray(body?.input) && body.input.every(item => item?.role) ? body.input
                                                                         : null;
  if (!messages)
    return [contentParts(body?.text ?? body?.prompt ?? body?.input ?? body?.state ?? body), []];
  const at = messages.findLastIndex(message => message?.role === "user"),
        last = at < 0 ? messages.length - 1 : at;
  return [contentParts(messages[last]?.content), messages.filter((_, other) => other !== last)];
}

const titleOf = message => message?.role === "system" || message?.role === "developer"
  ? "Instructions"
  : `Message of the ${message?.role ?? "unknown"}`;

export function profileOf(request) {
  const [parts, others] = subjectOf(request?.body);
  return [
    parts, others.map(message => folded(titleOf(message), () => contentParts(message?.content))),
    folded("The request as sent", () => element("pre", {}, JSON.stringify(request, null, 2)))
  ];
}
