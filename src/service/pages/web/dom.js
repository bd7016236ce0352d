// SPDX-License-Identifier: Apache-2.0
// dom: elements from names, attributes and texts. Text is only ever text: nothing here makes markup
// from a string.

import {count} from "/pages/figures.js";

/**
 * element("td", {class: "count"}, "12"): attributes that are null or false are left out; functions
 * are listeners ("onclick").
 */
export const element = (name, attributes, ...children) => furnish(
  document.createElement(name), attributes, children);

/** The same for parts of a drawing. */
export const drawing = (name, attributes, ...children) => furnish(
  document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function furnish(made, attributes = {}, children = []) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (key === "value") made.value = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : visible(String(child)));
  }
}

/** Replaces all that an element holds. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/** As fill; the focus goes back to the element that has the same data-key. */
export function refill(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.key
                                                          : null;
  fill(parent, ...children);
  if (focused)
    [...parent.querySelectorAll("[data-key]")].find(node => node.dataset.key === focused)?.focus({
      preventScroll: true
    });
}

/** Sets a text only where it differs, so that a reader of the screen hears changes alone. */
export function setText(node, text) {
  const shown = visible(String(text));
  if (node.textContent !== shown) node.textContent = shown;
}

/**
 * Marks that turn the direction of text, and control characters, are shown as their names: an
 * answer cannot look like another.
 */
function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    mark => mark === "\r"
      ? ""
      : `\u27e8U+${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}

/** The entries of a dl, from [name, what stands for it]. */
export const terms = pairs => pairs.map(
  ([name, told]) => [element("dt", {}, name), element("dd", {}, told)]);

/**
 * A part of a page that the key may not be allowed to see: nothing at first, then its children, or
 * the server's own sentence of refusal.
 */
export function shownIfAllowed(...children) {
  const refused = element("p", {class: "note", hidden: true}),
        shown = element("div", {hidden: true}, children);
  return {
    element: [refused, shown],
    /**
       Runs ask(), which fetches and shows. A 403 puts the server's sentence in place of the part;
       other errors, 401 included, go to the page (app.js).
     */
    async refresh(ask) {
      let sentence = "";
      try {
        await ask();
      } catch (error) {
        if (error.status !== 403) throw error;
        sentence = error.message;
      }
      setText(refused, sentence);
      refused.hidden = !sentence;
      shown.hidden = !refused.hidden;
    },
  };
}

/** A part behind its title, made when it is first opened. */
export function folded(title, make) {
  const box = element("div");
  return element("details", {ontoggle: () => box.firstChild || fill(box, make())},
    element("summary", {}, title), box);
}

const SHOWN_CHARACTERS = 20000; // characters in one text; the rest is behind a button

/** The parts of a text of any length: a long one is cut, and a button shows the rest of it. */
export function longText(text, shown = SHOWN_CHARACTERS) {
  if (text.length <= shown) return [text];
  const rest = element("span");
  rest.append(
    element("button", {type: "button", class: "more", onclick: () => fill(rest, text.slice(shown))},
      `Show all ${count(text.length)} characters`));
  return [element("span", {}, text.slice(0, shown)), rest];
}

/**
 * Runs work() with its button disabled; trouble is told, unless the user has broken the work off.
 */
export async function pressed(button, work) {
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
  button.disabled = false;
}

const SAID_MS = 10000;
let silence = 0;

/** Tells a reader of the screen, and everyone, what has happened; the text stays for 10 s. */
export function say(text) {
  const said = document.getElementById("said");
  setText(said, text);
  clearTimeout(silence);
  silence = setTimeout(() => setText(said, ""), SAID_MS);
}
