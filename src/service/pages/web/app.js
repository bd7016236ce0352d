// SPDX-License-Identifier: Apache-2.0
// app: which page the address means, and the parts that all pages share: the key, one clock, one
// place for trouble.

import {forgetKey, key} from "/pages/api.js";
import {showBatches} from "/pages/batches.js";
import {element, fill, say} from "/pages/dom.js";
import {askKey} from "/pages/key.js";

/**
 * The pages: `pattern` of the address behind "#", `link` and `address` for the navigation, and
 * show(main, id, query), which gives {refresh, close, move}. refresh() asks for news; move(query)
 * shows the same page with what now stands behind "?" in the address; close and move may be absent.
 * A page whose pattern has a group belongs to a batch, and is offered next to the other pages of
 * that batch.
 */
const PAGES = [
  {pattern: /^\/$/, link: "Batches", address: () => "/", title: () => "Batches", show: showBatches},
  {
    pattern: /^\/batch\/([\w-]+)$/,
    link: "Results",
    address: id => `/batch/${id}`,
    title: id => id,
    show: later(async () => (await import("/pages/batch.js")).showBatch)
  },
  {
    pattern: /^\/batch\/([\w-]+)\/curate$/,
    link: "Curation",
    address: id => `/batch/${id}/curate`,
    title: id => `Curation of ${id}`,
    show: later(async () => (await import("/pages/curate.js")).showCurate)
  },
  {
    pattern: /^\/evaluation$/,
    link: "Evaluation",
    address: () => "/evaluation",
    title: () => "Evaluation of models",
    show: later(async () => (await import("/pages/evaluation.js")).showEvaluation)
  },
  {
    pattern: /^\/machine$/,
    link: "Machine",
    address: () => "/machine",
    title: () => "Machine",
    show: later(async () => (await import("/pages/machine.js")).showMachine)
  },
  {
    pattern: /^\/audit$/,
    link: "Audit",
    address: () => "/audit",
    title: () => "Audit trail",
    show: later(async () => (await import("/pages/audit.js")).showAudit)
  },
];

/** A page whose modules are loaded when it is first opened, so that the others stay small. */
function later(load) {
  return (main, id, query) => {
    let shown = null, isClosed = false;
    return {
      async refresh() {
        const show = shown ? null : await load();
        if (isClosed) return;
        shown ??= show(main, id, query);
        await shown.refresh();
      },
      get move() {
        return shown?.move; // a page that has none, or is not loaded yet, is opened anew
      },
      close() {
        isClosed = true;
        shown?.close?.();
      },
    };
  };
}

const main = document.getElementById("main");
const navigation = document.getElementById("pages");
const signOut = document.getElementById("sign-out");
const REFRESH_MS = 2000;
const REFRESH_MS_MAX = 30000; // while the server cannot be reached

let page = null; // what the page's show() gave; null while a form or a refusal is shown
let shownPath = null;
let turn = 0; // number of the page that is shown now
let timer = 0;
let pause = REFRESH_MS;

function open() {
  const [path, text] = location.hash.slice(1).split(/\?(.*)/s), query = new URLSearchParams(text);
  if (page?.move && path === shownPath) return page.move(query);
  const mine = ++turn;
  clearTimeout(timer);
  page?.close?.();
  signOut.hidden = !key();
  const shown = PAGES.find(({pattern}) => pattern.test(path)) ?? PAGES[0];
  const id = shown.pattern.exec(path)?.[1];
  document.title = `${shown.title(id)} – quern`;
  fill(navigation,
    PAGES.filter(({address}) => id || !address.length)
      .map(
        ({link, address, pattern}) => element("a",
          {href: `#${address(id)}`, "aria-current": pattern === shown.pattern && "page"}, link)));
  fill(main);
  page = shown.show(main, id, query);
  // not when the tab opens: its first Tab reaches the link to the content
  if (shownPath !== null) main.focus();
  shownPath = path;
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
      leave();
      askKey(main, error.message, open);
      return;
    }
    if (error.status === 403 || error.status === 404) {
      leave();
      fill(main, element("h1", {}, error.status === 404 ? "Not found" : "Not allowed"),
        element("p", {class: "trouble"}, error.message),
        element("p", {}, element("a", {href: "#/"}, "All batches")));
      return;
    }
    pause = Math.min(pause * 2, REFRESH_MS_MAX);
    say(`${error.message}. The next try is in ${pause / 1000} s`);
  }
  timer = setTimeout(() => document.hidden ? wait(mine) : refresh(mine), pause);
}

/** The page gives its place to a form or a refusal. */
function leave() {
  page.close?.();
  page = null;
  turn++;
}

/** A hidden tab asks for nothing. */
function wait(mine) {
  document.addEventListener("visibilitychange", () => mine === turn && refresh(mine), {once: true});
}

signOut.addEventListener("click", () => {
  forgetKey();
  page?.close?.();
  page = null;
  open();
});
document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault(); // the address means a page, and not a place on it
  main.focus();
});
addEventListener("hashchange", open);
open();
