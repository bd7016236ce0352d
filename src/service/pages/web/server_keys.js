// SPDX-License-Identifier: Apache-2.0
// server_keys: the keys of the server, for admins: what each may do and has used, a new one, the
// end of one.

import {createKey, keepKey, key as ownKey, keys as ask, revokeKey} from "/pages/api.js";
import {confirmed} from "/pages/confirm.js";
import {element, fill, say, shownIfAllowed} from "/pages/dom.js";
import {bytes, count, moment} from "/pages/figures.js";
import {liveTable} from "/pages/live_table.js";

const REFRESH_MS = 10000; // keys change seldom
const SCOPES = [
  ["files", "files"], ["batches", "batches"], ["infer", "single requests"],
  ["metrics", "metrics and the machine"], ["admin", "everything, and keys"]
];
const SCOPES_USUAL = new Set(["files", "batches", "infer"]);
const LIFETIMES = [
  ["", "never"], ["1d", "after a day"], ["30d", "after 30 days"], ["90d", "after 90 days"],
  ["365d", "after a year"]
];
const LIMITS = [
  ["requests_per_minute", "Requests per minute"], ["queued_tokens_max", "Tokens in open batches"],
  ["batches_max", "Open batches"], ["stored_bytes_max", "Stored bytes"]
];
const KINDS = {good: "good", expired: "warn", revoked: ""};

/**
 * "12 of 600 requests left in this minute, 1 of 2 batches": the limits that a key has, with their
 * use.
 */
function quotas({limits, use}) {
  const used = (name, show) => use[name] === null ? `at most ${show(limits[name])}`
                                                  : `${show(use[name])} of ${show(limits[name])}`;
  const parts = [];
  if (limits.requests_per_minute !== null)
    parts.push(use.requests_left === null
        ? `${count(limits.requests_per_minute)} requests per minute`
        : `${count(use.requests_left)} of ${count(limits.requests_per_minute)} requests left now`);
  if (limits.batches !== null) parts.push(`${used("batches", count)} open batches`);
  if (limits.queued_tokens !== null) parts.push(`${used("queued_tokens", count)} tokens in them`);
  if (limits.stored_bytes !== null) parts.push(`${used("stored_bytes", bytes)} stored`);
  return parts.join(", ") || "no limit";
}

const isOwn = row => ownKey().slice(3, 11) === row.id;

const times = row => [`made ${moment(row.created_at)}`,
  row.revoked_at ? `revoked ${moment(row.revoked_at)}`
    : row.expires_at ? `ends ${moment(row.expires_at)}`
                     : ""]
                       .filter(text => text)
                       .join(", ");

/** The new key whose text is still shown, {row, isFirst}: until the reader hides it, whatever page
 * is opened in between. */
let unhidden = null;
document.getElementById("sign-out").addEventListener("click", () => { unhidden = null; });

function makeForm(done) {
  const field = (name, text, attributes, make = "input") => {
    const made = element(make, {id: `key-${name}`, ...attributes});
    return [element("label", {for: `key-${name}`}, text), made];
  };
  const
    name = field("name", "Name", {required: true, maxlength: 127, autocomplete: "off"}),
    owner = field("owner", "Owner",
      {maxlength: 63, autocomplete: "off", placeholder: "default", pattern: "[A-Za-z0-9._\\-]+"});
  const lifetime = [
    element("label",
      {for: "key-expires"
      },
      "Ends"),
    element("select", {id: "key-expires"},
      LIFETIMES.map(([value, text]) => element("option", {value}, text)))
  ];
  const boxes = SCOPES.map(
    ([scope, text]) => element("label", {class: "box"},
      element(
        "input", {type: "checkbox", name: "scope", value: scope, checked: SCOPES_USUAL.has(scope)}),
      text));
  const limits = LIMITS.map(([limit, text]) => field(limit, text, {
    type: "number",
    min: 0,
    max: 1e15,
    step: 1,
    placeholder: limit === "batches_max" ? "1000" : "no limit"
  }));
  const trouble = element("p", {class: "trouble", role: "alert"}),
        button = element("button", {type: "submit"}, "Make the key");
  const form = element("form", {class: "start key-wish", onsubmit: submit}, name, owner,
    element("fieldset", {}, element("legend", {}, "May use"), boxes), lifetime,
    element(
      "details", {}, element("summary", {}, "Limits"), element("div", {class: "limits"}, limits)),
    button, trouble);

  function wish() {
    const body = {
      name: name[1].value.trim(),
      scopes: [...form.querySelectorAll("[name=scope]:checked")].map(box => box.value)
    };
    if (owner[1].value) body.owner = owner[1].value;
    if (lifetime[1].value) body.expires = lifetime[1].value;
    LIMITS.forEach(([limit], at) => {
      if (limits[at][1].value) body[limit] = Number(limits[at][1].value);
    });
    return body;
  }

  async function submit(event) {
    event.preventDefault();
    fill(trouble);
    button.disabled = true;
    try {
      done(await createKey(wish()));
      form.reset();
      first(false);
    } catch (error) {
      fill(trouble, error.message);
    }
    button.disabled = false;
  }

  /** A server's first key may do everything, or no key could make the next one. */
  function first(isFirst) {
    const all = form.querySelector("[value=admin]");
    if (all.disabled === isFirst) return;
    all.checked = all.disabled = isFirst;
  }

  return {form, first};
}

