// SPDX-License-Identifier: Apache-2.0
// judgement: a judgement in words: the verdict, the corrected fields, rating, flag and comment.

import {element, terms} from "/pages/dom.js";
import {differences, lineOf, prose} from "/pages/fields.js";
import {moment} from "/pages/figures.js";
import {labelOf} from "/pages/shape.js";

const nameOfField = name => name === ".text" ? "Answer" : labelOf(name);

/** "Analysis › Trajectory › Rating". */
export const pathOf = path => path.map(nameOfField).join(" › ");

/** `answer` is that of the model: a corrected field is told by what differs from it. */
export function wordsOf(judgement, answer = {}) {
  const fields = Object.entries(judgement.fields ?? {})
                   .flatMap(([name, value]) => differences(answer[name], value, [name]))
                   .map(({path, now}) => [pathOf(path), now]);
  return element("div", {class: "judgement"},
    element("p", {}, element("strong", {}, judgement.verdict), judgement.flagged && ", flagged",
      judgement.rating && `, rated ${judgement.rating} of 5`),
    fields.length > 0
      && element("dl", {}, terms(fields.map(([name, value]) => [name, prose(lineOf(value))]))),
    judgement.comment && element("p", {class: "comment"}, "“", judgement.comment, "”"));
}

export const headOf = judgement =>
  `${judgement.curator}, ${moment(judgement.created_at)}, version ${judgement.version}`;
