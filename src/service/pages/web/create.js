// SPDX-License-Identifier: Apache-2.0
// create: from a file of requests to a batch: it is sent, looked at, and started with a name, a
// window, a priority and metadata.

import {post} from "/pages/api.js";
import {histogram} from "/pages/charts.js";
import {element, fill, say, terms} from "/pages/dom.js";
import {bytes, costText, count, duration, figure, share} from "/pages/figures.js";
import {insist, send} from "/pages/upload.js";

const HEAD_BYTES = 1 << 20; // in which the first line ends, or its url is found
const FAULTS = 20; // broken lines that are told one by one
const SAMPLE_LINES = 48; // that run for a time and a cost

/** The url of the file's first line; the route of chats where it cannot be read. */
async function endpointOf(file) {
  const head = await file.slice(0, HEAD_BYTES).text();
  try {
    return JSON.parse(head.split("\n").find(line => line.trim())).url;
  } catch {
    return "/v1/chat/completions";
  }
}

const between = (interval, text) => interval.low === null
  ? text(interval.mean)
  : `${text(interval.low)} to ${text(interval.high)}`;

/** The findings of the look at the file, as pairs of a name and a text. */
function findings(found) {
  const pairs = [["Requests", count(found.requests)], ["Model", found.model]];
  if (found.faulty > 0) pairs.push(["Broken lines", count(found.faulty)]);
  if (found.refused > 0) pairs.push(["Refused lines", count(found.refused)]);
  if (found.over_context > 0)
    pairs.push(["Longer than the model takes", count(found.over_context)]);
  if (found.duplicates > 0)
    pairs.push(["Equal to an earlier line", `${count(found.duplicates)}, computed once`]);
  if (found.prompt_tokens > 0)
    pairs.push([
      "Prompt tokens",
      `${found.token_counts === "exact" ? "" : "about "}${
        count(found.prompt_tokens)}; a request has ${count(found.prompt_lengths.p50)}, `
        +
        `the longest ${count(found.prompt_lengths.max)}`
    ]);
  if (found.shared_prefix_tokens > 0)
    pairs.push([
      "Shared beginnings",
      `${
        share(found.shared_prefix_tokens, found.prompt_tokens)} of the prompt tokens, computed once`
    ]);
  if (found.seconds) pairs.push(["Time", between(found.seconds, duration)]);
  if (found.output_tokens)
    pairs.push(["Tokens out", between(found.output_tokens, tokens => count(Math.round(tokens)))]);
  if (found.kwh) pairs.push(["Energy", between(found.kwh, kwh => `${figure(kwh)} kWh`)]);
  const cost = costText(found.costs);
  if (cost) pairs.push(["Cost", cost]);
  return pairs;
}

/** How long the prompts are, drawn; the last bins are left out where they are empty. */
function lengthsOf(lengths) {
  const used = lengths.bins.slice(lengths.bins.findIndex(bin => bin.count > 0),
    lengths.bins.findLastIndex(bin => bin.count > 0) + 1);
  const bins = used.map((bin, at) => ({...bin, to: used[at + 1]?.from ?? lengths.max}));
  const label = `Lengths of prompts: half of them have at most ${
    count(
      lengths.p50)} tokens, 95 % at most ${count(lengths.p95)}, the longest ${count(lengths.max)}`;
  return element("figure", {class: "lengths"},
    element("figcaption", {}, "Lengths of prompts, in tokens"), histogram(bins, label),
    element("p", {class: "axis"}, element("span", {}, count(bins[0].from)),
      element("span", {}, `half ≤ ${count(lengths.p50)}, 95 % ≤ ${count(lengths.p95)}`),
      element("span", {}, count(lengths.max))));
}

/** {name: value} of lines "name = value"; null where a line is neither that nor empty. */
function metadataOf(text) {
  const pairs = text.split("\n")
                  .filter(line => line.trim())
                  .map(line => /^\s*([^=]*?)\s*=\s*(.*?)\s*$/.exec(line));
  return pairs.every(pair => pair?.[1]) ? Object.fromEntries(pairs.map(pair => [pair[1], pair[2]]))
                                        : null;
}

