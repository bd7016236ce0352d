// SPDX-License-Identifier: Apache-2.0
// key: asks for the key, where the server wants one.

import {forgetKey, get, keepKey, key} from "/pages/api.js";
import {element, fill} from "/pages/dom.js";

/** Shows the form in place of the page; `done` is called with a key that the server takes. */
export function askKey(main, sentence, done) {
  const trouble = element("p", {class: "trouble", role: "alert"}, key() ? sentence : "");
  const field = element("input", {id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true});
  const form = element("form", {class: "key", onsubmit: submit},
    element("h1", {}, "This server asks for a key"),
    element("p", {}, "It is kept in this tab only, and forgotten with it. An owner makes one with ", element("code", {}, "quern key create"), "."),
    element("label", {for: "key"}, "API key"), field, element("button", {type: "submit"}, "Open"), trouble);

  async function submit(event) {
    event.preventDefault();
    keepKey(field.value.trim());
    try {
      await get("/v1/batches?limit=1");
      done();
    } catch (error) {
      if (error.status === 401) forgetKey();
      fill(trouble, error.message);
      field.select();
    }
  }

  fill(main, form);
  field.focus();
}
