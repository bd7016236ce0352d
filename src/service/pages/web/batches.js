// SPDX-License-Identifier: Apache-2.0
// batches: the list, newest first, by name, state and page, with live progress. Rows stay where
// they are while their figures change. The address has what is looked for, and the page.

import {batches, deleteBatch, file as askFile, serverNow} from "/pages/api.js";
import {confirmed} from "/pages/confirm.js";
import {showUpload} from "/pages/create.js";
import {element, fill, pressed, say, setText} from "/pages/dom.js";
import {compact, costText, count, duration, moment, rate} from "/pages/figures.js";

const PAGE = 50;
const OVER = new Set(["completed", "failed", "expired", "cancelled"]);
const RATE_S = 60; // what a rate is measured over

export const isOver = batch => OVER.has(batch.status);

/** What a status means to its owner, in a word and a colour. */
export function state(batch) {
  if (batch.quern?.paused)
    return [batch.quern.paused === "quality" ? "paused: quality" : "paused", "warn"];
  if (batch.status === "completed")
    return batch.request_counts.failed > 0 ? ["completed, some failed", "warn"]
                                           : ["completed", "good"];
  if (batch.status === "failed" || batch.status === "expired") return [batch.status, "bad"];
  return [batch.status.replace("_", " "), isOver(batch) ? "" : "live"];
}

/** Lines per second over the last minute, or since the start; null while nothing is known. */
function paceOf(batch, samples) {
  const now = serverNow(), done = batch.request_counts.completed + batch.request_counts.failed;
  samples.push({now, done});
  while (samples.length > 2 && now - samples[0].now > RATE_S) samples.shift();
  const first = samples[0];
  if (now - first.now >= 4) return (done - first.done) / (now - first.now);
  const ran = batch.in_progress_at ? now - batch.in_progress_at : 0;
  return ran >= 1 && done > 0 ? done / ran : null;
}

/** "3.4 per second, 2 h 5 min left"; of an ended batch, the time that it took. */
export function progressText(batch, samples) {
  const {total, completed, failed} = batch.request_counts;
  if (isOver(batch)) {
    const end = batch.completed_at ?? batch.failed_at ?? batch.expired_at ?? batch.cancelled_at;
    return end && batch.in_progress_at ? `took ${duration(end - batch.in_progress_at)}` : "";
  }
  if (batch.waiting_for) return `waits: ${batch.waiting_for}`;
  if (batch.status !== "in_progress" || batch.quern?.paused) return "";
  const pace = paceOf(batch, samples), left = total - completed - failed;
  if (pace === null) return "";
  return pace > 0 ? `${rate(pace)} per second, ${duration(left / pace)} left`
                  : "no line in the last minute";
}

/** Asks, then deletes a batch; resolves to whether it is gone. */
export async function deleted(batch, name) {
  const sentence = `Delete ${name} with its input, its results and what curators said of them? `
    + "Nothing of it can be had back.";
  if (!await confirmed("Delete a batch", sentence, "Delete it")) return false;
  await deleteBatch(batch.id);
  say(`${name} is deleted`);
  return true;
}

class Row {
  /** `gone` is called once the batch is deleted. */
  constructor(batch, gone) {
    this.samples = [];
    this.name = element("a", {href: `#/batch/${batch.id}`}, batch.metadata?.name ?? batch.id);
    this.state = element("span", {class: "state"});
    this.remove = element("button", {
      type: "button",
      class: "more",
      hidden: true,
      onclick: () => pressed(this.remove,
        async () => await deleted(batch, this.name.textContent) && gone())
    },
      "Delete");
    this.bar = element("progress", {max: "1", "aria-label": "Progress"});
    this.counts = element("span", {class: "counts"});
    this.pace = element("span", {class: "pace"});
    this.model = element("td");
    this.tokens = element("span");
    this.cost = element("span", {class: "when"});
    this.element = element("tr", {},
      element("td", {}, this.name, element("span", {class: "when"}, moment(batch.created_at))),
      element("td", {}, this.state, this.remove),
      element("td", {class: "progress"}, this.bar, this.counts, this.pace), this.model,
      element("td", {class: "number"}, this.tokens, this.cost));
    this.show(batch);
    nameOf(batch).then(name => {
      setText(this.name, name);
      this.remove.setAttribute("aria-label", `Delete ${name}`);
    });
  }

  show(batch) {
    const {total, completed, failed} = batch.request_counts, [word, kind] = state(batch);
    setText(this.state, word);
    this.state.dataset.kind = kind;
    this.remove.hidden = !isOver(batch);
    this.bar.max = total || 1;
    this.bar.value = completed + failed;
    setText(this.counts, total ? `${count(completed + failed)} of ${count(total)}${
                           failed ? `, ${count(failed)} failed` : ""}`
                                  : "");
    setText(this.pace, progressText(batch, this.samples));
    setText(this.model, batch.model ?? "");
    setText(this.tokens,
      batch.usage
        ? `${compact(batch.usage.input_tokens)} in, ${compact(batch.usage.output_tokens)} out`
        : "");
    setText(this.cost, costText(batch.quern?.costs));
  }
}

/** Groups of states that a reader can choose; each is a list of the server's. */
const STATES = {
  running: ["in work", ["validating", "in_progress", "finalizing", "cancelling"]],
  completed: ["completed", ["completed"]],
  failed: ["failed", ["failed"]],
  expired: ["expired", ["expired"]],
  cancelled: ["cancelled", ["cancelled"]]
};

