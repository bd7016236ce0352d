// SPDX-License-Identifier: Apache-2.0
// results: the answers of a batch, a page at a time, on a server that has no index of their fields (answers.js shows those of one that has).

import {answerOf} from "/pages/answer.js";
import {results} from "/pages/api.js";
import {element, fill} from "/pages/dom.js";
import {count} from "/pages/figures.js";

const PAGE = 50;
const FIELDS_MAX = 8;
const SHOWN_CHARACTERS = 600; // of one cell; the rest is behind a button

function cell(value) {
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  if (text.length <= SHOWN_CHARACTERS) return element("td", {}, text);
  const made = element("td", {}, text.slice(0, SHOWN_CHARACTERS), "… ");
  made.append(element("button", {type: "button", class: "more", onclick: () => fill(made, text)}, `all ${count(text.length)} characters`));
  return made;
}

export function showResults(id) {
  const head = element("thead"), body = element("tbody"), where = element("span"), asked = new AbortController();
  const back = element("button", {type: "button", onclick: () => go(starts.pop())}, "Earlier lines");
  const next = element("button", {type: "button", onclick: forward}, "Later lines");
  const made = element("section", {class: "results", "aria-labelledby": "results-title", hidden: true}, element("h2", {id: "results-title"}, "Results"),
    element("div", {class: "scroll"}, element("table", {class: "results"}, head, body)), element("div", {class: "buttons"}, back, where, next));
  const starts = []; // of the pages before this one
  let after = 0, last = 0, isFull = false, shownDone = -1;

  function show(page) {
    const rows = page.lines.map(line => ({line, answer: answerOf(line)}));
    const fields = [...new Set(rows.flatMap(row => Object.keys(row.answer.object ?? {})))].slice(0, FIELDS_MAX);
    const hasText = rows.some(row => !row.answer.object);
    fill(head, element("tr", {}, ["Custom id", "Outcome", ...fields, ...(hasText ? ["Answer"] : []), "Tokens"].map(title => element("th", {scope: "col"}, title))));
    fill(body, rows.map(({line, answer}) => element("tr", {}, element("th", {scope: "row"}, line.custom_id ?? ""),
      element("td", {}, element("span", {class: "state", "data-kind": answer.isBad ? "warn" : ""}, answer.outcome)),
      fields.map(field => cell(answer.object?.[field])), hasText && cell(answer.object ? "" : answer.text), element("td", {class: "number"}, answer.tokens ?? ""))));
    made.hidden = rows.length === 0 && after === 0;
    back.disabled = starts.length === 0;
    next.disabled = !page.more && rows.length < PAGE;
    fill(where, rows.length ? `Lines ${count(after + 1)} to ${count(page.last)}` : "No further line yet");
    last = page.last;
    isFull = rows.length >= PAGE;
  }

  async function go(from) {
    after = from ?? 0;
    show(await results(id, after, PAGE, asked.signal));
  }

  function forward() {
    starts.push(after);
    return go(last);
  }

  return {
    element: made,
    close: () => asked.abort(),
    /** A page that is full stays as it is. */
    async refresh(done) {
      if (done === shownDone || (isFull && shownDone >= 0)) return;
      shownDone = done;
      if (done > 0) await go(after);
    },
  };
}
