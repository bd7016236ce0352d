// SPDX-License-Identifier: Apache-2.0
// studio: a batch's way to Label Studio and back: buttons, progress, project, conflicts. If the
// server has no Label Studio: the command that does it.

import {startStudio, studio as ask} from "/pages/api.js";
import {element, fill, folded, pressed, say, setText} from "/pages/dom.js";
import {count, counted, moment} from "/pages/figures.js";

const ACTIONS =
  [["push", "Send the answers"], ["pull", "Fetch annotations"], ["sync", "Send and fetch all"]];
const BEGUN = {
  push: "The answers are on their way to Label Studio",
  pull: "Annotations are being fetched",
  sync: "The batch is on its way to Label Studio and back"
};
const ENDED = {
  done: "Label Studio and this batch are up to date",
  failed: "The work with Label Studio has failed",
  interrupted: "The work with Label Studio was interrupted"
};
const WORDS = {
  running: ["at work", "live"],
  done: ["done", "good"],
  failed: ["failed", "bad"],
  interrupted: ["interrupted: press again to go on", "warn"]
};


function told(state, answers) {
  const parts = [];
  if (state.tasks > 0 || state.action !== "pull")
    parts.push(`${count(state.tasks)} of ${counted(answers, "answer", "answers")} in Label Studio`);
  if (state.action !== "push") {
    if (state.status === "running")
      parts.push(`${counted(state.fetched, "annotation", "annotations")} fetched`);
    else parts.push(`${counted(state.judgements, "new judgement", "new judgements")} fetched`);
    if (state.sent > 0)
      parts.push(`${counted(state.sent, "judgement", "judgements")} of quern sent`);
    if (state.refused > 0)
      parts.push(`${counted(state.refused, "annotation", "annotations")} not taken`);
  }
  return parts.join(", ");
}

/** The sentences of conflicts; the server keeps the first 50. */
function conflictsOf(state) {
  const texts = state.conflict_texts, more = state.conflicts - texts.length;
  return folded(`${counted(state.conflicts, "conflict", "conflicts")}: both opinions are kept`,
    () => [element("ul", {}, texts.map(text => element("li", {}, text))),
      more > 0 && element("p", {class: "quiet"}, `and ${count(more)} more`)]);
}

const command = id =>
  `quern label-studio sync ${id} --base-url ${location.origin}/v1 --label-studio-url URL`;

export function showStudio(id) {
  const word = element("span", {class: "state"}), counts = element("p", {class: "counts"}),
        bar = element("progress", {max: 1, "aria-label": "Answers in Label Studio"});
  const project = element("p"), trouble = element("p", {class: "trouble"}),
        note = element("p", {class: "quiet"}), conflicts = element("div");
  const buttons = ACTIONS.map(
    ([action, text]) => element("button",
      {type: "button", "data-action": action, onclick: event => press(action, event.currentTarget)},
      text));
  const body = element("div"),
        section = element("section",
          {class: "studio", "aria-labelledby": "studio-title", hidden: true},
          element("h2", {id: "studio-title"}, "Label Studio"), body);
  let state = null, shownConflicts = -1, answers = 0;

  async function press(action, button) {
    if (state.status === "running") return say("The batch is on its way already");
    await pressed(button, async () => {
      show(await startStudio(id, action));
      say(BEGUN[action]);
    });
    button.focus();
  }

  function layOut() {
    if (state.url)
      fill(body, word, counts, bar, project, trouble, note,
        element("div", {class: "buttons"}, buttons), conflicts);
    else
      fill(body,
        element("p", {class: "quiet"}, "This server has no Label Studio (",
          element("code", {}, "--label-studio-url"),
          "). A command brings the answers there and annotations back:"),
        element("pre", {class: "command", tabindex: "0"}, command(id)));
    section.hidden = false;
  }

  function showLink() {
    const url = state.project_url, isWeb = /^https?:\/\//.test(url ?? ""),
          text = `Project ${state.project} in Label Studio`;
    if (project.dataset.url === String(url)) return;
    project.dataset.url = String(url);
    fill(project,
      url
        && (isWeb ? element("a", {href: url, target: "_blank", rel: "noopener noreferrer"}, text)
                  : text));
  }

  function showConflicts() {
    if (state.conflicts === shownConflicts) return;
    shownConflicts = state.conflicts;
    fill(conflicts, state.conflicts > 0 && conflictsOf(state));
  }

  function show(now) {
    const before = state?.status;
    state = now;
    if (!before) layOut();
    if (!state.url) return;
    const [text, kind] = WORDS[state.status] ?? ["not there yet", ""],
                 isRunning = state.status === "running";
    setText(word, text);
    word.dataset.kind = kind;
    setText(counts, state.status === "none" ? "" : [
      told(state, answers), state.ended_at && !isRunning ? moment(state.ended_at) : ""
    ].filter(part => part).join(", "));
    bar.hidden = !isRunning;
    bar.max = answers || 1;
    bar.value = state.tasks;
    setText(trouble, state.error ?? "");
    setText(
      note, isRunning || state.status === "failed" || state.refused > 0 ? state.said ?? "" : "");
    showLink();
    showConflicts();
    for (const button of buttons) {
      button.hidden = button.dataset.action !== "push" && state.project === null && !isRunning;
      button.setAttribute("aria-disabled", String(isRunning));
    }
    if (before === "running" && !isRunning) say(state.error ?? ENDED[state.status]);
  }

  /** Asks the server at first, and as long as a job runs. */
  async function refresh(completed) {
    answers = completed;
    if (completed === 0 || (state && state.status !== "running")) return;
    show(await ask(id));
  }

  return {element: section, refresh};
}
