// SPDX-License-Identifier: Apache-2.0
// confirm: asks before something ends for good.

import {element} from "/pages/dom.js";

/** Asks in a dialog called `title`; resolves to whether the reader has pressed the button `yes`. */
export function confirmed(title, sentence, yes) {
  return new Promise(resolve => {
    const close = answer => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const cancel = event => {
      event.preventDefault();
      close(false);
    };
    const dialog = element("dialog", {class: "ask", "aria-label": title, oncancel: cancel},
      element("p", {}, sentence),
      element("div", {class: "buttons"},
        element("button", {type: "button", onclick: () => close(false)}, "Keep it"),
        element("button", {type: "button", class: "danger", onclick: () => close(true)}, yes)));
    document.body.append(dialog);
    dialog.showModal();
  });
}
