// SPDX-License-Identifier: Apache-2.0
// filters: the search, the form that adds a filter, the filters that hold now, and the choice of
// columns.

import {element, fill, refill} from "/pages/dom.js";
import {OPERATIONS, addressOf, filteredBy, titleOf, withoutFilter} from "/pages/view.js";

const pair = (text, input) => element("span", {class: "pair"}, element("label", {for: input.id
}, text), input);

/**
 * The bar above a table of answers; `state()` gives the view of now. Each change is a new address.
 */
export function filterBar(id, state) {
  const go = view => location.assign(addressOf(id, view));
  const search = element("input", {id: "answers-search", type: "search", maxlength: 200});
  const name = element("select", {id: "filter-field"}),
        value = element("input", {id: "filter-value", maxlength: 1000, autocomplete: "off"});
  const operation = element("select",
    {id: "filter-operation", onchange: () => value.disabled = operation.value === "is"},
    Object.entries(OPERATIONS).map(([op, text]) => element("option", {value: op}, text)));
  const chips = element("ul", {class: "chips", "aria-label": "Filters"}),
        boxes = element("div", {class: "boxes"});
  const made = element("div", {class: "filters"},
    element("form", {role: "search", onsubmit: find},
      pair("Search in answers and custom ids", search),
      element("button", {type: "submit"}, "Search")),
    element("form", {"aria-label": "Filter", onsubmit: add}, pair("Field", name),
      pair("Comparison", operation), pair("Value", value),
      element("button", {type: "submit"}, "Add filter")),
    element("details", {}, element("summary", {}, "Columns"), boxes), chips);
  let shownNames = "", shownState = "";

  function find(event) {
    event.preventDefault();
    go({...state(), q: search.value.trim(), line: null});
  }

  function add(event) {
    event.preventDefault();
    if (name.value)
      go(filteredBy(state(), {
        name: name.value,
        op: operation.value,
        value: operation.value === "is" ? "null" : value.value
      }));
    value.value = "";
  }

  function choose() {
    go({...state(), columns: [...boxes.querySelectorAll("input:checked")].map(box => box.value)});
  }

  const chip = (text, next) => element("li", {},
    element("a", {
      href: addressOf(id, next),
      "data-key": `chip ${text}`,
      "aria-label": `Remove the filter ${text}`
    },
      text, element("span", {"aria-hidden": "true"}, " ✕")));

  function showChips() {
    const view = state();
    const list = view.filters.map(filter => chip(
                                    [
                                      titleOf(filter.name), OPERATIONS[filter.op],
                                      filter.op === "is" ? "" : filter.value || "(empty)"
                                    ].join(" ")
                                      .trim(),
                                    withoutFilter(view, filter)));
    if (view.q) list.unshift(chip(`contains ${view.q}`, {...view, q: ""}));
    chips.hidden = list.length === 0;
    refill(chips, list,
      list.length > 1
        && element("li", {},
          element("a", {href: addressOf(id, {...view, filters: [], q: ""}), "data-key": "chip"},
            "Remove all")));
  }

  return {
    element: made,
    /** `shown` are the names of the columns that the table has. */
    show(fields, shown) {
      const names = JSON.stringify(fields.map(field => field.name)),
            now = JSON.stringify([names, shown, state()]);
      if (names !== shownNames) {
        const chosen = name.value;
        fill(
          name, fields.map(field => element("option", {value: field.name}, titleOf(field.name))));
        name.value = chosen && fields.some(field => field.name === chosen)
          ? chosen
          : fields.find(field => !field.name.startsWith("."))?.name ?? fields[0]?.name ?? "";
      }
      if (now === shownState) return;
      shownNames = names;
      shownState = now;
      if (document.activeElement !== search) search.value = state().q;
      refill(boxes,
        fields.filter(field => field.name !== ".custom_id")
          .map((field, at) => element("span", {class: "box"}, element("input", {
            id: `column-${at}`,
            type: "checkbox",
            value: field.name,
            checked: shown.includes(field.name),
            onchange: choose,
            "data-key": `column ${field.name}`
          }),
                 element("label", {for: `column-${at}`
                 }, titleOf(field.name)))));
      showChips();
    },
  };
}
