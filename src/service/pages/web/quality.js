// SPDX-License-Identifier: Apache-2.0
// quality: shares of a batch's answers that look wrong, the alarm that they raise, and how answers
// in a shape ended.

import {bar} from "/pages/charts.js";
import {element} from "/pages/dom.js";
import {count, counted, percent} from "/pages/figures.js";
import {addressOf, viewOf} from "/pages/view.js";

const SHARES = {
  truncated: "Cut short",
  empty: "Empty",
  in_thought: "Ended while reasoning",
  identical: "Identical answers",
  invalid_json: "Invalid JSON"
};
const LIMITS = {
  truncated: 0.2,
  empty: 0.2,
  in_thought: 0.2,
  identical: 0.5,
  invalid_json: 0.2
}; // the server's own, where the batch names none
const ENDS = {
  valid: "valid",
  truncated: "cut short",
  unchecked: "not checked",
  refused: "schema refused",
  mismatched: "of another form",
  failed: "failed"
};

/** The section of a batch that has answers; null before. */
export function qualityOf(batch) {
  const quality = batch.quern?.quality, limits = {...LIMITS, ...batch.quern?.quality_limits};
  if (!quality?.answers) return null;
  const cut = addressOf(batch.id, viewOf(new URLSearchParams({filter: ".outcome:eq:length"})));
  const rows = Object.entries(SHARES).filter(([name]) => typeof quality[name] === "number").map(([
    name, text
  ]) => {
    const isOver = quality.alarm === name;
    return element("li", {},
      element("span", {},
        name === "truncated" && quality[name] > 0 ? element("a", {href: cut}, text) : text),
      element("span", {class: "number"}, percent(quality[name])), bar(quality[name], 1),
      element("span", {class: isOver ? "state" : "quiet", "data-kind": isOver && "bad"},
        isOver ? `alarm: the limit is ${percent(limits[name])}`
               : `limit ${percent(limits[name])}`));
  });
  const ends = quality.shapes
    && Object.entries(ENDS).filter(([name]) => quality.shapes[name] > 0).map(([name,
         text]) => `${count(quality.shapes[name])} ${text}`);
  return element("section", {class: "quality", "aria-labelledby": "quality-title"},
    element("h2", {id: "quality-title"}, "Quality"),
    quality.alarm
      && element("p", {class: "alarm"},
        `Alarm: ${percent(quality[quality.alarm])} of the answers: ${
          SHARES[quality.alarm]?.toLowerCase() ?? quality.alarm}`
          +
          `${batch.quern.paused === "quality" ? ". The batch is paused for it." : "."}`),
    element("ul", {class: "values shares"}, rows),
    ends?.length > 0
      && element("p", {class: "quiet"},
        `Structured output, ${counted(quality.shapes.asked, "answer", "answers")}: ${ends.join(", ")}.`));
}
