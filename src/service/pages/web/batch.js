// SPDX-License-Identifier: Apache-2.0
// batch: one batch: how far it is, what an owner can do with it, and its results.

import {showAnswers} from "/pages/answers.js";
import {act, batch as ask, content, file as askFile} from "/pages/api.js";
import {element, fill, pressed, say, setText, terms} from "/pages/dom.js";
import {deleted, isOver, nameOf, progressText, state} from "/pages/batches.js";
import {bytes, compact, costText, count, moment, share} from "/pages/figures.js";
import {qualityOf} from "/pages/quality.js";
import {saveAnswer} from "/pages/save.js";
import {showStudio} from "/pages/studio.js";

const DONE = {
  pause: "The batch is paused",
  resume: "The batch goes on",
  cancel: "The batch is being cancelled",
  retry: "The failed lines run again"
};

function actionsOf(batch) {
  const isCutOff = batch.status === "cancelled" || batch.status === "expired";
  const last = ["delete", "Delete"];
  if (isOver(batch))
    return batch.request_counts.failed > 0 || isCutOff
      ? [["retry", "Run the failed lines again"], last]
      : [last];
  if (batch.status === "cancelling" || batch.status === "finalizing") return [];
  return [batch.quern?.paused ? ["resume", "Resume"] : ["pause", "Pause"], ["cancel", "Cancel"]];
}

function facts(batch) {
  const usage = batch.usage, cost = costText(batch.quern?.costs), pairs = [
    ["Id", batch.id], ["Model", batch.model ?? ""], ["Route", batch.endpoint],
    ["Created", moment(batch.created_at)]
  ];
  if (!isOver(batch) && batch.expires_at)
    pairs.push(["Ends at the latest", moment(batch.expires_at)]);
  if (usage)
    pairs.push(
      [
        "Tokens in",
        `${count(usage.input_tokens)}, ${
          share(usage.input_tokens_details.cached_tokens, usage.input_tokens)
          || "0 %"} of them from the prefix cache`
      ],
      ["Tokens out", count(usage.output_tokens)]);
  if (cost) pairs.push(["Cost", cost]);
  if (batch.priority) pairs.push(["Priority", count(batch.priority)]);
  for (const [name, value] of Object.entries(batch.metadata ?? {}))
    if (name !== "name") pairs.push([name, value]);
  return pairs;
}

export function showBatch(main, id, query) {
  const title = element("h1", {}, id), word = element("span", {class: "state"}),
        bar = element("progress", {max: 1, "aria-label": "Progress"});
  const counts = element("p", {class: "counts"}), list = element("dl"),
        buttons = element("div", {class: "buttons"}), errors = element("div"),
        quality = element("div");
  const table = showAnswers(id, query), studio = showStudio(id);
  const samples = [];
  let shownActions = "", shownQuality = "";
  fill(main, element("p", {}, element("a", {href: "#/"}, "All batches")), title, word, bar, counts,
    buttons, errors, list, table.element, quality, studio.element);

  const run = (action, button) => pressed(button, async () => {
    if (action === "delete") {
      if (await deleted({id}, title.textContent)) location.assign("#/");
      return;
    }
    const answer = await act(id, action);
    say(DONE[action]);
    if (action === "retry") location.assign(`#/batch/${answer.id}`);
    await refresh();
  });

  const download = (fileId, button) => pressed(button, async () => {
    const file = await askFile(fileId);
    say(`Saving ${file.filename}, ${bytes(file.bytes)}`);
    await saveAnswer(await content(fileId), file.filename);
  });

  /** Buttons are made again only where they change: a focus on one of them stays. */
  function showButtons(batch) {
    const actions = actionsOf(batch),
          files = [["Results", batch.output_file_id], ["Errors", batch.error_file_id]].filter(
            ([, fileId]) => fileId);
    const now = JSON.stringify([actions, files]);
    if (now === shownActions) return;
    shownActions = now;
    fill(buttons,
      actions.map(([action, text]) => element("button",
                    {type: "button", onclick: event => run(action, event.currentTarget)}, text)),
      files.map(([text, fileId]) => element("button",
                  {type: "button", onclick: event => download(fileId, event.currentTarget)},
                  `Download ${text.toLowerCase()}`)));
  }

  async function refresh() {
    const batch = await ask(id), {total, completed, failed} = batch.request_counts,
          [text, kind] = state(batch);
    setText(title, await nameOf(batch));
    setText(word, text);
    word.dataset.kind = kind;
    bar.max = total || 1;
    bar.value = completed + failed;
    setText(counts,
      [
        `${count(completed + failed)} of ${count(total)} requests`,
        failed ? `${count(failed)} failed` : "", progressText(batch, samples),
        batch.usage ? `${compact(batch.usage.output_tokens)} tokens written` : ""
      ].filter(part => part)
        .join(", "));
    showButtons(batch);
    fill(errors,
      (batch.errors?.data ?? [])
        .slice(0, 20)
        .map(error => element("p", {class: "trouble"},
               `${error.line ? `Line ${count(error.line)}: ` : ""}${error.message}`)));
    fill(list, terms(facts(batch)));
    showQuality(batch);
    await studio.refresh(completed);
    await table.refresh(completed + failed);
  }

  function showQuality(batch) {
    const now = JSON.stringify(batch.quern ?? null);
    if (now !== shownQuality) fill(quality, qualityOf(batch));
    shownQuality = now;
  }

  return {refresh, close: table.close, move: table.move};
}
