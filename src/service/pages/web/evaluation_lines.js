// SPDX-License-Identifier: Apache-2.0
// evaluation_lines: what became of each line of an evaluation: which models of a cascade were
// asked, and how far a line was computed on the way to the best K. A choice of lines, page by page.

import {element, fill} from "/pages/dom.js";
import {count, counted, figure, percent} from "/pages/figures.js";
import {table} from "/pages/evaluation_tables.js";

const SHOWN = 50; // lines on a page
const FATES = {
  whole: "computed whole",
  short: "stopped early: its value alone",
  left_out: "left out: it could not be among the best any more"
};

const way = ({asked}) => asked.map(({model, confidence}) => confidence === null
    ? `${model} (confidence unknown)`
    : `${model} (${percent(confidence)} sure)`).join(" → ");

/**
 * A list of lines with a choice of kinds: kinds are [{name, lines}], row(line) gives its cells
 * behind the name, and open(line) shows one.
 */
function chooser(title, heads, kinds, row, open) {
  const body = element("div");
  let kind = kinds.find(({lines}) => lines.length > 0) ?? kinds[0], from = 0;

  function step(to) {
    from = to;
    show();
  }

  function show() {
    const lines = kind.lines.slice(from, from + SHOWN), end = from + lines.length;
    fill(body,
      table(["Line", ...heads], lines.map(line => [
        element("button", {type: "button", onclick: () => open(line)}, line.custom_id), ...row(line)
      ])),
      element("div", {class: "buttons"},
        element("span", {class: "quiet"}, lines.length > 0
            ? `${count(from + 1)} to ${count(end)} of ${counted(kind.lines.length, "line", "lines")}`
            : "No lines"),
        from > 0 && element("button", {type: "button", onclick: () => step(from - SHOWN)}, "Earlier"),
        end < kind.lines.length
          && element("button", {type: "button", onclick: () => step(end)}, "Later")));
  }

  const choice = element("select", {
    "aria-label": title,
    onchange: () => {
      kind = kinds[choice.selectedIndex];
      step(0);
    }
  },
    kinds.map(({name, lines}) => element("option", {selected: lines === kind.lines},
      `${name} (${count(lines.length)})`)));
  show();
  return element("div", {}, element("h3", {}, title), choice, body);
}

/** Which lines went to which model, by the file cascade.lines. */
export function cascadeLines(cascade, lines, open) {
  const kinds = cascade.models.map(({name}) => ({
    name: `Answered by ${name}`,
    lines: lines.filter(({model}) => model === name)
  }));
  return chooser("Lines by the model whose answer stands", ["Asked"], kinds,
    line => [way(line)], open);
}

/** Which lines were stopped early or left out, by the file NAME.lines of a model. */
export function topLines(model, lines, open) {
  const kinds = Object.entries(FATES).map(([fate, name]) => ({
    name: `${model}: ${name}`,
    lines: lines.filter(({computed}) => computed === fate)
  }));
  return chooser(`Lines of ${model}`, ["Value", "Place among the best"], kinds,
    ({value, rank}) => [
      {number: value === null ? "–" : figure(value)}, {number: rank === null ? "–" : count(rank)}
    ],
    open);
}
