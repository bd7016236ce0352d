// SPDX-License-Identifier: Apache-2.0
// upload: a file of requests becomes a batch: sent in parts, looked at, then started.

import {Refused, call, post} from "/pages/api.js";
import {element, fill, say} from "/pages/dom.js";
import {bytes, count, duration, share} from "/pages/figures.js";

const PART_BYTES = 16 << 20;
const TRIES = 6; // of a part that the network lost
const HEAD_BYTES = 1 << 20; // in which the first line ends, or its url is found

const sleep = ms => new Promise(done => setTimeout(done, ms));

/** Tries again what failed on its way, or what the server puts off; its refusals count at once. */
async function insist(send) {
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

/** The id of the file on the server; tells told(bytes sent). */
async function send(file, told) {
  const upload = await insist(() => post("/v1/uploads", {filename: file.name, purpose: "batch", bytes: file.size, mime_type: "application/jsonl"}));
  const parts = [];
  for (let at = 0; at < file.size; at += PART_BYTES) {
    const part = await insist(() => sendPart(upload.id, file.slice(at, at + PART_BYTES)));
    parts.push(part.id);
    told(Math.min(at + PART_BYTES, file.size));
  }
  return (await insist(() => post(`/v1/uploads/${upload.id}/complete`, {part_ids: parts}))).file.id;
}

/** The url of the file's first line; the route of chats where it cannot be read. */
async function endpointOf(file) {
  const head = await file.slice(0, HEAD_BYTES).text();
  try {
    return JSON.parse(head.split("\n").find(line => line.trim())).url;
  } catch {
    return "/v1/chat/completions";
  }
}

const between = (interval, text) => interval.low === null ? text(interval.mean) : `${text(interval.low)} to ${text(interval.high)}`;

/** What the look at the file found, as pairs of a name and a text. */
function findings(found) {
  const pairs = [["Requests", count(found.requests)]];
  if (found.faulty > 0) pairs.push(["Broken lines", count(found.faulty)]);
  if (found.refused > 0) pairs.push(["Refused lines", count(found.refused)]);
  if (found.over_context > 0) pairs.push(["Longer than the model takes", count(found.over_context)]);
  if (found.duplicates > 0) pairs.push(["Equal to an earlier line", `${count(found.duplicates)}, computed once`]);
  if (found.prompt_tokens > 0)
    pairs.push(["Prompt tokens", `${found.token_counts === "exact" ? "" : "about "}${count(found.prompt_tokens)}; a request has ${count(found.prompt_lengths.p50)}, ` +
      `the longest ${count(found.prompt_lengths.max)}`]);
  if (found.shared_prefix_tokens > 0) pairs.push(["Shared beginnings", `${share(found.shared_prefix_tokens, found.prompt_tokens)} of the prompt tokens, computed once`]);
  if (found.seconds) pairs.push(["Time", between(found.seconds, duration)]);
  if (found.energy_cost) pairs.push(["Electricity", between(found.energy_cost, cost => cost.toFixed(2))]);
  return pairs;
}

function histogram(lengths) {
  const bins = lengths.bins.slice(0, lengths.bins.findLastIndex(bin => bin.count > 0) + 1);
  const most = Math.max(...bins.map(bin => bin.count), 1);
  return element("table", {class: "histogram"}, element("caption", {}, "Lengths of prompts, in tokens"), element("tbody", {}, bins.map(bin =>
    element("tr", {}, element("th", {scope: "row"}, `from ${count(bin.from)}`), element("td", {}, element("meter", {max: most, value: bin.count, "aria-hidden": "true"})),
      element("td", {class: "number"}, count(bin.count))))));
}

/** The place to drop a file; `started` is called with the id of a batch that was made. */
export function showUpload(started) {
  const chosen = element("input", {id: "file", type: "file", accept: ".jsonl,application/jsonl", class: "file", onchange: () => chosen.files[0] && take(chosen.files[0])});
  const panel = element("div", {class: "panel"});
  const zone = element("section", {class: "drop", "aria-label": "New batch", ondragover: over, ondragleave: leave, ondrop: drop},
    element("p", {}, element("label", {for: "file", class: "button"}, "New batch from a file"), chosen, " or drop a JSONL file of requests here"), panel);

  function over(event) {
    event.preventDefault();
    zone.dataset.over = "yes";
  }

  function leave() {
    delete zone.dataset.over;
  }

  function drop(event) {
    event.preventDefault();
    leave();
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  }

  async function take(file) {
    const bar = element("progress", {max: file.size || 1, value: 0, "aria-label": "Upload"});
    const told = element("p", {}, `${file.name}, ${bytes(file.size)}`);
    fill(panel, told, bar);
    chosen.disabled = true;
    try {
      const id = await send(file, sent => bar.value = sent);
      say(`${file.name} is on the server`);
      offer(file, id, await endpointOf(file));
    } catch (error) {
      fill(panel, element("p", {class: "trouble", role: "alert"}, error.message));
    }
    chosen.disabled = false;
    chosen.value = "";
  }

  function offer(file, id, endpoint) {
    const look = element("div", {class: "look"}, element("p", {}, "The server looks at the file…"));
    const name = element("input", {id: "batch-name", value: file.name, maxlength: 512});
    const priority = element("input", {id: "batch-priority", type: "number", value: 0, step: 1});
    const trouble = element("p", {class: "trouble", role: "alert"});
    const form = element("form", {class: "start", onsubmit: start}, element("label", {for: "batch-name"}, "Name"), name,
      element("label", {for: "batch-priority"}, "Priority (a higher one runs first)"), priority,
      element("div", {class: "buttons"}, element("button", {type: "submit"}, "Start the batch"), element("button", {type: "button", onclick: () => fill(panel)}, "Not now")), trouble);
    fill(panel, element("h2", {}, file.name), look, form);

    async function start(event) {
      event.preventDefault();
      try {
        const batch = await post("/v1/batches", {input_file_id: id, endpoint, completion_window: "24h", priority: Number(priority.value), metadata: {name: name.value}});
        fill(panel);
        say("The batch has started");
        started(batch.id);
      } catch (error) {
        fill(trouble, error.message);
      }
    }

    post("/v1/batches/preflight", {input_file_id: id, endpoint, pilot_lines: 0}).then(
      found => fill(look, element("dl", {}, findings(found).map(([term, text]) => [element("dt", {}, term), element("dd", {}, text)])),
        found.faults.slice(0, 5).map(fault => element("p", {class: "trouble"}, `Line ${count(fault.line)}: ${fault.message}`)),
        found.prompt_tokens > 0 && histogram(found.prompt_lengths)),
      error => fill(look, element("p", {class: "trouble"}, error.message)));
  }

  return zone;
}
