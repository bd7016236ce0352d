// SPDX-License-Identifier: Apache-2.0
// look: what the server finds in a file before anything runs, and a sample of it that tells time
// and cost.

import {batches, post} from "/pages/api.js";
import {histogram} from "/pages/charts.js";
import {element, fill, terms} from "/pages/dom.js";
import {costText, count, duration, figure, share} from "/pages/figures.js";

const FAULTS = 20;        // broken lines that are told one by one
const SAMPLE_LINES = 48;  // at most, that run for a time and a cost
const SAMPLE_S_MAX = 600; // in which the server answers, or says that it took too long
const RECENT = 50; // batches, of which the newest of the same model tells how long a sample takes

const between = (interval, text) =>
  interval.low === null ? text(interval.mean) : `${text(interval.low)} to ${text(interval.high)}`;

/** The findings of the look at the file, as pairs of a name and a text. */
function findings(found) {
  const pairs = [["Requests", count(found.requests)], ["Model", found.model]];
  if (found.faulty > 0) pairs.push(["Broken lines", count(found.faulty)]);
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

/** How long the prompts are, drawn; the last bar has all that are longer, too. */
function lengthsOf(lengths) {
  const bins = lengths.bins.map(
    (bin, at) => ({...bin, to: (lengths.bins[at + 1]?.from ?? lengths.max + 1) - 1}));
  const label =
    `Lengths of prompts: half of them have at most ${count(lengths.p50)} tokens, 95 % at most ${
      count(lengths.p95)}, the longest ${count(lengths.max)}`;
  return element("figure", {class: "lengths"},
    element("figcaption", {}, "Lengths of prompts, in tokens"), histogram(bins, label),
    element("p", {class: "axis"}, element("span", {}, count(bins[0].from)),
      element("span", {}, `half ≤ ${count(lengths.p50)}, 95 % ≤ ${count(lengths.p95)}`),
      element("span", {}, count(lengths.max))));
}

/** Seconds that `lines` requests take, as the newest ended batch of the model ran; else null. */
async function secondsOf(model, lines) {
  const recent =
    (await batches({limit: RECENT}))
      .data.find(batch => batch.model === model && batch.completed_at && batch.in_progress_at
                          && batch.request_counts.completed > 0);
  if (!recent) return null;
  const seconds = Math.max(recent.completed_at - recent.in_progress_at, 1),
        done = recent.request_counts.completed + recent.request_counts.failed;
  return Math.min(Math.max(seconds / done * lines, 1), SAMPLE_S_MAX);
}

/**
 * The look at the file `id`; looked(found) is called with what was found: `refused` counts the
 * lines for which the server would run nothing, `file_fault` is a sentence or null.
 */
export function lookAt(id, endpoint, looked) {
  const look = element("div", {class: "look", role: "status"});

  const troubles = found => {
    const shown = found.faults.slice(0, FAULTS), hidden = found.faulty - shown.length;
    return [
      found.file_fault && element("p", {class: "trouble"}, found.file_fault),
      shown.map(
        fault => element("p", {class: "trouble"}, `Line ${count(fault.line)}: ${fault.message}`)),
      hidden > 0
        && element("p", {class: "trouble"},
          `and ${count(hidden)} more such ${hidden === 1 ? "line" : "lines"}`),
      found.refused > 0
        && element("p", {class: "trouble"},
          `${found.refused === 1 ? "One line cannot" : `${count(found.refused)} lines cannot`} run as `
            + "a request, and a batch with such a line runs nothing. Correct the file and choose " +
            "it again.")
    ];
  };

  /** The button that runs a sample, with the time that it takes; nothing where none can run. */
  function sampleButton(found) {
    const lines = Math.min(SAMPLE_LINES, found.requests - found.faulty);
    if (lines < 1 || found.pilot || found.refused > 0 || found.file_fault) return null;
    if (found.token_counts !== "exact")
      return element("p", {class: "quiet"},
        "This server does not run the model itself: a sample tells no time, and the lengths are " +
          "estimated.");
    const what =
      `Run ${count(lines)} ${lines === 1 ? "request" : "requests"} to tell time and cost`;
    const button = element("button", {type: "button", onclick: () => examine(lines)},
      `${what} (at most ${duration(SAMPLE_S_MAX)})`);
    secondsOf(found.model, lines).then(seconds => {
      if (seconds)
        fill(button, `${what} (about ${duration(seconds)}, as the last batch of this model ran)`);
    }, () => {}); // without it, the bound stands there
    return button;
  }

  /** Says how long the sample has run, with a button that ends it. */
  function waiting(lines, ended) {
    const told = element("p"), began = Date.now();
    const tell = () =>
      fill(told, `The server runs ${count(lines)} ${lines === 1 ? "request" : "requests"}: ${
                   duration((Date.now() - began) / 1000)} of at most ${duration(SAMPLE_S_MAX)}`);
    const clock = setInterval(() => told.isConnected ? tell() : clearInterval(clock), 1000);
    tell();
    // a status that changes each second would be read out each second
    told.setAttribute("aria-live", "off");
    fill(look, told, element("button", {type: "button", onclick: ended}, "Stop the sample"));
    return () => clearInterval(clock);
  }

  /** Looks at the file; with a sample, `lines` of its requests run. */
  async function examine(lines) {
    const asking = new AbortController();
    let hush = () => {};
    if (lines)
      hush = waiting(lines, () => asking.abort());
    else
      fill(look, element("p", {}, "The server looks at the file…"));
    try {
      const found = await post("/v1/batches/preflight",
        {input_file_id: id, endpoint, pilot_lines: lines}, {}, asking.signal);
      fill(look, element("dl", {}, terms(findings(found))), troubles(found),
        lines > 0 && !found.seconds
          && element("p", {class: "trouble"},
            `The sample tells no time: ${count(found.pilot?.failed ?? lines)} of ${
              count(found.pilot?.lines ?? lines)} requests failed.`),
        found.prompt_tokens > 0 && lengthsOf(found.prompt_lengths), sampleButton(found));
      looked(found);
    } catch (error) {
      if (error.name === "AbortError") return examine(0);
      fill(look, element("p", {class: "trouble"}, error.message));
    } finally {
      hush();
    }
  }

  examine(0);
  return look;
}
