// SPDX-License-Identifier: Apache-2.0
// outbox: judgements on their way to the server, one after another, in order. Each has an id of its
// own and stays until the server has kept it, or the curator gives it up: after a lost answer the
// same id goes again, and the server keeps it once. It lives as long as the tab and outlives a
// change of page.

import {Refused, judge, judgements, key} from "/pages/api.js";

const PATIENCE_MS = 60000; // without an answer; then the same record is sent again
const PAUSE_MS = 500;
const PAUSE_MS_MAX = 8000;

const entries = [
]; // {batch, record, before, state: "waiting" | "conflict" | "refused", sentence, kept, key, told}
const versions = new Map(); // versions of the newest judgement that the server has, by place
const listeners = new Set();
let isSending = false, pause = PAUSE_MS, timer = 0, trouble = "";

const placeOf = entry => JSON.stringify(
  [entry.batch, entry.record.custom_id, entry.record.curator]);

/** 32 letters that no other record has. Browsers have crypto.randomUUID() with HTTPS only. */
function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map(byte => byte.toString(16).padStart(2, "0"))
    .join("");
}

/** Calls `listener` after each change, until the function that it returns is called. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  for (const listener of [...listeners]) listener();
}

export const unsent = () => entries.length;
/** Why the first judgement waits; "" while they go out. */
export const outboxTrouble = () => trouble;
/** The judgements that wait for a choice of the curator; the server has none of them. */
export const disputed = batch => entries.filter(
  entry => entry.batch === batch && entry.state !== "waiting");
export const isUnsent = (batch, customId) => entries.some(
  entry => entry.batch === batch && entry.record.custom_id === customId);

/**
 * Puts a judgement in; `version` is that of the curator's newest judgement of this line as the
 * card had it. `told(kept)` is called at the server's 200.
 */
export function put(batch, record, version, told) {
  const entry = {
    batch,
    record: {...record, id: newId()},
    state: "waiting",
    sentence: "",
    kept: null,
    key: key(),
    told
  };
  const place = placeOf(entry);
  if (!versions.has(place) || versions.get(place) < version) versions.set(place, version);
  entries.push(entry);
  changed();
  send();
  return entry;
}

function drop(entry) {
  entries.splice(entries.indexOf(entry), 1);
}

/** The curator gives a judgement up: what the server has stays. */
export function giveUp(entry) {
  drop(entry);
  changed();
  send();
}

/** The curator stands by a judgement that met a newer one: it follows that one, as a new record. */
export function insist(entry) {
  entry.record = {...entry.record, id: newId(), version: undefined};
  entry.state = "waiting";
  entry.kept = null;
  entry.key = key();
  changed();
  send();
}

/**
 * Whether judgements wait that were made with another key: they go out with this one only if the
 * curator says so.
 */
export const hasForeign = () => entries.some(entry => entry.key !== key());

export function adopt() {
  for (const entry of entries) entry.key = key();
  hurry();
}

/** Tries at once, such as after a server came back. */
export function hurry() {
  if (isSending || !entries.length) return;
  clearTimeout(timer);
  pause = PAUSE_MS;
  send();
}

/** A line's later judgements wait behind one that needs the curator. */
function next() {
  const held = new Set();
  for (const entry of entries) {
    if (entry.state === "waiting" && !held.has(placeOf(entry))) return entry;
    held.add(placeOf(entry));
  }
  return null;
}

async function settle(entry, error) {
  if (error.code === "version_conflict") {
    const {custom_id: customId, curator} = entry.record;
    const newest = (await judgements(entry.batch, {custom_id: customId, curator})).at(-1) ?? null;
    versions.set(placeOf(entry), newest?.version ?? 0);
    entry.kept = newest;
    entry.state = "conflict";
  } else {
    entry.state = "refused";
  }
  entry.sentence = error.message;
}

/**
 * Whether the same record may be taken later: no answer, a busy server, or a key that is asked for
 * anew.
 */
const isPassing = error => !(error instanceof Refused) || error.status === 0 || error.status === 401
  || error.status === 429 || error.status >= 500;

async function trySend(entry) {
  const place = placeOf(entry);
  // fixed from here on: the same id has the same contents
  entry.record.version ??= versions.get(place);
  try {
    const kept = await judge(entry.batch, entry.record, AbortSignal.timeout(PATIENCE_MS));
    versions.set(place, kept.version);
    drop(entry);
    entry.told?.(kept);
  } catch (error) {
    if (isPassing(error)) throw error;
    await settle(entry, error);
  }
}

async function send() {
  if (isSending) return;
  isSending = true;
  clearTimeout(timer);
  try {
    for (let entry = next(); entry; entry = next()) {
      if (entry.key !== key()) throw new Refused(401, "They were made with another key");
      await trySend(entry);
      pause = PAUSE_MS;
      trouble = "";
      changed();
    }
  } catch (error) {
    trouble = error.message;
    timer = setTimeout(send, error.retryAfter ? error.retryAfter * 1000 : pause);
    pause = Math.min(pause * 2, PAUSE_MS_MAX);
    changed();
  }
  isSending = false;
}

addEventListener("online", hurry);
addEventListener("beforeunload", event => {
  if (entries.length) event.preventDefault();
});
