// SPDX-License-Identifier: Apache-2.0
// upload: a file goes to the server in parts. The tab remembers the parts that are there already,
// so that the same file goes on where a lost connection, or a reload of the page, stopped it.

import {Refused, call, get, post} from "/pages/api.js";

const PART_BYTES = 16 << 20;
const TRIES = 6; // for a part that the network lost; their pauses are half a minute together
const MEMORY = "quern-upload";

const sleep = ms => new Promise(done => setTimeout(done, ms));

/** Sends again after a lost connection or a busy server; a refusal counts at once. */
export async function insist(send) {
  for (let tried = 1; ; tried++) {
    try {
      return await send();
    } catch (error) {
      const isPassing = error instanceof Refused && [0, 429, 502, 503].includes(error.status);
      if (!isPassing || tried === TRIES) throw error;
      await sleep(error.retryAfter ? error.retryAfter * 1000 : 500 * 2 ** tried);
    }
  }
}

async function sendPart(upload, blob) {
  const form = new FormData();
  form.append("data", blob, "part");
  return (await call(`/v1/uploads/${upload}/parts`, {method: "POST", body: form})).json();
}

const keyOf = file => `${MEMORY} ${file.name} ${file.size} ${file.lastModified}`;

/**
 * What this tab knows of a file that is partly there: {upload, expires, parts}; null where it
 * knows nothing, or the time of the upload is over.
 */
function remembered(file) {
  const known = JSON.parse(sessionStorage.getItem(keyOf(file)));
  return known && known.expires > Date.now() / 1000 ? known : null;
}

async function begin(file) {
  const {id, expires_at: expires} = await insist(
    () => post("/v1/uploads",
      {filename: file.name, purpose: "batch", bytes: file.size, mime_type: "application/jsonl"}));
  return {upload: id, expires, parts: []};
}

/**
 * The file that the parts make; where the answer of an earlier try was lost, the upload says what
 * came of it.
 */
async function complete({upload, parts}) {
  try {
    return (await insist(() => post(`/v1/uploads/${upload}/complete`, {part_ids: parts}))).file.id;
  } catch (error) {
    const known = error.status >= 400 && error.status < 500 ? await get(`/v1/uploads/${upload}`)
                                                            : null;
    if (known?.status === "completed" && known.file) return known.file.id;
    throw error;
  }
}

/** The id of the file on the server; tells told(bytes that are there). */
export async function send(file, told) {
  const known = remembered(file), sent = known ?? await begin(file);
  try {
    for (let at = sent.parts.length * PART_BYTES; at < file.size; at += PART_BYTES) {
      told(at);
      sent.parts.push(
        (await insist(() => sendPart(sent.upload, file.slice(at, at + PART_BYTES)))).id);
      sessionStorage.setItem(keyOf(file), JSON.stringify(sent));
    }
    told(file.size);
    const made = await complete(sent);
    sessionStorage.removeItem(keyOf(file));
    return made;
  } catch (error) {
    if (!(error instanceof Refused) || ![400, 404, 409].includes(error.status)) throw error;
    // the server has ended this upload, and its parts are gone
    sessionStorage.removeItem(keyOf(file));
    if (known) return send(file, told);
    throw error;
  }
}
