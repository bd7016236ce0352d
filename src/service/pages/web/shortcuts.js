// SPDX-License-Identifier: Apache-2.0
// shortcuts: single keys as commands of a page. None of them works while a text is written, in a
// dialog, or together with Ctrl, Alt or Meta.

import {element} from "/pages/dom.js";

const OFF = "quern-keys-off";
const TYPED = new Set(
  ["text", "search", "number", "password", "email", "url", "tel", "date", "time", ""]);

const areKeysOn = () => sessionStorage.getItem(OFF) === null;
const switchKeys = isOn => isOn ? sessionStorage.removeItem(OFF)
                                : sessionStorage.setItem(OFF, "yes");

const isTyping = node => node.tagName === "TEXTAREA" || node.tagName === "SELECT"
  || node.isContentEditable
  || (node.tagName === "INPUT" && TYPED.has(node.getAttribute("type") ?? ""));
const isChoosing = node => node.tagName === "INPUT" && node.type === "radio";

/**
 * Calls command(key, event) for each key that is free to be a command; `escape` and `enter` (with
 * Ctrl) work while a text is written, too.
 */
export function listenKeys({command, escape, enter}) {
  function heard(event) {
    const target = event.target instanceof Element ? event.target : document.body;
    // a key that is held presses a button once
    if (event.repeat && event.key === "Enter" && target.tagName === "BUTTON")
      return event.preventDefault();
    if (event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]"))
      return;
    if (event.key === "Escape") return void (escape(target) && event.preventDefault());
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey))
      return void (enter(target) && event.preventDefault());
    if (event.ctrlKey || event.altKey || event.metaKey || isTyping(target) || !areKeysOn()) return;
    if (event.key.startsWith("Arrow") && isChoosing(target)) return;
    if (command(event.key, event)) event.preventDefault();
  }
  document.addEventListener("keydown", heard);
  return () => document.removeEventListener("keydown", heard);
}

/** A button that shows its key. */
export const keyButton = (text, shown, shortcut, onclick, more = {}) => element("button",
  {type: "button", onclick, "aria-keyshortcuts": shortcut, ...more}, element("span", {}, text), " ",
  element("kbd", {"aria-hidden": "true"}, shown));

const HELP = [
  ["Accept the answer", "a"], ["Correct fields", "c"], ["Skip the card", "s"],
  ["Flag it, or no longer", "f"],
  ["Rate it; the same number again takes the rating away", "1 to 5"], ["Write a comment", "m"],
  ["Take the other run's values", "o"], ["The card before, to judge it again", "b or ←"],
  ["The next card, without a judgement", "n or →"], ["Judgements of this card so far", "t"],
  ["This help", "?"]
];
const CORRECTING = [
  ["A field", "Tab, or 1 to 9"], ["Another option", "← →"], ["Keep the correction", "Ctrl Enter"],
  ["Out of a text, then out of the correction", "Esc"]
];

const tableOf = (title, rows) => element("table", {class: "keys"}, element("caption", {}, title),
  element("tbody", {},
    rows.map(([does, key]) => element("tr", {}, element("th", {scope: "row"}, does),
               element("td", {}, element("kbd", {}, key))))));

/** A dialog over the page; it goes with Escape. */
export function openDialog(title, ...children) {
  const dialog = element("dialog",
    {class: "plain", "aria-labelledby": "dialog-title", onclose: () => dialog.remove()},
    element("h2", {id: "dialog-title"}, title), children,
    element("div", {class: "buttons"},
      element("button", {type: "button", onclick: () => dialog.close()}, "Close")));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export function openHelp() {
  const box = element("input", {
    id: "keys-on",
    type: "checkbox",
    checked: areKeysOn(),
    onchange: () => switchKeys(box.checked)
  });
  openDialog("Keys", tableOf("On a card", HELP), tableOf("In a correction", CORRECTING),
    element("p", {}, box, element("label", {for: "keys-on"}, " Single keys are commands")));
}
