// SPDX-License-Identifier: Apache-2.0
// line: one line of a batch in a dialog: what was asked next to what was answered, its tokens and
// its time.

import {answerOf, settingsOf, valueText} from "/pages/answer.js";
import {line as askLine} from "/pages/api.js";
import {element, fill, folded, longText, terms} from "/pages/dom.js";
import {count} from "/pages/figures.js";
import {callsView, thoughtView, transcriptOf} from "/pages/transcript.js";

const pairs = list => list.length > 0
  && element("dl", {}, terms(list.map(([name, text]) => [name, longText(text)])));

const raw = value => element("pre", {tabindex: 0}, longText(JSON.stringify(value, null, 2)));

function askedPart({request}) {
  return element("section", {class: "asked", "aria-labelledby": "asked"},
    element("h3", {id: "asked"}, "Asked"),
    transcriptOf(request), pairs(settingsOf(request)),
    folded("The request as sent", () => raw(request)));
}

function answeredPart({result}, fields) {
  const title = element("h3", {id: "answered"}, "Answered");
  if (!result)
    return element("section", {"aria-labelledby": "answered"}, title,
      element("p", {}, "This line has no result yet."));
  const answer = answerOf(result), usage = result.response?.body?.usage,
        facts = [["Outcome", answer.outcome]];
  if (usage)
    facts.push(["Tokens in", count(usage.prompt_tokens ?? usage.input_tokens ?? 0)],
      ["Tokens out", count(usage.completion_tokens ?? usage.output_tokens ?? 0)]);
  const cached = (usage?.prompt_tokens_details ?? usage?.input_tokens_details)?.cached_tokens;
  if (cached > 0) facts.push(["From the prefix cache", count(cached)]);
  if (typeof fields?.[".seconds"] === "number")
    facts.push(["Seconds", fields[".seconds"].toFixed(2)]);
  return element("section", {"aria-labelledby": "answered"}, title,
    thoughtView(answer.thought),
    answer.isRefusal && element("p", {class: "role"}, "The model refused"),
    answer.isCall ? null : answer.object
      ? pairs(Object.entries(answer.object).map(([name, value]) => [name, valueText(value)]))
      : element("p",
        {class: answer.isBad && !result.response?.body?.choices ? "text trouble" : "text"},
        longText(answer.text)),
    callsView(answer.calls ?? []), pairs(facts),
    folded("The result as it is in the file", () => raw(result)));
}

/**
 * The dialog of a batch's lines; `closed` is called when the reader closes it, `step(by)` gives
 * the address of a neighbour, or null.
 */
export function lineDialog(id, closed, step) {
  const title = element("h2", {id: "line-title"}), body = element("div", {class: "sides"}),
        ways = element("nav", {class: "buttons", "aria-label": "Lines"});
  const dialog = element("dialog", {
    class: "line",
    "aria-labelledby": "line-title",
    onclose: closed,
    onclick: event => event.target === dialog && dialog.close()
  },
    element("div", {class: "head"}, title,
      element("button", {type: "button", onclick: () => dialog.close()}, "Close")),
    ways, body);
  let shown = 0; // the number of the line, 0 while the dialog is closed

  async function show(number, fields, signal) {
    if (shown === number) return;
    shown = number;
    fill(title, `Line ${count(number)}`);
    fill(ways, [["Earlier", step(-1)], ["Later", step(1)]].map(([text,
      address]) => address && element("a", {href: address, class: "button"}, text)));
    fill(body, element("p", {}, "The server is asked…"));
    if (!dialog.open) dialog.showModal();
    try {
      const found = await askLine(id, number, signal);
      if (shown !== number) return;
      fill(title, found.custom_id ?? "", " ",
        element("span", {class: "when"}, `line ${count(number)}`));
      fill(body, askedPart(found), answeredPart(found, fields));
    } catch (error) {
      if (shown === number && error.name !== "AbortError")
        fill(body, element("p", {class: "trouble", role: "alert"}, error.message));
    }
  }

  function hide() {
    shown = 0;
    if (dialog.open) dialog.close();
    fill(body);
  }

  return {element: dialog, show, hide};
}
