// SPDX-License-Identifier: Apache-2.0
// audit: who made, changed or ended what, newest first; for admins. The address has the page.

import {audit as ask} from "/pages/api.js";
import {element, fill, setText} from "/pages/dom.js";
import {moment} from "/pages/figures.js";
import {liveTable} from "/pages/live_table.js";

const PAGE = 100;
const TITLES = ["Time", "What", "About", "Key", "Owner", "From", "Outcome"];

const addressOf = before => before ? `#/audit?before=${before}` : "#/audit";

const rowOf = entry => ({
  key: String(entry.seq),
  cells: [
    moment(entry.created_at), entry.action ?? "", entry.subject ?? "", entry.actor ?? "",
    entry.owner || "default", entry.peer ?? "",
    {
      text: [entry.outcome ?? "done", entry.detail].filter(text => text).join(": "),
      kind: entry.outcome === "failed" ? "bad" : ""
    }
  ]
});

export function showAudit(main, _, query) {
  let before = Number(query.get("before")) || null;
  const table = liveTable("Audit trail", TITLES.map(title => ({title})), "No entry here.");
  const older = element("a", {class: "button", hidden: true}, "Older entries"),
        newest = element("a", {class: "button", href: addressOf(null)}, "The newest entries"),
        trouble = element("p", {class: "trouble", role: "alert"});
  fill(main, element("h1", {}, "Audit trail"),
    element("p", {class: "note"},
      "Keys made and revoked, models loaded, batches deleted: who did it, and from where."),
    trouble, table.element,
    element("nav", {class: "buttons", "aria-label": "Pages of the trail"}, newest, older));

  async function refresh() {
    const page = await ask({before, limit: PAGE});
    table.show(page.data.map(rowOf));
    newest.hidden = before === null;
    older.hidden = !page.has_more;
    if (page.has_more) older.href = addressOf(page.data.at(-1).seq);
  }

  async function move(parameters) {
    before = Number(parameters.get("before")) || null;
    setText(trouble, "");
    try {
      await refresh();
    } catch (error) {
      setText(trouble, error.message);
    }
  }

  return {refresh, move};
}
