// SPDX-License-Identifier: Apache-2.0
// distributions: how the values of each field are spread over a batch's answers; a value or a bar
// that is chosen becomes a filter.

import {histogramOfLinks, valueBars} from "/pages/charts.js";
import {element, refill, setText} from "/pages/dom.js";
import {count, figure} from "/pages/figures.js";
import {addressOf, filteredBy, hasFilter, titleOf, withoutFilter} from "/pages/view.js";

const CHARTS = 12; // before "all fields"
const VALUES = 8; // values in a field, before "all values"
const DISTINCT = 20; // values, above which a field without a common value is taken for free text
const COMMON_SHARE = 0.05;
const RANGE = new Set(["ge", "lt", "le"]); // comparisons that a chosen bar takes the place of
// different on every line, or told by the outcome
const LEFT_OUT = new Set([".line", ".custom_id", ".status"]);

const binsOf = ({edges, counts}, total) => counts.map((number, at) => ({
  from: edges[at],
  to: edges[at + 1],
  count: number,
  total,
  isLast: at === counts.length - 1
}));

/**
 * Says which values a clipped histogram has in its outer bars, so that they do not squeeze the
 * others into one.
 */
function outliersOf({edges, counts, is_clipped_below: below, is_clipped_above: above}) {
  const parts = [];
  if (below) parts.push(`${count(counts[0])} below ${figure(edges[1])}`);
  if (above) parts.push(`${count(counts.at(-1))} from ${figure(edges.at(-2))} on`);
  return parts.length > 0
    && element("p", {class: "quiet"}, `Not to scale: ${parts.join(" and ")}, in one bar each.`);
}

/**
 * The drawings of `fields`; `state()` gives the view of now, `more` is called when the reader
 * wants further fields or values.
 */
export function distributions(id, state) {
  const made = element("div", {class: "charts"}), widened = new Set();
  let shown = "", fields = [], lines = 0;

  const widen = (what, text) => element("button", {
    type: "button",
    class: "more",
    "data-key": `more ${what}`,
    onclick: () => {
      widened.add(what);
      render();
    }
  },
    text);

  function numbersOf(field) {
    const bins = binsOf(field.histogram, lines), view = state();
    const link = (bin, at) => {
      const ends = [
        {name: field.name, op: "ge", value: String(bin.from)},
        {name: field.name, op: bin.isLast ? "le" : "lt", value: String(bin.to)}
      ];
      const isChosen = ends.every(({name, op, value}) => hasFilter(view, name, op, value));
      const open = {
        ...view,
        line: null,
        filters: view.filters.filter(({name, op}) => name !== field.name || !RANGE.has(op))
      };
      return {
        address: addressOf(id, isChosen ? open : filteredBy(open, ...ends)),
        isChosen,
        key: `bin ${field.name} ${at}`
      };
    };
    const mean = `mean ${figure(field.mean)}`, middle = element("span", {}, mean);
    const label = `${titleOf(field.name)}: from ${figure(field.min)} to ${
      figure(field.max)}, mean ${figure(field.mean)}`;
    return [
      histogramOfLinks(bins, label, link, text => setText(middle, text || mean)),
      element("p", {class: "axis"}, element("span", {}, figure(field.min)), middle,
        element("span", {}, figure(field.max))),
      outliersOf(field.histogram)
    ];
  }

  function valuesOf(field) {
    const view = state(), all = field.values,
          few = widened.has(field.name) ? all : all.slice(0, VALUES);
    if ((field.distinct ?? Infinity) > DISTINCT && all[0].count < field.count * COMMON_SHARE)
      return element("p", {class: "quiet"},
        `${field.distinct ? count(field.distinct) : "more than 1,000"} different texts`);
    const link = value => {
      const isChosen = hasFilter(view, field.name, "eq", String(value));
      const next = isChosen ? withoutFilter(view,
                     view.filters.find(known => known.name === field.name && known.op === "eq"))
                            : filteredBy(view, {name: field.name, op: "eq", value: String(value)});
      return {address: addressOf(id, next), isChosen};
    };
    const left = (field.distinct ?? all.length) - few.length;
    return [
      valueBars(
        few.map(({value, count: number}) => ({value: String(value), count: number})), lines, link),
      left > 0
        && (few.length < all.length
            ? widen(field.name, `Show ${count(all.length - few.length)} more values`)
            : element("p", {class: "quiet"}, `and ${count(left)} rarer values`))
    ];
  }

  /**
   * The spread of a field: a histogram, bars of its values, or a sentence where neither would
   * help.
   */
  function spreadOf(field) {
    if (field.histogram && field.max > field.min) return numbersOf(field);
    if (field.values?.length) return valuesOf(field);
    return element("p", {class: "quiet"},
      typeof field.mean === "number" ? `always ${figure(field.mean)}`
        : field.distinct === 1 ? "always the same text"
        : field.distinct       ? `${count(field.distinct)} different texts`
                               : "free text");
  }

  const card = field => element("section", {class: "chart", "aria-label": titleOf(field.name)},
    element("h3", {}, titleOf(field.name)), spreadOf(field),
    field.count < lines
      && element("p", {class: "quiet"}, `in ${count(field.count)} of ${count(lines)} answers`));

  function render() {
    const drawn = [
      ...fields.filter(({name}) => !name.startsWith(".")),
      ...fields.filter(({name}) => name.startsWith("."))
    ].filter(({name, count: number}) => !LEFT_OUT.has(name) && number > 0);
    const few = widened.has("") ? drawn : drawn.slice(0, CHARTS);
    refill(made, few.map(card),
      few.length < drawn.length && widen("", `Show all ${count(drawn.length)} fields`));
  }

  return {
    element: made,
    /** Draws again only where the fields or the view have changed. */
    show(found) {
      const now = JSON.stringify([found, state()]);
      if (now === shown) return;
      shown = now;
      fields = found.data;
      lines = found.indexed;
      render();
    },
  };
}