/** What the address says of the list: {q, state, page, after}; page counts from 1. */
const viewOf = query => ({
  q: query.get("q") ?? "",
  state: STATES[query.get("state")] ? query.get("state") : "",
  page: query.get("after") ? Math.max(Number(query.get("page")) || 2, 2) : 1,
  after: query.get("after") ?? ""
});

function addressOf(view) {
  const parameters = new URLSearchParams();
  if (view.q) parameters.set("q", view.q);
  if (view.state) parameters.set("state", view.state);
  if (view.after) {
    parameters.set("page", view.page);
    parameters.set("after", view.after);
  }
  const text = parameters.toString();
  return `#/${text ? `?${text}` : ""}`;
}

/**
 * A page of the list, over as many requests as it takes: the server looks at some thousand batches
 * per request.
 */
async function pageOf(view) {
  const data = [];
  let after = view.after;
  for (;;) {
    const part = await batches({
      after,
      limit: PAGE - data.length,
      q: view.q,
      status: view.state ? STATES[view.state][1] : []
    });
    data.push(...part.data);
    after = part.after === undefined ? part.last_id : part.after;
    if (!part.has_more || data.length === PAGE) return {data, after, hasMore: part.has_more};
  }
}

/** The form above the list; go(view) opens another view of it. */
function searchForm(view, go) {
  const search =
    element("input", {id: "batches-search", type: "search", maxlength: 200, value: view.q});
  const state =
    element("select", {id: "batches-state", onchange: find}, element("option", {value: ""}, "any"),
      Object.entries(STATES).map(
        ([name, [text]]) => element("option", {value: name, selected: name === view.state}, text)));

  function find(event) {
    event.preventDefault();
    go({q: search.value.trim(), state: state.value, page: 1, after: ""});
  }

  const pair = (text, input) => element("span", {class: "pair"}, element("label", {for: input.id
  }, text), input);
  return {
    element: element("div", {class: "filters"},
      element("form", {role: "search", onsubmit: find},
        pair("Search by name, id or metadata", search), pair("State", state),
        element("button", {type: "submit"}, "Search"))),
    show(now) {
      if (document.activeElement !== search) search.value = now.q;
      state.value = now.state;
    }
  };
}

const names = new Map(); // the name of an input file by its id, null while it is asked for

/** The name of a batch: the one it was given, its file's, or its id. */
export async function nameOf(batch) {
  if (batch.metadata?.name) return batch.metadata.name;
  const id = batch.input_file_id;
  if (!names.has(id)) names.set(id, askFile(id).then(file => file.filename, () => null));
  return await names.get(id) ?? batch.id;
}

export function showBatches(main, _, query) {
  let view = viewOf(query), rows = new Map(); // id → Row
  const before = new Map();                   // the cursor of a page by that of the page behind it
  const go = next => location.assign(addressOf(next));
  const form = searchForm(view, go), body = element("tbody");
  const none = element("p", {hidden: true}), where = element("p", {class: "where", role: "status"});
  const earlier = element("a", {class: "button", hidden: true}, "Newer batches"),
        later = element("a", {class: "button", hidden: true}, "Older batches");
  const head = element("thead", {},
    element("tr", {},
      ["Batch", "State", "Progress", "Model", "Tokens, cost"].map(
        title =>
          element("th", {scope: "col", class: title === "Tokens, cost" && "number"}, title))));
  fill(main, element("h1", {}, "Batches"), showUpload(id => location.assign(`#/batch/${id}`)),
    form.element, none, where,
    element("div", {class: "scroll"}, element("table", {class: "batches"}, head, body)),
    element("nav", {class: "buttons", "aria-label": "Pages of the list"}, earlier, later));

  function place(list) {
    const wanted = new Set(list.map(batch => batch.id));
    for (const [id, row] of rows)
      if (!wanted.has(id)) {
        row.element.remove();
        rows.delete(id);
      }
    list.forEach((batch, at) => {
      if (!rows.has(batch.id)) rows.set(batch.id, new Row(batch, refresh));
      const row = rows.get(batch.id);
      row.show(batch);
      if (body.children[at] !== row.element)
        body.insertBefore(row.element, body.children[at] ?? null);
    });
  }

  function showWays({data, after, hasMore}) {
    const isChosen = view.q || view.state;
    none.hidden = data.length > 0;
    setText(none,
      isChosen || view.after
        ? "No batch matches."
        : "No batch yet. Choose a file of requests above, or send one with openai, curl or quern.");
    setText(where, view.page > 1 ? `Page ${count(view.page)}` : "");
    if (hasMore && after) before.set(after, view.after);
    later.hidden = !hasMore;
    later.href = addressOf({...view, page: view.page + 1, after: after ?? ""});
    earlier.hidden = view.page === 1;
    // a page that was opened by its address knows no way but to the first one
    const back = before.get(view.after) ?? "";
    earlier.href = addressOf({...view, page: view.page - 1, after: back});
    setText(earlier, back || view.page === 2 ? "Newer batches" : "The newest batches");
  }

  async function refresh() {
    const asked = view, page = await pageOf(asked);
    if (asked !== view) return;
    place(page.data);
    showWays(page);
  }

  async function move(parameters) {
    view = viewOf(parameters);
    form.show(view);
    try {
      await refresh();
    } catch (error) {
      fill(none, error.message);
      none.hidden = false;
    }
  }

  return {refresh, move};
}
