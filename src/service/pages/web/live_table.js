// SPDX-License-Identifier: Apache-2.0
// live_table: a table whose rows stay in their place while their texts change, so that focus,
// selection and a reader of the screen stay with them.

import {element, setText} from "/pages/dom.js";

/**
 * A cell is a text, {text, kind} (a state in its colour), {text, href}, or {buttons: [{text,
 * onclick, label}]}.
 */
function show(node, cell) {
  const shape = cell?.buttons  ? "buttons"
    : cell?.href               ? "link"
    : cell?.kind !== undefined ? "state"
                               : "text";
  if (node.dataset.shape !== shape) {
    node.dataset.shape = shape;
    const inner = {
      link: () => element("a"),
      state: () => element("span", {class: "state"})
    }[shape]?.();
    node.replaceChildren(...(inner ? [inner] : []));
  }
  if (shape === "text") setText(node, cell ?? "");
  if (shape === "link" || shape === "state") setText(node.firstChild, cell.text);
  if (shape === "link") node.firstChild.setAttribute("href", cell.href);
  if (shape === "state") node.firstChild.dataset.kind = cell.kind;
  if (shape === "buttons") showButtons(node, cell.buttons);
}

/**
 * A button that stays the same keeps its place, and with it the focus; its click is that of the
 * newest row.
 */
function showButtons(node, buttons) {
  const same = node.children.length === buttons.length
    && buttons.every(({text}, at) => node.children[at].textContent === text);
  if (!same)
    node.replaceChildren(...buttons.map(
      ({text, label}) => element("button",
        {type: "button", "aria-label": label, onclick: event => event.currentTarget.act(event)},
        text)));
  buttons.forEach(({onclick}, at) => { node.children[at].act = onclick; });
}

/**
 * columns: [{title, isNumber}], the first of which names the row; `empty` stands in the place of a
 * table without rows. Returns {element, show}; show([{key, cells}]) puts the rows into that order.
 */
export function liveTable(label, columns, empty) {
  const rows = new Map(), body = element("tbody"), none = element("p", {class: "note"}, empty);
  const table = element("table", {class: "live", "aria-label": label},
    element("thead", {}, element("tr", {}, columns.map(({title,
      isNumber}) => element("th", {scope: "col", class: isNumber && "number"}, title)))),
    body);

  function make() {
    return element("tr", {},
      columns.map(({title, isNumber}, at) => element(at === 0 ? "th" : "td",
                    {scope: at === 0 && "row", class: isNumber && "number", "data-title": title})));
  }

  return {
    element: [none, table],
    show(list) {
      const wanted = new Set(list.map(({key}) => key));
      for (const [key, row] of rows) {
        if (wanted.has(key)) continue;
        row.remove();
        rows.delete(key);
      }
      list.forEach(({key, cells}, at) => {
        if (!rows.has(key)) rows.set(key, make());
        const row = rows.get(key);
        if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
        cells.forEach((cell, column) => show(row.children[column], cell));
      });
      none.hidden = list.length > 0;
      table.hidden = list.length === 0;
    },
  };
}
