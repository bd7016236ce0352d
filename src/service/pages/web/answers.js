// SPDX-License-Identifier: Apache-2.0
// answers: the answers of a batch as a table: columns by field, filters, order, search, a page of
// 50 at a time. Other parts of the page are distributions.js, line.js and filters.js; the address
// keeps what is chosen (view.js).

import {answerOf, valueText} from "/pages/answer.js";
import {answerPage} from "/pages/answer_page.js";
import {answerFields, answers, answersTable} from "/pages/api.js";
import {distributions} from "/pages/distributions.js";
import {element, fill, longText, pressed, refill, say, setText} from "/pages/dom.js";
import {count, figure} from "/pages/figures.js";
import {filterBar} from "/pages/filters.js";
import {lineDialog} from "/pages/line.js";
import {savePages} from "/pages/save.js";
import {
  addressOf,
  orderOf,
  placedAt,
  placeOf,
  questionOf,
  sortedBy,
  titleOf,
  viewOf
} from "/pages/view.js";

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
  let view = viewOf(query), found = null, page = null, shownDone = -1, isClosed = false;
  const before = new Map(); // where the page before a page begins, by where that page begins
  let asking = new AbortController();
  const saving = new AbortController(); // its end is that of the page
  const charts = distributions(id, () => view), bar = filterBar(id, () => view);
  const head = element("thead"), body = element("tbody"),
        where = element("p", {class: "where", role: "status"}),
        trouble = element("p", {class: "trouble", role: "alert"}),
        leftOut = element("p", {class: "quiet"});
  const back = element("a", {class: "button", hidden: true}, "Show earlier answers"),
        next = element("a", {class: "button", hidden: true}, "Show later answers");
  const again = element(
    "button", {type: "button", hidden: true, onclick: () => turn()}, "Show newer answers");
  const dialog = lineDialog(
    id, () => !isClosed && view.line
      && location.assign(addressOf(id, {...view, line: null})), neighbour);
  const spread = element("details", {class: "spread", open: matchMedia(WIDE).matches},
    element("summary", {}, "How the answers are spread"), charts.element, leftOut);
  const made = element("section",
    {class: "answers", "aria-labelledby": "answers-title", hidden: true},
    element("h2", {id: "answers-title"}, "Answers"),
    bar.element,
    element("div", {class: "buttons"},
      element("button", {type: "button", onclick: showDrawings}, "Show how they are spread"),
      element("button", {type: "button", onclick: event => saveTable(event.currentTarget)},
        "Save these answers as CSV")),
    trouble, where,
    element("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of answers"},
      element("table", {class: "results"}, head, body)),
    element("div", {class: "buttons"}, back, next, again), spread, dialog.element);

  /** The address of the line that stands `by` rows after the open one on this page, or null. */
  function neighbour(by) {
    const rows = page?.data ?? [], at = rows.findIndex(row => row.line === view.line);
    const row = at >= 0 && rows[at + by];
    return row ? addressOf(id, {...view, line: row.line}) : null;
  }

  /** All answers that match, not those of the page alone, with the columns of the table. */
  const saveTable = button => pressed(button, async () => {
    const question = questionOf(view), names = columns();
    await savePages(async take => {
      let after = null, done = 0;
      do {
        const page = await answersTable(id, question, names, after, saving.signal);
        after = page.headers.get("x-after");
        done++;
        if (after) say(`Page ${count(done)} of the table is here, and it goes on`);
        await take(page);
      } while (after);
    }, `${id}.csv`, "text/csv");
    say("The table is whole");
  });

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
    const {after, page: number} = placeOf(view), first = (number - 1) * PAGE,
          isKnown = typeof page.matched === "number";
    const parts = [page.data.length ? `${count(first + 1)} to ${count(first + page.data.length)}`
                                    : "No answer"],
          isSearch = page.searched > 0 && page.left > 0;
    if (isKnown && page.data.length) parts.push(`of ${count(page.matched)}`);
    if (view.filters.length > 0 || view.q)
      parts.push(page.data.length ? "that match" : page.isSearching ? "matches yet" : "matches");
    if (isSearch)
      parts.push(`(${count(page.searched)} answers searched, ${count(page.left)} left${
        page.isSearching ? "; the search goes on" : ""})`);
    if (page.indexed < page.lines)
      parts.push(`(${count(page.indexed)} of ${count(page.lines)} answers read so far)`);
    setText(where, parts.join(" "));
    next.hidden = !page.has_more || page.isSearching || !page.after;
    if (!next.hidden) before.set(page.after, after);
    next.href = addressOf(id, placedAt(view, page.after, number + 1));
    // a page that was opened by its address knows no way back but to the first one
    const start = before.get(after) ?? "", isFar = start === "" && number > 2;
    back.hidden = number === 1;
    back.href = addressOf(id, placedAt(view, start, isFar ? 1 : number - 1));
    setText(back, isFar ? "Show the first answers" : "Show earlier answers");
  }

  /**
   * Asks for the page that the address names; a question that is asked later takes the place of
   * this one.
   */
  async function load() {
    asking.abort();
    asking = new AbortController();
    const question = questionOf(view), signal = asking.signal;
    let isFirst = true;
    try {
      await answerPage(
        (cursor, limit) => answers(id, question, cursor, limit, signal),
        placeOf(view).after || null, PAGE, grown => {
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
      page = {data: [], matched: 0, has_more: false, indexed: 0, lines: 0, after: null};
      fill(trouble, error.message);
      renderWhere();
      fill(body);
    }
  }

  async function turn() {
    try {
      await load();
    } catch (error) {
      if (error.name !== "AbortError") fill(trouble, error.message);
    }
  }

  function showDrawings() {
    spread.open = true;
    spread.scrollIntoView();
    spread.querySelector("summary").focus({preventScroll: true});
  }

  function showSpread() {
    charts.show(found);
    const why = "values are in no drawing and no filter finds them: the answers have too many "
      + "fields, or lists that are too long. The results have them.";
    setText(leftOut, found.left_out > 0 ? `${count(found.left_out)} ${why}` : "");
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
      saving.abort();
      dialog.hide();
    },
    /** Another view of the same answers, from the address. */
    async move(parameters) {
      const asked = [questionOf(view), placeOf(view).after].join(" "),
            shownColumns = view.columns.join();
      view = viewOf(parameters);
      if (!found) return;
      bar.show(found.data, columns());
      showSpread();
      showLine();
      if ([questionOf(view), placeOf(view).after].join(" ") !== asked) await turn();
      else if (view.columns.join() !== shownColumns) renderTable();
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
      showSpread();
      const isFirst = page === null;
      // a search under way is not begun anew
      if (isFirst || page.data.length < PAGE && !page.isSearching) await load();
      else again.hidden = found.indexed === page.indexed;
      if (isFirst) showLine();
      if (found.indexed >= found.lines && found.lines >= done) shownDone = done;
    },
  };
}
