// SPDX-License-Identifier: Apache-2.0
// evaluation_tables: the figures of an evaluation as tables: models, whole jobs, a cascade, the
// best K, settings, agreement.

import {element} from "/pages/dom.js";
import {count, counted, duration, figure, percent} from "/pages/figures.js";

const isKnown = value => typeof value === "number" && Number.isFinite(value);
const number = (value, show = figure) => ({number: isKnown(value) ? show(value) : "–"});
const COSTS = [
  ["watt_hours", "Wh"], ["electricity", "of electricity"], ["rented_gpu", "on a rented machine"],
  ["managed_api", "at a managed API"]
];

/** Cells are texts, {number: text} or {sentence: text}; the first one is the row's head. */
function cell(value, place) {
  if (value?.number !== undefined) return element("td", {class: "number"}, value.number);
  if (place === 0) return element("th", {scope: "row"}, value);
  return element("td", {class: value?.sentence !== undefined && "sentence"},
    value?.sentence ?? value);
}

/** A table of rows of cells below their heads; numbers have their heads at the right, too. */
export const table = (heads, rows) => element("div", {class: "scroll"},
  element("table", {},
    element("thead", {},
      element("tr", {}, heads.map((head, place) => element("th",
        {scope: "col", class: rows[0]?.[place]?.number !== undefined && "number"}, head)))),
    element("tbody", {}, rows.map(row => element("tr", {}, row.map(cell))))));

const section = (title, ...children) => element("section", {}, element("h2", {}, title), children);

const costsOf = known => COSTS.filter(([name]) => isKnown(known?.[name]))
  .map(([name, text]) => `${figure(known[name])} ${text}`);
const timeAndCost = (seconds, known) => ({
  number: [isKnown(seconds) ? duration(seconds) : "–", ...costsOf(known)].join("; ")
});

export const choicePart = ({choice}) => section("Choice",
  element("p", {}, element("strong", {}, choice.model ?? "None")),
  element("ul", {}, choice.reasons.map(reason => element("li", {}, reason))));

export const modelsPart = ({models}) => section("Models",
  table(
    ["Model", "Answered", "Failed", "Valid", "Truncated", "Empty", "Requests/s", "Output tokens/s",
      "Tokens, median", "95 %", "Window, 95 %"],
    models.map(model => [
      model.name, number(model.answered, count), number(model.failed, count),
      number(model.valid_share, percent), number(model.truncated, count),
      number(model.empty, count), number(model.req_s), number(model.output_tokens_s),
      number(model.tokens_per_request.p50, count), number(model.tokens_per_request.p95, count),
      number(model.context.p95_share, percent)
    ])));

export const jobsPart = ({models}) => section("Time and cost of a whole job",
  table(["Model", ...models[0].jobs.map(job => `${count(job.requests)} requests`)],
    models.map(({name, jobs}) => [name, ...jobs.map(job => timeAndCost(job.seconds, job))])));

export const cascadePart = ({cascade}, ...lines) => cascade && section("Cascade",
  element("p", {}, `An answer stands from a confidence of ${figure(cascade.until)} on.`),
  table(
    ["Model", "Requests", "Answers that stand", "Share", "Confidence unknown", "Tokens in",
      "Tokens out", "Time and cost"],
    cascade.models.map(model => [
      model.name, number(model.requests, count), number(model.answers, count),
      number(model.share, percent), number(model.confidence_unknown, count),
      number(model.prompt_tokens, count), number(model.completion_tokens, count),
      timeAndCost(model.seconds, model)
    ])),
  lines);

export function topPart({models}, ...lines) {
  const first = models[0].top_k;
  return first && section(`The best ${count(first.k)} by ${first.by}`,
    table(
      ["Model", "Requests", "Whole", "Short only", "Left out", "Rounds", "Tokens", "Computed"],
      models.map(({name, top_k: top}) => [
        name, number(top.requests, count), number(top.whole, count), number(top.short_only, count),
        number(top.left_out, count), number(top.rounds, count), number(top.computed_tokens, count),
        number(top.computed_share, percent)
      ])),
    lines);
}

const VERDICTS = {
  faster: "faster",
  slower: "slower",
  noise: "within the noise",
  few_rounds: "too few rounds"
};

function settingRow(setting, place) {
  if (!setting.ratio)
    return [setting.options, number(null), number(null), number(null), number(null),
      {sentence: `Not measured: ${setting.why_not}`}];
  const {low, mean, high} = setting.ratio, saving = setting.saving?.[place];
  const saved = isKnown(saving?.seconds)
    ? `${saving.seconds < 0 ? "costs " : ""}${duration(Math.abs(saving.seconds))}`
    : "–";
  return [
    setting.options, number(setting.requests_per_second),
    {number: `${figure(mean)} (${figure(low)} to ${figure(high)}), ${VERDICTS[setting.verdict]}`},
    number(setting.equal_share, percent), {number: [saved, ...costsOf(saving)].join("; ")},
    {sentence: setting.effort.text}
  ];
}

export function tuningPart({tuning, models}) {
  if (!tuning) return null;
  const place = models[0].jobs.length - 2;
  return section(`Settings of ${tuning.model}`,
    element("p", {}, `One option changed at a time, over ${
      counted(tuning.lines, "request", "requests")}. A saving is of ${
      count(models[0].jobs[place].requests)} requests.`),
    table(["Setting", "Requests/s", "Impact", "Equal answers", "Saving", "Effort"],
      tuning.settings.map(setting => settingRow(setting, place))));
}

const interval = (value, low, high) => ({
  number: isKnown(value)
    ? isKnown(low) ? `${figure(value)} (${figure(low)} to ${figure(high)})` : figure(value)
    : "–"
});

/** One pair: its fields, and the lines that differ most as buttons; `open(pair, row)` shows one. */
export const pairPart = (pair, open) => section(`${pair.a} and ${pair.b}`,
  element("p", {}, `${isKnown(pair.agreement) ? percent(pair.agreement) : "No"} equal scores and ` +
    `labels of ${counted(pair.answered_in_both, "line", "lines")} that both answer.`),
  pair.fields.length > 0 && table(
    ["Field", "Lines", "Equal", "Mean shift", "Spearman, 95 %", "Cohen's kappa, 95 %"],
    pair.fields.map(({name, rows, agreement, score, label}) => [
      name, number(rows, count), number(agreement, percent), number(score?.shift),
      interval(score?.spearman, score?.spearman_low, score?.spearman_high),
      interval(label?.kappa, label?.kappa_low, label?.kappa_high)
    ])),
  pair.differ_most.length > 0 && [
    element("h3", {}, "Lines that differ most"),
    element("div", {class: "buttons"}, pair.differ_most.map(row => element("button",
      {type: "button", onclick: () => open(pair, row)}, row.custom_id)))
  ]);
