// SPDX-License-Identifier: Apache-2.0
// app: which page the address means, and what holds for all of them: the key, one clock, one place for trouble.

import {forgetKey, key} from "/pages/api.js";
import {showBatch} from "/pages/batch.js";
import {showBatches} from "/pages/batches.js";
import {element, fill, say} from "/pages/dom.js";
import {askKey} from "/pages/key.js";

/** The pages: `pattern` of the address behind "#", `link` and `address` for the navigation, and show(main, id, query), which gives {refresh, close}.
 * A page whose pattern has a group belongs to a batch, and is offered next to the other pages of that batch. */
const PAGES = [
  {pattern: /^\/$/, link: "Batches", address: () => "/", title: () => "Batches", show: showBatches},
  {pattern: /^\/batch\/([\w-]+)$/, link: "Results", address: id => `/batch/${id}`, title: id => id, show: showBatch},
];

const main = document.getElementById("main");
const navigation = document.getElementById("pages");
const signOut = document.getElementById("sign-out");
const REFRESH_MS = 2000;
const REFRESH_MS_MAX = 30000; // while the server cannot be reached

let page = null; // {refresh, close}
let turn = 0; // of the page that is shown now
let timer = 0;
let pause = REFRESH_MS;

function open() {
  const mine = ++turn;
  clearTimeout(timer);
  page?.close?.();
  signOut.hidden = !key();
  const [path, query] = location.hash.slice(1).split(/\?(.*)/s);
  const shown = PAGES.find(({pattern}) => pattern.test(path)) ?? PAGES[0];
  const id = shown.pattern.exec(path)?.[1];
  document.title = `${shown.title(id)} – quern`;
  fill(navigation, PAGES.filter(({address}) => id || !address.length).map(({link, address, pattern}) =>
    element("a", {href: `#${address(id)}`, "aria-current": pattern === shown.pattern && "page"}, link)));
  fill(main);
  page = shown.show(main, id, new URLSearchParams(query));
  pause = REFRESH_MS;
  refresh(mine);
}

async function refresh(mine) {
  try {
    await page.refresh();
    if (mine !== turn) return;
    if (pause > REFRESH_MS) say("The server is there again");
    pause = REFRESH_MS;
  } catch (error) {
    if (mine !== turn || error.name === "AbortError") return;
    if (error.status === 401) {
      page.close?.();
      turn++;
      askKey(main, error.message, open);
      return;
    }
    if (error.status === 404) {
      fill(main, element("p", {class: "trouble"}, error.message), element("p", {}, element("a", {href: "#/"}, "All batches")));
      return;
    }
    pause = Math.min(pause * 2, REFRESH_MS_MAX);
    say(`${error.message}. The next try is in ${pause / 1000} s`);
  }
  timer = setTimeout(() => document.hidden ? wait(mine) : refresh(mine), pause);
}

/** A tab that nobody sees asks nothing. */
function wait(mine) {
  document.addEventListener("visibilitychange", () => mine === turn && refresh(mine), {once: true});
}

signOut.addEventListener("click", () => {
  forgetKey();
  open();
});
addEventListener("hashchange", () => {
  open();
  main.focus();
});
open();
