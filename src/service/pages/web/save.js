// SPDX-License-Identifier: Apache-2.0
// save: an answer of the server as a file.

import {element} from "/pages/dom.js";

/** Saves to where the user says, piece by piece, if the browser can; else as a whole. */
export async function saveAnswer(answer, name) {
  if (window.showSaveFilePicker) {
    const target = await window.showSaveFilePicker({suggestedName: name});
    await answer.body.pipeTo(await target.createWritable());
    return;
  }
  const url = URL.createObjectURL(await answer.blob());
  element("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
