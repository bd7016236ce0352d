// SPDX-License-Identifier: Apache-2.0
// answers: the answers of a batch as a table: columns by field, filters, order, search, a page of
// 50 at a time. Other parts of the page are distributions.js, line.js and filters.js; the address
// keeps what is chosen (view.js).

import {answerOf, valueText} from "/pages/answer.js";
import {answerPage} from "/pages/answer_page.js";
import {answerFields, answers} from "/pages/api.js";
import {distributions} from "/pages/distributions.js";
import {element, fill, longText, refill, setText} from "/pages/dom.js";
import {count, figure} from "/pages/figures.js";
import {filterBar} from "/pages/filters.js";
import {lineDialog} from "/pages/line.js";
import {addressOf, orderOf, questionOf, sortedBy, titleOf, viewOf} from "/pages/view.js";

const PAGE = 50;
const COLUMNS = 8; // fields of the answer that are shown before the reader chooses
const SHOWN_CHARACTERS = 240; // characters in one cell; the rest is behind a button
const WIDE_CHARACTERS = 40; // characters in a text that wants a wide column
const PHRASE_CHARACTERS = 16; // characters in a text that wants a column wider than one word
const WIDE = "(min-width: 44rem)"; // above the width of phones, as style.css has it
const ALWAYS = [".outcome", ".completion_tokens"];

const textCell = text => element("td",
  {class: text.length > WIDE_CHARACTERS ? "wide" : text.length > PHRASE_CHARACTERS && "phrase"},
  longText(text, SHOWN_CHARACTERS));

