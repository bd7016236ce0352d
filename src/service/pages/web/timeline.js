// SPDX-License-Identifier: Apache-2.0
// timeline: one figure over the last hour, as a drawing, and as a table for readers who cannot see
// it.

import {drawing, element, fill, setText} from "/pages/dom.js";
import {rate} from "/pages/figures.js";

const WIDTH = 360; // width of the drawing, in its own units; style.css says how large it is
const HEIGHT = 60;
const TABLE_S = 300; // length of one row of the table

const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * Heights from the newest value at the right edge to the left; values that are not there yet leave
 * the left side empty.
 */
function outline(values, room, most) {
  const step = WIDTH / room, left = WIDTH - values.length * step;
  const points = values.map(
    (value,
      at) => `${(left + at * step).toFixed(2)},${(HEIGHT - HEIGHT * value / most).toFixed(2)} ${
      (left + (at + 1) * step).toFixed(2)},${(HEIGHT - HEIGHT * value / most).toFixed(2)}`);
  return `${left},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`;
}

/**
 * `unit`: "tokens per second". Returns {element, show}; show(counts, step_s, room) with the count
 * of each step, the newest last, out of `room`.
 */
export function timeline(title, unit) {
  const
    area = drawing("polygon"),
    svg = drawing("svg",
      {class: "trend", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none"},
      area);
  const summary = element("p", {class: "note"}), begin = element("span"), rows = element("tbody");
  const made = element("section", {class: "trend-of", "aria-label": title},
    element("h3", {}, title), summary, svg,
    element("p", {class: "ends"}, begin, element("span", {}, "now")),
    element("details", {}, element("summary", {}, "As a table"),
      element("table", {class: "plain"},
        element("thead", {},
          element("tr", {}, element("th", {scope: "col"}, "Minutes ago"),
            element("th", {scope: "col", class: "number"}, unit))),
        rows)));

  return {
    element: made,
    show(counts, stepS, room) {
      const values = counts.map(count => count / stepS), most = Math.max(...values, 0),
            last = values.at(-1) ?? 0;
      const text = values.length
        ? `${rate(last)} ${unit} now, ${rate(mean(values))} on average, ${rate(most)} at most`
        : "No measurement yet: there is one every 10 s";
      setText(summary, text);
      setText(begin, `${Math.round(room * stepS / 60)} min ago`);
      svg.setAttribute("aria-label", `${title}: ${text}`);
      area.setAttribute("points", most > 0 ? outline(values, room, most) : "");
      const perRow = TABLE_S / stepS, parts = [];
      for (let end = values.length; end > 0; end -= perRow)
        parts.push(values.slice(Math.max(0, end - perRow), end));
      fill(rows,
        parts.map(
          (part, at) => element("tr", {},
            element("th", {scope: "row"}, `${at * TABLE_S / 60} to ${(at + 1) * TABLE_S / 60}`),
            element("td", {class: "number"}, rate(mean(part))))));
    },
  };
}
