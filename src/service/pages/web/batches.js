// SPDX-License-Identifier: Apache-2.0
// batches: the list, newest first, with live progress. Rows stay where they are while their figures
// change.

import {batch as ask, batches, serverNow} from "/pages/api.js";
import {showUpload} from "/pages/create.js";
import {element, fill, pressed, setText} from "/pages/dom.js";
import {compact, costText, count, duration, moment, rate} from "/pages/figures.js";

const PAGE = 50;
const OLDER = 10; // running batches below the first page that are asked for one by one, at a time
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

class Row {
  constructor(batch) {
    this.samples = [];
    this.name = element("a", {href: `#/batch/${batch.id}`}, batch.metadata?.name ?? batch.id);
    this.state = element("span", {class: "state"});
    this.bar = element("progress", {max: "1", "aria-label": "Progress"});
    this.counts = element("span", {class: "counts"});
    this.pace = element("span", {class: "pace"});
    this.model = element("td");
    this.tokens = element("span");
    this.cost = element("span", {class: "when"});
    this.element = element("tr", {},
      element("td", {}, this.name, element("span", {class: "when"}, moment(batch.created_at))),
      element("td", {}, this.state),
      element("td", {class: "progress"}, this.bar, this.counts, this.pace), this.model,
      element("td", {class: "number"}, this.tokens, this.cost));
    this.show(batch);
  }

  show(batch) {
    this.isOver = isOver(batch);
    this.asked = performance.now();
    const {total, completed, failed} = batch.request_counts, [word, kind] = state(batch);
    setText(this.state, word);
    this.state.dataset.kind = kind;
    this.bar.max = total || 1;
    this.bar.value = completed + failed;
    setText(this.counts,
      total ? `${count(completed + failed)} of ${count(total)}${
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

export function showBatches(main) {
  const rows = new Map(); // id → Row
  const body = element("tbody");
  const none = element("p", {hidden: true},
    "No batch yet. Drop a JSONL file of requests above, or send one with openai, curl or quern.");
  const more = element(
    "button", {type: "button", hidden: true, onclick: () => showMore()}, "Show older batches");
  let last = null, wanted = PAGE;
  fill(main, element("h1", {}, "Batches"), showUpload(id => location.assign(`#/batch/${id}`)), none,
    element("div", {class: "scroll"},
      element("table", {class: "batches"},
        element("thead", {},
          element("tr", {},
            ["Batch", "State", "Progress", "Model", "Tokens, cost"].map(
              title => element(
                "th", {scope: "col", class: title === "Tokens, cost" && "number"}, title)))),
        body)),
    more);

  function place(list, isFirst) {
    list.forEach((batch, at) => {
      const known = rows.get(batch.id);
      if (known) return known.show(batch);
      const row = new Row(batch);
      rows.set(batch.id, row);
      body.insertBefore(row.element, isFirst ? body.children[at] ?? null : null);
    });
  }

  const showMore = () => pressed(more, async () => {
    const page = await batches({after: last, limit: PAGE});
    wanted += PAGE;
    place(page.data, false);
    last = page.last_id ?? last;
    more.hidden = !page.has_more;
  });

  async function refresh() {
    const page = await batches({limit: PAGE});
    place(page.data, true);
    if (wanted === PAGE) {
      last = page.last_id;
      more.hidden = !page.has_more;
    }
    none.hidden = rows.size > 0;
    const listed = new Set(page.data.map(batch => batch.id));
    const older = [...rows]
                    .filter(([id, row]) => !row.isOver && !listed.has(id))
                    .sort(([, a], [, b]) => a.asked - b.asked)
                    .slice(0, OLDER);
    await Promise.all(older.map(async ([id, row]) => row.show(await ask(id))));
  }

  return {refresh};
}
