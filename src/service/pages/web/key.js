// SPDX-License-Identifier: Apache-2.0
// key: asks for the key, where the server wants one. A key that the server refuses is not kept.

import {forgetKey, get, keepKey, key} from "/pages/api.js";
import {element, fill} from "/pages/dom.js";

/** Shows the form in place of the page; `done` is called with a key that the server takes. */
export function askKey(main, sentence, done) {
  const trouble = element("p", {class: "trouble", role: "alert"}, key() ? sentence : "");
  const field = element("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "key-kept"
  });
  const form = element("form", {class: "key", onsubmit: submit},
    element("h1", {}, "This server asks for a key"),
    element("p", {id: "key-kept"},
      "It stays in this tab and is forgotten with it. An administrator makes one with ",
      element("code", {}, "quern key create"), " on the server."),
    element("label", {for: "key"
    }, "API key"), field, element("button", {type: "submit"}, "Open"), trouble);

  async function check(text) {
    if (!/^[!-~]+$/.test(text))
      throw new Error("A key has no spaces and no letters outside of ASCII");
    keepKey(text);
    try {
      await get("/v1/models"); // for any key, whatever its scopes are
    } catch (error) {
      forgetKey();
      throw error;
    }
  }

  async function submit(event) {
    event.preventDefault();
    fill(trouble);
    try {
      await check(field.value.trim());
    } catch (error) {
      fill(trouble, error.message);
      field.select();
      return;
    }
    done();
  }

  fill(main, form);
  field.focus();
}
