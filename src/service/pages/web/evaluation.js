// SPDX-License-Identifier: Apache-2.0
// evaluation: the report of `quern evaluate` out of the files of its folder, which the reader
// chooses. The tab reads them; nothing is sent to the server.

import {answerOf} from "/pages/answer.js";
import {differencesDialog} from "/pages/differences.js";
import {element, fill, say} from "/pages/dom.js";
import {cascadeLines, topLines} from "/pages/evaluation_lines.js";
import {
  cascadePart,
  choicePart,
  jobsPart,
  modelsPart,
  pairPart,
  topPart,
  tuningPart
} from "/pages/evaluation_tables.js";
import {bytes, counted} from "/pages/figures.js";

const REPORT = "evaluation.json";
const FILE_BYTES_MAX = 256 << 20; // more is not read in a tab

/** The file's name without its folder; results of a model are NAME.jsonl. */
const nameIn = path => path.split("/").at(-1);

async function textOf(file) {
  if (file.size > FILE_BYTES_MAX)
    throw new Error(`${file.name} has ${bytes(file.size)}, more than a tab reads.`);
  return file.text();
}

async function linesOf(file) {
  if (!file) return null;
  const lines = (await textOf(file)).split("\n").filter(line => line.trim() !== "");
  return lines.map((line, place) => {
    try {
      return JSON.parse(line);
    } catch {
      throw new Error(`${file.name}, line ${place + 1}: it is not JSON.`);
    }
  });
}

async function reportOf(file) {
  let report = null;
  try {
    report = JSON.parse(await textOf(file));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (!Array.isArray(report?.models) || !report.models[0] || !report.choice)
    throw new Error(`${file.name} is no report of quern evaluate.`);
  return report;
}

const byId = lines => lines && new Map(lines.map(line => [line.custom_id, line]));

/** What a result says, for a table of differences. */
function told(result) {
  const answer = answerOf(result);
  return answer.object ?? answer.text;
}

const askedBy = request => request?.body?.messages?.map(
    ({role, content}) => `${role}: ${typeof content === "string" ? content : JSON.stringify(content)}`)
  .join("\n")
  ?? (request ? JSON.stringify(request.body) : "");

export function showEvaluation(main) {
  const shown = element("div"), trouble = element("p", {class: "trouble", role: "alert"}),
        dialog = differencesDialog();
  let results = new Map(), requests = null; // by name of a model, then by custom_id

  const choose = element("input", {
    id: "evaluation-files",
    type: "file",
    class: "file",
    multiple: true,
    onchange: () => take([...choose.files])
  });
  const zone = element("section", {class: "drop", "aria-label": "Files", ...dropEvents()},
    element("p", {},
      element("label", {for: "evaluation-files", class: "button"}, "Choose the files"), choose,
      " of a folder that ", element("code", {}, "quern evaluate"),
      " has left (FILE.evaluation), or drop them here: evaluation.json, and to read lines *.lines, " +
        "*.jsonl and judged.results as well."),
    element("p", {class: "quiet"}, "This tab reads them. Nothing is sent to the server."));
  fill(main, element("h1", {}, "Evaluation"), zone, trouble, shown, dialog.element);

  function dropEvents() {
    const over = event => {
      event.preventDefault();
      zone.dataset.over = "";
    };
    return {
      ondragover: over,
      ondragleave: () => delete zone.dataset.over,
      ondrop: event => {
        event.preventDefault();
        delete zone.dataset.over;
        take([...event.dataTransfer.files]);
      }
    };
  }

  /** All answers to a line of the models whose results were chosen. */
  const sidesOf = id => [...results].filter(([, lines]) => lines.has(id))
    .map(([name, lines]) => ({name, answer: told(lines.get(id))}));

  const openLine = line => dialog.show(
    line.custom_id, sidesOf(line.custom_id), askedBy(requests?.get(line.custom_id)));

  const openPair = (pair, row) => dialog.show(row.custom_id,
    [{name: pair.a, answer: row.a}, {name: pair.b, answer: row.b}],
    askedBy(requests?.get(row.custom_id)));

  async function read(files) {
    const named = new Map(files.map(file => [nameIn(file.name), file]));
    if (!named.has(REPORT))
      throw new Error(`${REPORT} is not among ${counted(files.length, "file", "files")}.`);
    const report = await reportOf(named.get(REPORT));
    const inFolder = path => path && linesOf(named.get(nameIn(path)));
    requests = byId(await linesOf(named.get("requests.jsonl")));
    results = new Map();
    for (const model of report.models) {
      const lines = byId(await inFolder(model.results));
      if (lines) results.set(model.name, lines);
    }
    const judged = byId(await inFolder(report.judged?.results));
    if (judged) results.set(report.reference, judged);
    const ways = await inFolder(report.cascade?.lines), fates = [];
    for (const {name, top_k: top} of report.models) {
      const lines = await inFolder(top?.lines);
      if (lines) fates.push(topLines(name, lines, openLine));
    }
    fill(shown,
      element("div", {class: "evaluation"},
        element("p", {},
          `${report.input}, ${counted(report.requests, "request", "requests")}` +
            (report.reference ? `, reference ${report.reference}` : "")),
        choicePart(report), modelsPart(report),
        cascadePart(report, ways && cascadeLines(report.cascade, ways, openLine)),
        topPart(report, fates), jobsPart(report), tuningPart(report),
        report.agreement.map(pair => pairPart(pair, openPair))));
  }

  async function take(files) {
    fill(trouble);
    try {
      await read(files);
      say("The evaluation is shown");
    } catch (error) {
      fill(shown);
      fill(trouble, error.message);
    }
  }

  return {
    async refresh() {}
  };
}
