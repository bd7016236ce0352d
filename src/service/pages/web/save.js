// SPDX-License-Identifier: Apache-2.0
// save: answers of the server as files.

import {element} from "/pages/dom.js";

/** Saves to where the user says, piece by piece, if the browser can; else as a whole. */
export async function saveAnswer(answer, name) {
  if (window.showSaveFilePicker) {
    const target = await window.showSaveFilePicker({suggestedName: name});
    await answer.body.pipeTo(await target.createWritable());
    return;
  }
  offer(await answer.blob(), name);
}

function offer(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/**
 * Saves pages, each an answer of the server, as one file: pages(take) calls take(answer) for one
 * after another. Where the browser can write to a file at once, no page stays in memory.
 */
export async function savePages(pages, name, type) {
  if (window.showSaveFilePicker) {
    const target = await (await window.showSaveFilePicker({suggestedName: name})).createWritable();
    try {
      await pages(async answer => target.write(await answer.blob()));
    } catch (error) {
      await target.abort();
      throw error;
    }
    return target.close();
  }
  const parts = [];
  await pages(async answer => parts.push(await answer.blob()));
  offer(new Blob(parts, {type}), name);
}
