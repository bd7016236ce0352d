// SPDX-License-Identifier: Apache-2.0
// api: the server's routes, with the key of this tab. The key is kept in the tab's own storage and
// goes nowhere else.

const KEY = "quern-key";
const JUDGEMENTS = 100; // judgements in one page of the trail

export const key = () => sessionStorage.getItem(KEY) ?? "";
export const keepKey = text => sessionStorage.setItem(KEY, text);
export const forgetKey = () => sessionStorage.removeItem(KEY);

/** A request that the server refused, with its own sentence; status 0: it could not be reached. */
export class Refused extends Error {
  constructor(status, sentence, retryAfter = null, code = null) {
    super(sentence);
    this.status = status;
    this.retryAfter = retryAfter;
    this.code = code;
  }
}

async function refusal(answer) {
  let sentence = `The server answered ${answer.status}`, code = null;
  try {
    ({message: sentence, code} = (await answer.json()).error);
  } catch { /* not the shape of an error: the status has to do */
  }
  return new Refused(
    answer.status, sentence, Number(answer.headers.get("retry-after")) || null, code);
}

/** How far this machine's clock is behind the server's, in seconds; from the last answer. */
let behind = 0;
export const serverNow = () => Date.now() / 1000 + behind;

export async function call(path, options = {}) {
  const headers = {...options.headers};
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let answer;
  try {
    answer = await fetch(
      path, {...options, headers, cache: "no-store", credentials: "omit", redirect: "error"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server cannot be reached");
  }
  const date = Date.parse(answer.headers.get("date") ?? "");
  if (date) behind = Math.round((date - Date.now()) / 1000);
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export const get = async (path, options) => (await call(path, options)).json();

export const post = async (path, body = {}, headers = {}, signal) => (await call(path, {
  method: "POST",
  headers: {"Content-Type": "application/json", ...headers},
  body: JSON.stringify(body),
  signal
})).json();

/** Parameters of a query; a list is one per element, and what is empty is left out. */
function asQuery(values) {
  const given = Object.entries(values).flatMap(
    ([name, value]) => [value].flat().map(one => [name, one]));
  return new URLSearchParams(
    given.filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
}

/**
 * A page of batches, newest first; query: {after, limit, status, q}, each of which may be absent.
 */
export const batches = query => get(`/v1/batches?${asQuery(query)}`);
export const models = () => get("/v1/models");
export const batch = id => get(`/v1/batches/${encodeURIComponent(id)}`);
export const file = id => get(`/v1/files/${encodeURIComponent(id)}`);
export const content = id => call(`/v1/files/${encodeURIComponent(id)}/content`);
/** Deletes an ended batch with its files. */
export const deleteBatch = async id =>
  (await call(`/v1/batches/${encodeURIComponent(id)}`, {method: "DELETE"})).json();
/** action: pause, resume, cancel or retry. */
export const act = (id, action) => post(`/v1/batches/${encodeURIComponent(id)}/${action}`);

/** What a batch's answers have: {indexed, lines, data: fields with their distributions}. */
export const answerFields = (id, signal) =>
  get(`/v1/batches/${encodeURIComponent(id)}/answers/fields`, {signal});

/** A page of answers; `question` has filters, order and search as parameters (view.js). */
export function answers(id, question, after, limit, signal) {
  const parameters = new URLSearchParams(question);
  parameters.set("limit", limit);
  if (after) parameters.set("after", after);
  return get(`/v1/batches/${encodeURIComponent(id)}/answers?${parameters}`, {signal});
}

/** A page of the same as CSV; the answer's header X-After is the `after` of the next page. */
export function answersTable(id, question, columns, after, signal) {
  const parameters = new URLSearchParams(question);
  parameters.set("format", "csv");
  parameters.set("columns", columns.map(encodeURIComponent).join(","));
  if (after) parameters.set("after", after);
  return call(`/v1/batches/${encodeURIComponent(id)}/answers?${parameters}`, {signal});
}

/** One line: {line, custom_id, request, result}. */
export const line = (id, number, signal) =>
  get(`/v1/batches/${encodeURIComponent(id)}/lines/${number}`, {signal});

const ofBatch = (id, rest, values = {}) =>
  `/v1/batches/${encodeURIComponent(id)}/${rest}?${asQuery(values)}`;

/** Cards of a queue, see docs/internals/service/curation.md. */
export const cards = (id, query) => get(ofBatch(id, "cards", query));
/**
 * {schema, is_made, indexed, lines}: the schema is known once the answers and requests are read.
 */
export const schemaOf = id => get(ofBatch(id, "schema"));
/** Keeps a judgement; the same record twice is one. */
export const judge = async (id, record, signal) => (await call(ofBatch(id, "judgements"), {
  method: "POST",
  headers: {"Content-Type": "application/json"},
  body: JSON.stringify(record),
  signal
})).json();
/** All judgements of the audit trail that fit the query, oldest first. */
export async function judgements(id, query) {
  const found = [];
  for (let page = {has_more: true, after: null}; page.has_more;) {
    page = await get(ofBatch(id, "judgements", {...query, limit: JUDGEMENTS, after: page.after}));
    found.push(...page.data);
  }
  return found;
}

export const judgementSummary = id => get(ofBatch(id, "judgements/summary"));
export const judgementExport = (id, format) => call(ofBatch(id, "judgements/export", {format}));

/**
 * The job of Label Studio of a batch (docs/internals/app/label-studio.md); action: push, pull or
 * sync.
 */
export const studio = id => get(ofBatch(id, "label_studio"));
export const startStudio = (id, action) => post(ofBatch(id, "label_studio"), {action});

export const machine = () => get("/v1/machine");
/** action: load or unload. */
export const actOnModel = (id, action) =>
  post(`/v1/machine/models/${encodeURIComponent(id)}/${action}`);

/** Entries of the audit trail, newest first; query: {before, limit}. */
export const audit = query => get(`/v1/audit?${asQuery(query)}`);

/** The keys of the server; asks: whether it wants one of each client. */
export const keys = () => get("/v1/keys");
/** The answer's `key` is the only copy of the new key's text. */
export const createKey = wish => post("/v1/keys", wish);
export const revokeKey = async id =>
  (await call(`/v1/keys/${encodeURIComponent(id)}`, {method: "DELETE"})).json();
