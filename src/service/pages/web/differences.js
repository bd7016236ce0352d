// SPDX-License-Identifier: Apache-2.0
// differences: the answers of several models to one line next to each other, field by field, in a
// dialog. A field on which they differ is marked.

import {element, fill, longText} from "/pages/dom.js";

const WHOLE = "answer"; // the row of an answer that has no fields

/** The fields of an answer, by name; a text is one field. */
function fieldsOf(answer) {
  let value = answer;
  if (typeof answer === "string") {
    try {
      value = JSON.parse(answer);
    } catch { /* a text */
    }
  }
  const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
  return new Map(isObject ? Object.entries(value) : [[WHOLE, answer]]);
}

const told = value => value === undefined ? "–"
  : typeof value === "string"             ? value
                                          : JSON.stringify(value);

/** The rows of a table: {name, values, differs}; `sides` are [{name, answer}]. */
export function rowsOf(sides) {
  const fields = sides.map(({answer}) => fieldsOf(answer));
  const names = [...new Set(fields.flatMap(side => [...side.keys()]))];
  return names.map(name => {
    const values = fields.map(side => told(side.get(name)));
    return {name, values, differs: values.some(value => value !== values[0])};
  });
}

const table = sides => element("div", {class: "scroll"},
  element("table", {class: "differences"},
    element("thead", {},
      element("tr", {}, element("th", {scope: "col"}, "Field"),
        sides.map(({name, note}) => element("th", {scope: "col"}, name,
          note && element("span", {class: "when"}, note))))),
    element("tbody", {},
      rowsOf(sides).map(({name, values, differs}) => element("tr", {"data-differs": differs},
        element("th", {scope: "row"}, name, differs && element("span", {class: "when"}, "differs")),
        values.map(value => element("td", {}, longText(value))))))));

/** show(title, sides, asked) opens it; `asked` is the text of the request, or "". */
export function differencesDialog() {
  const title = element("h2", {id: "differences-title"}), body = element("div");
  const dialog = element("dialog", {
    class: "line",
    "aria-labelledby": "differences-title",
    onclick: event => event.target === dialog && dialog.close()
  },
    element("div", {class: "head"}, title,
      element("button", {type: "button", onclick: () => dialog.close()}, "Close")),
    body);

  function show(name, sides, asked = "") {
    fill(title, name);
    fill(body, asked && element("section", {}, element("h3", {}, "Asked"),
      element("p", {class: "text"}, longText(asked))),
      sides.length > 0 ? table(sides)
                       : element("p", {}, "Choose the models' results as well to read the answers."));
    if (!dialog.open) dialog.showModal();
  }

  return {element: dialog, show};
}