export function showKeys() {
  const table = liveTable("Keys",
    ["Name", "Owner", "State", "May use", "Limits and use", "Time", "Action"].map(
      title => ({title})),
    "No key was made yet.");
  const warning = element("p", {class: "warning", hidden: true},
    "This server asks for no key yet. The first key locks out everybody who has none: programs, other tabs and other people. It may do everything, because only such a key can make the next one.");
  const fresh = element("div", {class: "fresh", hidden: true, role: "status"});
  const {form, first} = makeForm(make);
  const maker = element("details", {}, element("summary", {}, "New key"), form);
  const parts = shownIfAllowed(table.element, warning, maker);
  const made = element("section", {"aria-labelledby": "keys-title"},
    element("h2", {id: "keys-title"}, "Keys"), fresh, parts.element);
  let dueMs = 0, asks = true;
  if (unhidden) showText();

  function make(row) {
    unhidden = {row, isFirst: !asks};
    if (!asks) {
      keepKey(row.key);
      document.getElementById("sign-out").hidden = false;
    }
    showText().focus();
    maker.open = false;
    dueMs = 0;
  }

  /**
   * The text of a new key is in this element alone, and until the reader hides it: no refresh, no
   * refusal and no other page does.
   */
  function showText() {
    const {row, isFirst} = unhidden,
          text = element("code", {class: "key-text", tabindex: 0}, row.key);
    fill(fresh,
      element("p", {},
        `The key of ${row.name} is shown only now. Copy it.${
          isFirst ? " This tab uses it from here on." : ""}`),
      text,
      element("div", {class: "buttons"},
        element("button", {
          type: "button",
          onclick: () => navigator.clipboard.writeText(row.key).then(
            () => say("The key is copied"), () => say("The browser does not copy: select the text"))
        },
          "Copy"),
        element("button", {type: "button", onclick: hide}, "Hide it")));
    fresh.hidden = false;
    return text;
  }

  function hide() {
    unhidden = null;
    fill(fresh);
    fresh.hidden = true;
    maker.querySelector("summary").focus();
  }

  async function revoke(row) {
    if (!await confirmed("Revoke a key", `Revoke the key ${row.name} (${row.id}) of ${
          row.owner}? Programs that use it are refused at once.${
          isOwn(row) ? " This tab uses this key." : ""}`, "Revoke it"))
      return;
    try {
      await revokeKey(row.id);
      say(`The key ${row.name} is revoked`);
      dueMs = 0;
      await refresh();
    } catch (error) {
      say(error.message);
    }
  }

  function keyRow(row) {
    const button = {text: "Revoke", label: `Revoke ${row.name}`, onclick: () => revoke(row)};
    return {
      key: row.id,
      cells: [
        isOwn(row) ? `${row.name} (this tab)` : row.name, row.owner,
        {text: row.state, kind: KINDS[row.state] ?? ""}, row.scopes.join(", "), quotas(row),
        times(row), {buttons: row.state === "revoked" ? [] : [button]}
      ]
    };
  }

  async function refresh() {
    if (Date.now() < dueMs) return;
    await parts.refresh(async () => {
      const list = await ask();
      asks = list.asks;
      table.show(list.data
                   .toSorted((a, b) => (a.state === "revoked") - (b.state === "revoked")
                       || b.created_at - a.created_at)
                   .map(keyRow));
      warning.hidden = asks;
      first(!asks);
    });
    dueMs = Date.now() + REFRESH_MS;
  }

  return {element: made, refresh};
}