export function showAnswers(id, query) {
  let view = viewOf(query), found = null, page = null, after = null, starts = [], shownDone = -1,
      isClosed = false;
  let asking = new AbortController();
  const charts = distributions(id, () => view), bar = filterBar(id, () => view);
  const head = element("thead"), body = element("tbody"),
        where = element("p", {class: "where", role: "status"}),
        trouble = element("p", {class: "trouble", role: "alert"});
  const back = element(
    "button", {type: "button", onclick: () => turn(starts.pop())}, "Show earlier answers");
  const next = element("button", {type: "button", onclick: () => {
    starts.push(after);
    turn(page.after);
  }}, "Show later answers");
  const again = element(
    "button", {type: "button", hidden: true, onclick: () => turn(after)}, "Show newer answers");
  const dialog = lineDialog(
    id, () => view.line && location.assign(addressOf(id, {...view, line: null})), neighbour);
  const made = element("section",
    {class: "answers", "aria-labelledby": "answers-title", hidden: true},
    element("h2", {id: "answers-title"}, "Answers"),
    element("details", {open: matchMedia(WIDE).matches},
      element("summary", {}, "How the answers are spread"), charts.element),
    bar.element, trouble, where,
    element("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of answers"},
      element("table", {class: "results"}, head, body)),
    element("div", {class: "buttons"}, back, next, again), dialog.element);

  /** The address of the line that stands `by` rows after the open one on this page, or null. */
  function neighbour(by) {
    const rows = page?.data ?? [], at = rows.findIndex(row => row.line === view.line);
    const row = at >= 0 && rows[at + by];
    return row ? addressOf(id, {...view, line: row.line}) : null;
  }

  function columns() {
    if (view.columns.length > 0) return view.columns;
    const names = found.data.map(field => field.name),
          own = names.filter(name => !name.startsWith(".")).slice(0, COLUMNS);
    return [ALWAYS[0], ...own, ...[ALWAYS[1], ".seconds"].filter(name => names.includes(name))];
  }

  function headOf(name, numbers) {
    const order = orderOf(view, name);
    return element("th", {scope: "col", "aria-sort": order, class: numbers.has(name) && "number"},
      element("a", {href: addressOf(id, sortedBy(view, name)), "data-key": `sort ${name}`},
        titleOf(name)),
      order && element("span", {"aria-hidden": "true"}, order === "ascending" ? " ▲" : " ▼"));
  }

  function cellOf(row, answer, name) {
    const value = answer.object && Object.hasOwn(answer.object, name) ? answer.object[name]
                                                                      : row.fields[name];
    if (name === ".outcome")
      return element("td", {},
        element("span", {class: "state", "data-kind": (answer.isBad || answer.isRefusal) && "warn"},
          value ?? answer.outcome, answer.isRefusal && ", refusal"));
    if (typeof value === "number") return element("td", {class: "number"}, figure(value));
    return textCell(valueText(value));
  }

  function renderTable() {
    const rows = page.data.map(row => ({row, answer: answerOf(row.result ?? {})})),
          names = columns();
    const numbers = new Set(
      found.data.filter(field => field.type === "number").map(field => field.name));
    const hasText = rows.some(({answer}) => !answer.object);
    refill(head,
      element("tr", {}, [".custom_id", ...names].map(name => headOf(name, numbers)),
        hasText && element("th", {scope: "col"}, "Answer")));
    refill(body,
      rows.map(
        ({row, answer}) => element("tr", {},
          element("th", {scope: "row"},
            element("a",
              {href: addressOf(id, {...view, line: row.line}), "data-key": `line ${row.line}`},
              row.custom_id ?? `line ${count(row.line)}`)),
          names.map(name => cellOf(row, answer, name)),
          hasText && textCell(answer.object ? "" : answer.text))));
  }

  function renderWhere() {
    const first = starts.length * PAGE, isKnown = typeof page.matched === "number";
    const parts = [page.data.length ? `${count(first + 1)} to ${count(first + page.data.length)}`
                                    : "No answer"],
          isSearch = page.searched > 0 && page.left > 0;
    if (isKnown && page.data.length) parts.push(`of ${count(page.matched)}`);
    if (view.filters.length > 0 || view.q)
      parts.push(page.data.length ? "that match" : page.isSearching ? "matches yet" : "matches");
    if (isSearch)
      parts.push(`(${count(page.searched)} answers are searched, ${count(page.left)} are left${
        page.isSearching ? "; the search goes on" : ""})`);
    if (page.indexed < page.lines)
      parts.push(`(${count(page.indexed)} of ${count(page.lines)} answers are read so far)`);
    setText(where, parts.join(" "));
    back.disabled = starts.length === 0;
    next.disabled = !page.has_more || page.isSearching;
  }

  /**
   * Asks for the page that begins at `after`; a question that is asked later takes the place of
   * this one.
   */
  async function load() {
    asking.abort();
    asking = new AbortController();
    const question = questionOf(view), signal = asking.signal;
    let isFirst = true;
    try {
      await answerPage(
        (cursor, limit) => answers(id, question, cursor, limit, signal), after, PAGE, grown => {
          const hasNews = isFirst || grown.data.length > page.data.length;
          page = grown;
          if (isFirst) fill(trouble);
          if (isFirst) again.hidden = true;
          if (hasNews) renderTable();
          renderWhere();
          isFirst = false;
        });
    } catch (error) {
      if (page) page.isSearching = false;
      if (error.status !== 400) throw error;
      // a filter that the server does not take
      page = {data: [], matched: 0, has_more: false, indexed: 0, lines: 0};
      fill(trouble, error.message);
      renderWhere();
      fill(body);
    }
  }

  async function turn(to) {
    after = to ?? null;
    try {
      await load();
    } catch (error) {
      if (error.name !== "AbortError") fill(trouble, error.message);
    }
  }

  function showLine() {
    if (view.line) dialog.show(view.line, page?.data.find(row => row.line === view.line)?.fields);
    else dialog.hide();
  }

  return {
    element: made,
    close() {
      isClosed = true;
      asking.abort();
      dialog.hide();
    },
    /** Another view of the same answers, from the address. */
    async move(parameters) {
      const asked = questionOf(view), shownColumns = view.columns.join();
      view = viewOf(parameters);
      if (!found) return;
      bar.show(found.data, columns());
      charts.show(found);
      showLine();
      if (questionOf(view) !== asked) {
        starts = [];
        await turn(null);
      } else if (view.columns.join() !== shownColumns) renderTable();
    },
    /**
       News of a running batch: distributions follow, and so does a page that is not full; a full
       page stays under the reader's eyes.
     */
    async refresh(done) {
      if (done === shownDone || isClosed) return;
      found = await answerFields(id);
      made.hidden = done === 0;
      bar.show(found.data, columns());
      charts.show(found);
      const isFirst = page === null;
      // a search under way is not begun anew
      if (isFirst || page.data.length < PAGE && !page.isSearching) await load();
      else again.hidden = found.indexed === page.indexed;
      if (isFirst) showLine();
      if (found.indexed >= found.lines && found.lines >= done) shownDone = done;
    },
  };
}
