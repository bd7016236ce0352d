// SPDX-License-Identifier: Apache-2.0
// trail: the judgements of a card one after another, judgements that met a newer one, and the files
// that are made of all.

import {judgementExport, judgements} from "/pages/api.js";
import {element, fill, pressed} from "/pages/dom.js";
import {moment} from "/pages/figures.js";
import {headOf, wordsOf} from "/pages/judgement.js";
import {openDialog} from "/pages/shortcuts.js";
import {adopt, disputed, giveUp, insist} from "/pages/outbox.js";
import {saveAnswer} from "/pages/save.js";

const EXPORTS = [
  ["jsonl", "Judgements", "judgements"], ["few_shot", "Few-shot examples", "few-shot"],
  ["calibrate", "Rows for quern calibrate", "labelled"],
  ["compare", "Results for quern compare", "judged"]
];

/** Who judged a card when, and how: the newest below. */
export async function openTrail(batch, card, answer) {
  const box = element(
    "div", {class: "scroll", tabindex: "0"}, element("p", {}, "The server is asked…"));
  openDialog(`Judgements of ${card.custom_id}`, box);
  try {
    const found = await judgements(batch, {custom_id: card.custom_id});
    fill(box,
      found.length ? element("table", {class: "trail"},
        element("thead", {}, element("tr", {}, ["When", "Who",
          "What"].map(title => element("th", {scope: "col"}, title)))),
        element("tbody", {},
          found.map(judgement => element("tr", {}, element("td", {}, moment(judgement.created_at)),
                      element("th", {scope: "row"}, judgement.curator,
                        element("span", {class: "when"}, `version ${judgement.version}`),
                        judgement.key_id && element("span", {class: "when"}, judgement.key_id)),
                      element("td", {}, wordsOf(judgement, answer))))))
                   : element("p", {}, "No judgement yet"));
  } catch (error) {
    fill(box, element("p", {class: "trouble"}, error.message));
  }
}

function disputeOf(entry) {
  const isConflict = entry.state === "conflict", {custom_id: customId, curator} = entry.record;
  return element("section", {class: "dispute", "aria-label": `Judgement of ${customId}`},
    element("h2", {},
      isConflict ? `${customId} was judged as ${curator} elsewhere, too`
                 : `The judgement of ${customId} was refused`),
    !isConflict && element("p", {class: "trouble"}, entry.sentence),
    element("div", {class: "sides"},
      element("div", {}, element("p", {class: "quiet"}, "Here"), wordsOf(entry.record)),
      entry.kept
        && element("div", {}, element("p", {class: "quiet"}, `Kept: ${headOf(entry.kept)}`),
          wordsOf(entry.kept))),
    element("div", {class: "buttons"},
      element("button", {type: "button", onclick: () => insist(entry)},
        isConflict ? "Keep mine as the newer one" : "Send it again"),
      element("button", {type: "button", onclick: () => giveUp(entry)},
        isConflict ? "Leave the kept one" : "Give it up")));
}

/** Judgements that wait for a word of the curator. `refresh` shows them where they changed. */
export function showDisputes(batch) {
  const made = element("div", {role: "alert"});
  let shown = "";
  function refresh() {
    const entries = disputed(batch),
          now = JSON.stringify(entries.map(entry => [entry.record.id, entry.state]));
    if (now === shown) return;
    shown = now;
    fill(made, entries.map(disputeOf));
  }
  refresh();
  return {element: made, refresh};
}

/** The button that sends judgements of before with the key of now. */
export const adoptButton = () => element(
  "button", {type: "button", class: "more", onclick: adopt}, "Send them with this key");

/**
 * The files of judgements; `refresh` takes the batch: labelled rows are made of decisions alone.
 */
export function showExports(batch) {
  const save = (format, name, button) => pressed(
    button, async () => saveAnswer(await judgementExport(batch, format), `${batch}-${name}.jsonl`));
  const buttons = EXPORTS.map(([format, text, name]) => element("button", {
    type: "button",
    "data-format": format,
    onclick: event => save(format, name, event.currentTarget)
  },
                                text));
  const labelled = buttons.find(button => button.dataset.format === "calibrate");
  labelled.hidden = true;
  return {
    element: element("section", {class: "exports", "aria-labelledby": "exports-title"},
      element("h2", {id: "exports-title"}, "Save the judgements"),
      element("div", {class: "buttons"}, buttons)),
    refresh: ({endpoint}) => labelled.hidden = endpoint !== "/v1/decisions"
      && endpoint !== "/v1/systemone",
  };
}
