// SPDX-License-Identifier: Apache-2.0
// charts: bars and histograms as small SVG drawings, in the colours of the page's theme. docs/adr/0019 has why no library draws them.

import {drawing, element} from "/pages/dom.js";
import {count, figure} from "/pages/figures.js";

const HEIGHT = 60; // of a histogram's drawing, in its own units; style.css says how large it is
const BIN_WIDTH = 10;
const VALUE_CHARACTERS = 80; // of a value next to its bar

/** A bar as long as `part` of `all`. The figure stands next to it, so that a reader of the screen loses nothing. */
export const bar = (part, all) =>
  drawing("svg", {class: "bar", "aria-hidden": "true"}, drawing("rect", {width: `${all > 0 ? 100 * part / all : 0}%`, height: "100%", rx: "2"}));

/** Bars of `bins` {from, to, count}; chosen(bin) is called with one that is clicked, which has its figures as a tip. */
export function histogram(bins, label, chosen) {
  const most = Math.max(...bins.map(bin => bin.count), 1);
  return drawing("svg", {class: "bins", role: "img", "aria-label": label, viewBox: `0 0 ${bins.length * BIN_WIDTH} ${HEIGHT}`, preserveAspectRatio: "none"},
    bins.map((bin, at) => {
      const height = bin.count > 0 ? Math.max(1, HEIGHT * bin.count / most) : 0;
      return drawing("g", {onclick: chosen && (() => chosen(bin))},
        drawing("title", {}, `${figure(bin.from)} to ${figure(bin.to)}: ${count(bin.count)}`),
        drawing("rect", {class: "back", x: at * BIN_WIDTH, width: BIN_WIDTH, height: HEIGHT}),
        drawing("rect", {x: at * BIN_WIDTH + 0.5, width: BIN_WIDTH - 1, y: HEIGHT - height, height}));
    }));
}

const shortened = text => text.length > VALUE_CHARACTERS ? `${text.slice(0, VALUE_CHARACTERS)}…` : text;

/** A list of values with their counts, the commonest first; `link` gives a value's address and whether it is chosen. */
export function valueBars(values, link) {
  const most = Math.max(...values.map(value => value.count), 1);
  return element("ul", {class: "values"}, values.map(({value, count: number}) => {
    const {address, isChosen} = link(value);
    return element("li", {}, element("a", {href: address, "aria-current": isChosen && "true", "data-key": address}, value === "" ? "(empty)" : shortened(value)),
      element("span", {class: "number"}, count(number)), bar(number, most));
  }));
}
