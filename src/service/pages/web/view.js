// SPDX-License-Identifier: Apache-2.0
// view: which answers of a batch are shown: filters, order, search, columns, the page and the line
// that is open. The address has all of it, so that a reload and a link show the same.

/** The comparisons of a filter, as the route and as a reader has them. */
export const OPERATIONS = {
  eq: "is",
  ne: "is not",
  lt: "<",
  le: "≤",
  gt: ">",
  ge: "≥",
  has: "contains",
  is: "is absent"
};

/** Fields that every line has, with the names that a reader sees. */
const TITLES = {
  ".line": "Line",
  ".custom_id": "Custom id",
  ".outcome": "Outcome",
  ".status": "Status",
  ".prompt_tokens": "Tokens in",
  ".completion_tokens": "Tokens out",
  ".seconds": "Seconds",
  ".entropy": "Uncertainty",
  ".characters": "Characters"
};

export const titleOf = name => TITLES[name] ?? name;

const decoded = text => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

const filterText = ({name, op, value}) => [name, op, value].map(encodeURIComponent).join(":");

export function viewOf(query) {
  const filters = query.getAll("filter").map(text => text.split(":").map(decoded)).filter(([
    , op, value
  ]) => op in OPERATIONS && value !== undefined);
  const view = {
    filters: filters.map(([name, op, value]) => ({name, op, value})),
    sort: query.get("sort") ?? "",
    q: query.get("q") ?? "",
    columns: query.getAll("column"),
    line: Number(query.get("line")) || null
  };
  const after = query.get("after") ?? "",
        page = after ? Math.max(Number(query.get("page")) || 2, 2) : 1;
  return {...view, place: {question: questionOf(view), after, page}};
}

const FIRST = {after: "", page: 1};

/**
 * {after, page}: where the shown page begins, and its number from 1 on. A place belongs to its
 * question: other filters, another order and another search begin anew.
 */
export const placeOf = view => view.place?.question === questionOf(view) ? view.place : FIRST;

/** The same answers from another place. */
export const placedAt = (view, after, page) => (
  {...view, line: null, place: {question: questionOf(view), after: after ?? "", page}});

function parametersOf(view) {
  const parameters = new URLSearchParams();
  for (const filter of view.filters) parameters.append("filter", filterText(filter));
  if (view.sort) parameters.set("sort", view.sort);
  if (view.q) parameters.set("q", view.q);
  return parameters;
}

/** What the route of answers is asked; equal for two views that show the same answers. */
export const questionOf = view => parametersOf(view).toString();

export function addressOf(id, view) {
  const parameters = parametersOf(view);
  for (const column of view.columns) parameters.append("column", column);
  const {after, page} = placeOf(view);
  if (after) {
    parameters.set("page", page);
    parameters.set("after", after);
  }
  if (view.line) parameters.set("line", view.line);
  const text = parameters.toString();
  return `#/batch/${id}${text ? `?${text}` : ""}`;
}

/** The view with one more filter; a filter of the same name and operation gives way. */
export const filteredBy = (view, ...added) => ({
  ...view,
  line: null,
  filters: [
    ...view.filters.filter(
      known => !added.some(({name, op}) => known.name === name && known.op === op)),
    ...added
  ]
});

export const withoutFilter = (view, gone) => (
  {...view, filters: view.filters.filter(filter => filter !== gone)});

export const hasFilter = (view, name, op, value) => view.filters.some(
  filter => filter.name === name && filter.op === op && filter.value === value);

/** A column's head sorts upwards, then downwards, then by line again. */
export const sortedBy = (view, name) => ({
  ...view,
  line: null,
  sort: view.sort === name ? `-${name}`
    : view.sort === `-${name}` ? ""
                               : name
});

/** "ascending", "descending" or null, as aria-sort has it. */
export function orderOf(view, name) {
  if (view.sort === name || (!view.sort && name === ".line")) return "ascending";
  return view.sort === `-${name}` ? "descending" : null;
}
