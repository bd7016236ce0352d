// SPDX-License-Identifier: Apache-2.0
// charts: bars and histograms as small SVG drawings, in the colours of the page's theme.
// docs/adr/0019 has why no library draws them.

import {drawing, element} from "/pages/dom.js";
import {count, figure, share} from "/pages/figures.js";

const HEIGHT = 60; // histogram's drawing, in its own units; style.css says how large it is
const BIN_WIDTH = 10;
const VALUE_CHARACTERS = 80; // characters in a value next to its bar

/**
 * A bar as long as `part` of `all`. The figure stands next to it, so that a reader of the screen
 * loses nothing.
 */
export const bar = (part, all) => drawing("svg", {class: "bar", "aria-hidden": "true"},
  drawing("rect", {width: `${all > 0 ? 100 * part / all : 0}%`, height: "100%", rx: "2"}));

const rangeOf = bin => `${figure(bin.from)} to ${figure(bin.to)}: ${count(bin.count)}${
  bin.total ? `, ${share(bin.count, bin.total)}` : ""}`;

function barOf(bin, at, most) {
  const height = bin.count > 0 ? Math.max(1, HEIGHT * bin.count / most) : 0;
  return [
    drawing("title", {}, rangeOf(bin)),
    drawing("rect", {class: "back", x: at * BIN_WIDTH, width: BIN_WIDTH, height: HEIGHT}),
    drawing("rect", {x: at * BIN_WIDTH + 0.5, width: BIN_WIDTH - 1, y: HEIGHT - height, height})
  ];
}

const canvas = (bins, attributes, children) => drawing("svg", {
  class: "bins",
  viewBox: `0 0 ${bins.length * BIN_WIDTH} ${HEIGHT}`,
  preserveAspectRatio: "none",
  ...attributes
},
  children);
const mostOf = bins => Math.max(...bins.map(bin => bin.count), 1);

/** Bars of `bins` {from, to, count} without links. */
export const histogram = (bins, label) => canvas(bins, {role: "img", "aria-label": label},
  bins.map((bin, at) => drawing("g", {}, barOf(bin, at, mostOf(bins)))));

/**
 * Bars that are links. `link(bin, at)` gives {address, isChosen, key}. told(text) is called with
 * the range and count of the bar under the focus or the mouse, and with "" when it is left. One bar
 * is a stop of the Tab key; arrows, Home and End lead to the others. Empty bars are no links.
 */
export function histogramOfLinks(bins, label, link, told) {
  const links = [];
  const stopAt = at => links.forEach(
    (made, other) => made.setAttribute("tabindex", other === at ? 0 : -1));

  function move(event) {
    const at = links.indexOf(event.currentTarget), last = links.length - 1;
    const to = {
      ArrowLeft: Math.max(at - 1, 0),
      ArrowRight: Math.min(at + 1, last),
      Home: 0,
      End: last
    }[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    links[to].focus();
  }

  const bars = bins.map((bin, at) => {
    if (bin.count === 0) return drawing("g", {}, barOf(bin, at, mostOf(bins)));
    const {address, isChosen, key} = link(bin, at), index = links.length;
    const tell = () => told(rangeOf(bin)), hush = () => told("");
    const made = drawing("a", {
      href: address,
      "aria-label": rangeOf(bin),
      "aria-current": isChosen && "true",
      "data-key": key,
      onkeydown: move,
      onmouseenter: tell,
      onmouseleave: hush,
      onfocus: () => {
        stopAt(index);
        tell();
      },
      onblur: hush
    },
      barOf(bin, at, mostOf(bins)));
    links.push(made);
    return made;
  });
  stopAt(Math.max(links.findIndex(made => made.hasAttribute("aria-current")), 0));
  return canvas(bins, {role: "toolbar", "aria-label": label}, bars);
}

const shortened = text => text.length > VALUE_CHARACTERS ? `${text.slice(0, VALUE_CHARACTERS)}…`
                                                         : text;

/**
 * A list of values with their counts and shares of `total`, the commonest first; `link` gives a
 * value's address and whether it is chosen.
 */
export function valueBars(values, total, link) {
  return element("ul", {class: "values"}, values.map(({value, count: number}) => {
    const {address, isChosen} = link(value);
    return element("li", {},
      element("a", {href: address, "aria-current": isChosen && "true", "data-key": address},
        value === "" ? "(empty)" : shortened(value)),
      element("span", {class: "number"}, `${count(number)}, ${share(number, total)}`),
      bar(number, total));
  }));
}
