// SPDX-License-Identifier: Apache-2.0
// create: from a file of requests to a batch: it is sent, looked at, and started with a name, a
// window, a priority and metadata.

import {get, post, Refused} from "/pages/api.js";
import {element, fill, say} from "/pages/dom.js";
import {bytes} from "/pages/figures.js";
import {lookAt} from "/pages/look.js";
import {insist, send} from "/pages/upload.js";

const HEAD_BYTES = 1 << 20; // in which the first line ends, or its url is found
const TABLE = /\.(csv|tsv|tab)$/i;
const PASSING = new Set([0, 408, 429, 500, 502, 503, 504]); // after which an upload may go on

/**
 * {url, trouble} of the file's first line: its route, or that of chats where it names none; a
 * sentence where the file is no JSONL.
 */
async function beginningOf(file) {
  const url = "/v1/chat/completions";
  if (file.size === 0) return {url, trouble: `${file.name} is empty.`};
  const head = await file.slice(0, HEAD_BYTES).text(),
        lines = head.replace(/^\ufeff/, "").split("\n"), line = lines.find(text => text.trim());
  if (line === undefined && file.size <= HEAD_BYTES)
    return {url, trouble: `${file.name} has only blank lines.`};
  const isWhole = line !== undefined && (lines.at(-1) !== line || file.size <= HEAD_BYTES);
  try {
    return {url: JSON.parse(line).url ?? url, trouble: null};
  } catch {
    return {
      url,
      trouble:
        isWhole ? `${file.name} is no file of requests: its first line is not JSON. A batch ` +
                    "takes JSONL, one request per line, or a table whose name ends in .csv or .tsv."
                : null
    };
  }
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
    accept: ".jsonl,.ndjson,.csv,.tsv,.tab,application/jsonl,text/csv",
    class: "file",
    onchange: () => chosen.files[0] && take(chosen.files[0])
  });
  const panel = element("div", {class: "panel"});
  const events = {ondragover: over, ondragleave: leave, ondrop: drop};
  const zone = element("section", {class: "drop", "aria-label": "New batch", ...events},
    element("p", {}, element("label", {for: "file", class: "button"}, "New batch from a file"),
      chosen, " or drop a file of requests (JSONL) or a table (CSV) here"),
    panel);

  function over(event) {
    event.preventDefault();
    zone.dataset.over = "yes";
  }

  function leave() { delete zone.dataset.over; }

  function drop(event) {
    event.preventDefault();
    leave();
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  }

  const refuse = (...sentence) =>
    fill(panel, element("p", {class: "trouble", role: "alert"}, ...sentence));

  async function take(file) {
    try {
      if (TABLE.test(file.name) && file.size > 0) {
        const {tableForm} = await import("/pages/table_form.js");
        fill(panel, await tableForm(file, upload, () => fill(panel)));
      } else
        await upload(file);
    } catch (error) {
      refuse(error.message);
    }
    chosen.value = "";
  }

  /** `name` of the batch; that of the file, or of the table from which it was made. */
  async function upload(file, name = file.name) {
    const {url, trouble} = await beginningOf(file);
    if (trouble) return refuse(trouble);
    const bar = element("progress", {max: file.size, value: 0, "aria-label": "Upload"});
    const told = element("p", {}, `${file.name}, ${bytes(file.size)}`);
    fill(panel, told, bar);
    chosen.disabled = true;
    try {
      const id = await send(file, sent => bar.value = sent);
      say(`${file.name} is on the server`);
      offer(name, id, url);
    } catch (error) {
      // a file that the server does not take is not taken when it is sent again
      const mayGoOn = error instanceof Refused && PASSING.has(error.status);
      fill(panel, told, element("p", {class: "trouble", role: "alert"}, error.message),
        mayGoOn
          && element("button", {type: "button", onclick: () => upload(file, name)},
            "Go on with the upload"));
    }
    chosen.disabled = false;
  }

  function offer(fileName, id, endpoint) {
    const trouble = element("p", {class: "trouble", role: "alert"}),
          begin = element("button", {type: "submit"}, "Start the batch");
    const name = element("input", {id: "batch-name", value: fileName, maxlength: 512});
    const priority = element("input", {id: "batch-priority", type: "number", value: 0, step: 1});
    const window = element("input", {
      id: "batch-window",
      value: "24h",
      required: true,
      pattern: "[1-9][0-9]*[mhd]",
      readonly: true,
      title: "Minutes, hours or days: 90m, 24h, 7d"
    });
    const windowLabel = element("label", {for: window.id
    }, "Has to end within (this server takes 24h alone)");
    get("/version").then(({extended_windows: isFree}) => {
      window.readOnly = !isFree;
      if (isFree) fill(windowLabel, "Has to end within (1m to 30d, such as 90m, 24h, 7d)");
    }, () => {}); // the server says what it takes when the batch is started
    const metadata = element("textarea", {id: "batch-metadata", rows: 2, spellcheck: "false"});
    const pauses = element("input", {id: "batch-pauses", type: "checkbox"});
    // a lost answer makes no second batch
    const again = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const field = (text, input) => [element("label", {for: input.id
    }, text), input];
    const form = element("form", {class: "start", onsubmit: start}, field("Name", name),
      windowLabel, window, field("Priority (a higher one runs first)", priority),
      field("Metadata (name = value, one per line)", metadata),
      element("span", {class: "box"}, pauses,
        element("label",
          {for: "batch-pauses"
          },
          "Pause the batch when its answers look wrong")),
      element("div", {class: "buttons"}, begin,
        element("button", {type: "button", onclick: () => fill(panel)}, "Not now")),
      trouble);
    const looked = found => begin.disabled = found.refused > 0 || Boolean(found.file_fault);
    fill(panel, element("h2", {}, fileName), lookAt(id, endpoint, looked), form);

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
  }

  return zone;
}
