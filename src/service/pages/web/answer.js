// SPDX-License-Identifier: Apache-2.0
// answer: what a request asks and what came of it, read out of their JSON: texts, fields, calls of
// tools, reasons of a failure.

const SHORT_URL = 80; // characters of an image's address; an embedded image can have megabytes

export const nameOf = call => (call?.function ?? call?.custom ?? call)?.name;

/** A value that is no text is its JSON: some servers give arguments as an object. */
const asText = value => typeof value === "string" ? value
  : value === undefined || value === null         ? ""
                                                  : JSON.stringify(value);

const argumentsOf = call => asText(
  call?.function?.arguments ?? call?.custom?.input ?? call?.arguments);

/** The text of a content, which may be a list of parts; null where there is none. */
function textOfContent(content) {
  if (content === undefined || content === null) return null;
  if (!Array.isArray(content)) return asText(content);
  return content
    .map(part => typeof part === "string" ? part
        : typeof part?.text === "string"  ? part.text
                                          : "")
    .join("");
}

function firstByIndex(list) {
  const indexOf = (element,
    place) => Number.isInteger(element?.index) && element.index >= 0 ? element.index : place;
  const places = (Array.isArray(list)
      ? list
      : []).map((element, place) => ({element, index: indexOf(element, place)}));
  return places.reduce((first, other) => first && first.index <= other.index ? first : other, null)
    ?.element;
}

/** The calls of tools in a message, in the newer or the older form. */
export function callsOf(message) {
  if (Array.isArray(message?.tool_calls) && message.tool_calls.length > 0)
    return message.tool_calls;
  const older = message?.function_call;
  return older && typeof older === "object" && Object.keys(older).length > 0 ? [older] : [];
}

/** What the model thought before a message; "" where it did not. */
export const thoughtOf = message =>
  [message?.reasoning_content, message?.reasoning, message?.thinking].find(
    value => typeof value === "string" && value !== "")
  ?? "";

const textOfFirst = (list, type, name) => list.map(part => part?.type === type ? part[name] : "")
  .find(text => typeof text === "string" && text !== "");

const endOfParts = (body, hasCall) => {
  const reason = body.stop_reason ?? body.status;
  return typeof reason !== "string"                        ? undefined
    : reason === "max_tokens" || reason === "incomplete" ? "length"
    : reason === "refusal"                               ? "content_filter"
    : hasCall                                            ? "tool_calls"
                                                         : "stop";
};

/** The choice of a body without choices: items of OpenAI's Responses, or blocks of Messages. */
function choiceOfParts(body) {
  const isList = Array.isArray(body?.output), items = isList ? body.output : body?.content;
  if (!Array.isArray(items)) return undefined;
  const contents = isList
    ? items.filter(item => item?.type === "message").map(item => item.content).filter(Array.isArray)
    : [items];
  const parts = contents.flat();
  const own = type => isList ? items.filter(item => item?.type === type) : [];
  const calls = [
    ...own("function_call").map(({name, arguments: text}) => ({function: {name, arguments: text}})),
    ...parts.filter(part => part?.type === "tool_use")
      .map(({name, input}) => ({function: {name, arguments: input}}))
  ];
  const thoughts = own("reasoning").flatMap(
    item => Array.isArray(item.content) ? item.content : []);
  return {
    finish_reason: endOfParts(body, calls.length > 0),
    message: {
      content: contents.find(content => textOfContent(content) !== "") ?? contents[0],
      tool_calls: calls,
      refusal: textOfFirst(parts, "refusal", "refusal"),
      reasoning_content: textOfFirst(thoughts, "reasoning_text", "text")
        ?? textOfFirst(parts, "thinking", "thinking")
    }
  };
}

/**
 * What a response body says, {kind, text, shown, thought, choice}, by the rule of text/answer: a
 * content that is not empty, else calls of tools, else a refusal, else the text of a completion.
 * `text` has the arguments of the first call, `shown` all calls. tests/unit/text/answer/cases.json
 * holds both to it.
 */
export function saidBy(body) {
  const choice = body?.choices ? firstByIndex(body.choices) : choiceOfParts(body);
  const message = choice?.message,
        content = textOfContent(message?.content), calls = callsOf(message);
  const thought = thoughtOf(message);
  const said = (kind, text, shown = text) => ({kind, text, shown, thought, choice});
  if (content) return said("content", content);
  if (calls.length > 0)
    return said("call", argumentsOf(calls[0]),
      calls.map(call => `${nameOf(call)}(${argumentsOf(call)})`).join("\n"));
  if (typeof message?.refusal === "string" && message.refusal !== "")
    return said("refusal", message.refusal);
  if (typeof choice?.text === "string" && (choice.text !== "" || content === null))
    return said("text", choice.text);
  return content === null ? said("nothing", "") : said("content", "");
}

function objectIn(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * What came of a line: {text, object, outcome, thought, isBad, isRefusal, isCall, calls}; `object`
 * where the answer is a JSON object, `calls` where the model called tools, next to a text or alone.
 */
export function answerOf(line) {
  const body = line.response?.body, trouble = line.error?.message ?? body?.error?.message;
  if (trouble)
    return {
      text: trouble,
      object: null,
      outcome: line.error?.code ?? body?.error?.code ?? "error",
      isBad: true,
      isRefusal: false
    };
  const {kind, shown, thought, choice} = saidBy(body),
                               text = kind === "nothing"
    ? JSON.stringify(body?.answers ?? body ?? null)
    : shown;
  return {
    text,
    object: objectIn(text),
    outcome: choice?.finish_reason ?? "done",
    thought,
    isBad: choice?.finish_reason === "length",
    isRefusal: kind === "refusal",
    isCall: kind === "call",
    calls: callsOf(choice?.message)
  };
}

const partText = part => {
  if (typeof part === "string") return part;
  const url = part?.image_url?.url;
  if (typeof url === "string")
    return `[image ${
      url.length > SHORT_URL ? `${url.slice(0, SHORT_URL)}… ${url.length} characters` : url}]`;
  return part?.text ?? JSON.stringify(part);
};

/** A content as text; what is no text in it is named. */
export function contentText(content) {
  if (Array.isArray(content)) return content.map(partText).join("\n");
  return typeof content === "string"            ? content
    : content === null || content === undefined ? ""
                                                : JSON.stringify(content, null, 1);
}

/**
 * The texts that a request without messages puts before the model, as {title, text}: its prompt, or
 * what else its route takes.
 */
export function textsOf(request) {
  const {prompt, input, ...rest} = request?.body ?? {}, texts = [];
  if (prompt !== undefined) texts.push({title: "prompt", text: contentText(prompt)});
  if (input !== undefined) texts.push({title: "input", text: contentText(input)});
  if (texts.length > 0) return texts;
  return Object.entries(rest).filter(([name]) => name !== "model").map(([title,
    value]) => ({title, text: contentText(value)}));
}

/** The request's settings that fit in a line: such as model and temperature, as [name, text]. */
export function settingsOf(request) {
  const body = request?.body ?? {};
  return Object.entries(body)
    .filter(([name, value]) => !["prompt", "input"].includes(name) &&
        ["string", "number", "boolean"].includes(typeof value))
    .map(([name, value]) => [name, String(value)]);
}

const isList = value => Array.isArray(value) && value.length > 0
  && value.every(item => item === null || typeof item !== "object");

/**
 * A value of an answer's field as text; a list of words has commas, all else that is no text is
 * JSON.
 */
export const valueText = value => typeof value === "string" ? value
  : value === undefined                                     ? ""
  : isList(value)                                           ? value.join(", ")
                                                            : JSON.stringify(value);