/** The place to drop a file; `started` is called with the id of a batch that was made. */
export function showUpload(started) {
  const chosen = element("input", {
    id: "file",
    type: "file",
    accept: ".jsonl,application/jsonl",
    class: "file",
    onchange: () => chosen.files[0] && take(chosen.files[0])
  });
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
      fill(panel, told, bar, element("p", {class: "trouble", role: "alert"}, error.message),
        element("button", {type: "button", onclick: () => take(file)}, "Go on with the upload"));
    }
    chosen.disabled = false;
    chosen.value = "";
  }

  function offer(file, id, endpoint) {
    const look = element("div", {class: "look", role: "status"}),
          trouble = element("p", {class: "trouble", role: "alert"});
    const name = element("input", {id: "batch-name", value: file.name, maxlength: 512});
    const priority = element("input", {id: "batch-priority", type: "number", value: 0, step: 1});
    const window = element("input", {
      id: "batch-window",
      value: "24h",
      required: true,
      pattern: "[1-9][0-9]*[mhd]",
      title: "Minutes, hours or days: 90m, 24h, 7d"
    });
    const metadata = element("textarea", {id: "batch-metadata", rows: 2, spellcheck: "false"});
    const pauses = element("input", {id: "batch-pauses", type: "checkbox"});
    // a lost answer makes no second batch
    const again = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const field = (text, input) => [element("label", {for: input.id}, text), input];
    const form = element("form", {class: "start", onsubmit: start}, field("Name", name),
      field("Has to end within (90m, 24h, 7d)", window),
      field("Priority (a higher one runs first)", priority),
      field("Metadata (name = value, one per line)", metadata),
      element("span", {class: "box"}, pauses,
        element("label",
          {for: "batch-pauses"
          },
          "Pause the batch when its answers look wrong")),
      element("div", {class: "buttons"}, element("button", {type: "submit"}, "Start the batch"),
        element("button", {type: "button", onclick: () => fill(panel)}, "Not now")),
      trouble);
    fill(panel, element("h2", {}, file.name), look, form);

    async function start(event) {
      event.preventDefault();
      const named = metadataOf(metadata.value);
      if (!named) return fill(trouble, "Each line of the metadata is a name, =, and a value.");
      try {
        const body = {
          input_file_id: id,
          endpoint,
          completion_window: window.value,
          priority: Number(priority.value),
          metadata: {name: name.value, ...named}
        };
        const batch = await insist(
          () => post("/v1/batches", pauses.checked ? {...body, on_quality: "pause"} : body,
            {"Idempotency-Key": again}));
        fill(panel);
        say("The batch has started");
        started(batch.id);
      } catch (error) {
        fill(trouble, error.message);
      }
    }

    /**
     * Looks at the file; with a sample, some of its requests run, for the time and the cost of
     * all.
     */
    async function examine(lines) {
      fill(look,
        element("p", {},
          lines ? `The server runs ${count(lines)} of the requests…`
                : "The server looks at the file…"));
      try {
        const found = await post(
          "/v1/batches/preflight", {input_file_id: id, endpoint, pilot_lines: lines});
        const hidden = found.faulty + found.refused - Math.min(found.faults.length, FAULTS);
        fill(look, element("dl", {}, terms(findings(found))),
          found.file_fault && element("p", {class: "trouble"}, found.file_fault),
          found.faults.slice(0, FAULTS).map(fault => element("p", {class: "trouble"},
                                              `Line ${count(fault.line)}: ${fault.message}`)),
          hidden > 0 && element("p", {class: "trouble"}, `and ${count(hidden)} more such lines`),
          found.prompt_tokens > 0 && lengthsOf(found.prompt_lengths),
          !lines && found.requests > 0
            && element("button", {type: "button", onclick: () => examine(SAMPLE_LINES)},
              `Run ${count(SAMPLE_LINES)} requests to tell time and cost`));
      } catch (error) {
        fill(look, element("p", {class: "trouble"}, error.message));
      }
    }

    examine(0);
  }

  return zone;
}
