// SPDX-License-Identifier: Apache-2.0
// answer: what a request asks and what came of it, read out of their JSON: texts, fields, calls of tools, reasons of a failure.

const SHORT_URL = 80; // of an image's address; an embedded image can have megabytes

/** The text of an answer's choice: its content, or its calls of tools. */
function textOf(choice, body) {
  const message = choice?.message;
  if (typeof message?.content === "string" && message.content !== "") return message.content;
  if (message?.tool_calls?.length) return message.tool_calls.map(({function: called}) => `${called?.name}(${called?.arguments})`).join("\n");
  return message?.content ?? choice?.text ?? JSON.stringify(body?.answers ?? body ?? null);
}

function objectIn(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/** What came of a line: {text, object, outcome, thought, isBad}; `object` where the answer is a JSON object. */
export function answerOf(line) {
  const body = line.response?.body, choice = body?.choices?.[0];
  const trouble = line.error?.message ?? body?.error?.message;
  if (trouble) return {text: trouble, object: null, outcome: line.error?.code ?? body?.error?.code ?? "error", isBad: true};
  const text = textOf(choice, body);
  return {text, object: objectIn(text), outcome: choice?.finish_reason ?? "done", thought: choice?.message?.reasoning_content ?? choice?.message?.reasoning,
    isBad: choice?.finish_reason === "length"};
}

const partText = part => {
  if (typeof part === "string") return part;
  const url = part?.image_url?.url;
  if (typeof url === "string") return `[image ${url.length > SHORT_URL ? `${url.slice(0, SHORT_URL)}… ${url.length} characters` : url}]`;
  return part?.text ?? JSON.stringify(part);
};

function contentText(content) {
  if (Array.isArray(content)) return content.map(partText).join("\n");
  return typeof content === "string" ? content : content === null || content === undefined ? "" : JSON.stringify(content, null, 1);
}

/** The texts that a request puts before the model, as {title, text}: its messages, its prompt, or what else its route takes. */
export function textsOf(request) {
  const {messages, prompt, input, ...rest} = request?.body ?? {};
  const texts = (Array.isArray(messages) ? messages : []).map(message => ({title: message?.role ?? "message",
    text: [contentText(message?.content), ...(message?.tool_calls ?? []).map(call => `${call.function?.name}(${call.function?.arguments})`)].filter(text => text).join("\n")}));
  if (prompt !== undefined) texts.push({title: "prompt", text: contentText(prompt)});
  if (input !== undefined) texts.push({title: "input", text: contentText(input)});
  if (texts.length > 0) return texts;
  return Object.entries(rest).filter(([name]) => name !== "model").map(([title, value]) => ({title, text: contentText(value)}));
}

/** The request's settings that fit in a line: such as model and temperature, as [name, text]. */
export function settingsOf(request) {
  const body = request?.body ?? {};
  return Object.entries(body).filter(([name, value]) => !["prompt", "input"].includes(name) && ["string", "number", "boolean"].includes(typeof value))
    .map(([name, value]) => [name, String(value)]);
}

const isList = value => Array.isArray(value) && value.length > 0 && value.every(item => item === null || typeof item !== "object");

/** A value of an answer's field as text; a list of words has commas, all else that is no text is JSON. */
export const valueText = value => typeof value === "string" ? value : value === undefined ? "" : isList(value) ? value.join(", ") : JSON.stringify(value);
