// SPDX-License-Identifier: Apache-2.0
// transcript: what a request asks, as a conversation: each message with its role, calls of tools
// with their arguments, what tools gave back next to its call, reasoning behind a title.

import {callsOf, contentText, nameOf, textsOf, thoughtOf} from "/pages/answer.js";
import {element, folded, longText} from "/pages/dom.js";

const INSTRUCTIONS = 4000; // characters of instructions before "show all"
const ARGUMENTS = 600;     // characters of a call before it is behind a title
const TITLES = {
  system: "Instructions",
  developer: "Instructions",
  user: "User",
  assistant: "Assistant",
  tool: "Result of a tool",
  function: "Result of a tool"
};

/** JSON in lines of its own, other text as it is. */
function spread(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" ? JSON.stringify(value, null, 1) : text;
  } catch {
    return text;
  }
}

const argumentsOf = call => {
  const given = (call?.function ?? call?.custom ?? call)?.arguments ?? call?.custom?.input ?? "";
  return typeof given === "string" ? spread(given) : JSON.stringify(given, null, 1);
};

/** The calls of tools in a message, each with its name and arguments. */
export const callsView = calls => calls.map(call => {
  const text = argumentsOf(call), shown = () => element("pre", {tabindex: 0}, longText(text));
  return element("div", {class: "call"},
    element("p", {class: "role"}, `Calls ${nameOf(call) ?? "a tool"}`),
    text.length > ARGUMENTS ? folded("Its arguments", shown) : text && shown());
});

/** What the model thought, behind a title; nothing where it did not. */
export const thoughtView = thought =>
  Boolean(thought) && folded("Reasoning", () => element("p", {class: "text"}, longText(thought)));

const message = (kind, title, ...parts) => element(
  "section", {class: "message", "data-role": kind}, element("p", {class: "role"}, title), parts);

const text = (content, shown) =>
  content !== "" && element("p", {class: "text"}, longText(content, shown));

function messageView(given, names) {
  const role = typeof given?.role === "string" ? given.role : "message", calls = callsOf(given);
  for (const call of calls)
    if (typeof call?.id === "string") names.set(call.id, nameOf(call));
  const tool = names.get(given?.tool_call_id) ?? given?.name, title = TITLES[role] ?? role;
  const isTool = role === "tool" || role === "function",
        isLong = role === "system" || role === "developer";
  const content = contentText(given?.content);
  return message(role, isTool && tool ? `Result of ${tool}` : title, thoughtView(thoughtOf(given)),
    text(isTool ? spread(content) : content, isLong ? INSTRUCTIONS : undefined),
    text(contentText(given?.refusal)), callsView(calls));
}

/** The parts of a request: its messages as a conversation, or the texts that its route takes. */
export function transcriptOf(request) {
  const messages = request?.body?.messages, names = new Map();
  if (!Array.isArray(messages))
    return textsOf(request).map(({title, text: own}) => message("user", title, text(own)));
  return messages.map(given => messageView(given, names));
}
