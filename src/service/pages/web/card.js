// SPDX-License-Identifier: Apache-2.0
// card: one line of a batch to be judged: what was asked, the answer by field, and the draft of a
// judgement.

import {saidBy} from "/pages/answer.js";
import {element, fill, setText} from "/pages/dom.js";
import {groupEditor} from "/pages/editors.js";
import {differences, groupView, isSame, lineOf, prose} from "/pages/fields.js";
import {count} from "/pages/figures.js";
import {headOf, pathOf, wordsOf} from "/pages/judgement.js";
import {profileOf} from "/pages/profile.js";
import {shapeOfAnswer} from "/pages/shape.js";

const NUMBERED = 9; // fields that a digit leads to

/** The answer by name; an answer that is no object has one field, its text. */
const answerOf = card => card.answer ?? {".text": card.text ?? ""};

/** Fields that a digit leads to: those of the answer, and of its groups of groups. */
function stopsOf(node, editor) {
  return node.fields.flatMap(field => {
    const own = editor.fields.get(field.name),
          isGroup = field.kind === "group" && own.fields
      && field.fields.some(inner => inner.kind === "group");
    return isGroup ? stopsOf(field, own) : [own];
  });
}

class Card {
  constructor(card, {schema, curator, isDispute, told}) {
    const own = card.judgements?.find(judgement => judgement.curator === curator);
    Object.assign(this, {
      card,
      curator,
      isDispute,
      told,
      own,
      wasJudged: own !== undefined,
      isCorrecting: false,
      answer: answerOf(card),
      shape: shapeOfAnswer(schema, card.answer)
    });
    this.draft = {rating: own?.rating ?? null, flagged: own?.flagged ?? false};
    this.state = element("span", {class: "state"});
    this.box = element("div", {class: "fields"});
    this.ratings = [1, 2, 3, 4, 5].map(number => element("button", {
      type: "button",
      "aria-pressed": "false",
      "aria-keyshortcuts": number,
      "aria-label": `Rating ${number} of 5`,
      onclick: () => this.rate(number)
    },
                                         number));
    this.comment = element(
      "textarea", {id: "comment", rows: 2, maxlength: 4000, value: own?.comment ?? ""});
    this.element = this.#layout();
    this.showState();
    this.#read();
    this.#showDraft();
  }

  #layout() {
    const {card} = this,
          error = card.result?.error?.message ?? card.result?.response?.body?.error?.message;
    const isRefusal = saidBy(card.result?.response?.body).kind === "refusal",
          rating = {class: "options", role: "group", "aria-labelledby": "rating-label"};
    return element("article", {class: "card", tabindex: "-1", "aria-labelledby": "card-title"},
      element("div", {class: "title"},
        element("h2", {id: "card-title"}, card.custom_id),
        element("span", {class: "quiet"}, `Line ${count(card.line)}`),
        typeof card.uncertainty === "number" &&
          element("span", {class: "quiet"}, `Uncertainty ${card.uncertainty.toFixed(2)}`),
        this.state),
      element("section", {class: "profile", "aria-label": "Request", tabindex: "0"},
        profileOf(card.request)),
      element("section", {class: "answer", "aria-label": "Answer", tabindex: "0"},
        error && element("p", {class: "trouble"}, error),
        isRefusal && element("p", {class: "quiet"}, "The model refused."),
        this.box, this.#others(),
        element("div", {class: "verdict"},
          element("div", {class: "label", id: "rating-label"}, "Rating"),
          element("div", rating, this.ratings),
          element("label", {class: "label", for: "comment"}, "Comment ",
            element("kbd", {"aria-hidden": "true"}, "m")),
          this.comment)));
  }

  /** The other run's answer, and the judgements of other curators where a queue is about them. */
  #others() {
      const {
        card} = this,
       others = (card.judgements ?? []).filter(judgement => judgement.curator !== this.curator);
      const other = card.other?.answer
        && element(
          "p", {class: "quiet"}, "The other run has other values; each stands below this run's.");
      if (!others.length) return other;
      return [
        other,
        element("details", {class: "others", open: this.isDispute},
          element("summary", {},
            others.length === 1 ? "The judgement of another curator"
                                : `The judgements of ${others.length} other curators`),
          others.map(
            judgement => element("div", {class: "opinion"},
              element("p", {class: "quiet"}, headOf(judgement)), wordsOf(judgement, this.answer),
              element("button", {type: "button", onclick: () => this.told.like(judgement)},
                `Judge like ${judgement.curator}`))))
      ];
  }

  /** What differs from the model's answer, or from that of the other run, stands below a field. */
  #extra(field) {
    const theirs = this.card.other?.answer, answer = this.answer[field.name];
    const told = (says, before, now) =>
      differences(before, now)
        .map(({path, now: value}) => element("p", {class: "before"},
               path.length ? `${pathOf(path)}. ` : "", `${says}: `, prose(lineOf(value), "span")));
    return [
      told("The model answered", this.#now()[field.name], answer),
      theirs && told("The other run answered", answer, theirs[field.name])
    ];
  }

  #now() {
    return {...this.answer, ...this.own?.fields};
  }

  #read() {
    this.isCorrecting = false;
    this.editor = null;
    fill(this.box, groupView(this.shape, this.#now(), field => this.#extra(field)));
    for (const field of this.box.querySelectorAll(":scope > .group > .field"))
      field.addEventListener("click", event => this.#click(event, field.dataset.name));
  }

  /** A click on a field begins its correction, unless it selects text or opens something. */
  #click(event, name) {
    if (event.target.closest("button, a, summary") || !getSelection().isCollapsed) return;
    this.correct(name);
  }

  showState(word = null) {
      setText(this.state,
        word ?? (this.own ? `${this.own.verdict}, version ${this.own.version}` : "not judged"));
      this.state.dataset.kind = word ? "live" : this.own ? "good" : "";
  }

  #showDraft() {
      this.ratings.forEach(
        (button, at) => button.setAttribute("aria-pressed", String(this.draft.rating === at + 1)));
      this.told.changed(this);
  }

  rate(number) {
    this.draft.rating = this.draft.rating === number ? null : number;
    this.#showDraft();
    return this.draft.rating;
  }

  flag() {
    this.draft.flagged = !this.draft.flagged;
    this.#showDraft();
    return this.draft.flagged;
  }

  /** Shows the answer as controls, with the focus on the named field or the first one. */
  correct(name = null) {
    if (!this.isCorrecting) {
      this.isCorrecting = true;
      this.editor = groupEditor(this.shape, this.#now());
      fill(this.box, this.editor.element);
      this.stops = stopsOf(this.shape, this.editor);
      this.stops.slice(0, NUMBERED).forEach((editor, at) => this.#number(editor, at + 1));
      this.told.changed(this);
    }
    (this.editor.fields.get(name) ?? this.editor).focus();
  }

  #number(editor, number) {
    const first = [editor.element].flat()[0];
    first.closest(".field")?.querySelector(".label")?.append(
      " ", element("kbd", {"aria-hidden": "true"}, number));
  }

  focusField(number) {
    this.stops[number - 1]?.focus();
  }

  /** The answer is to be read again. */
  leave() {
    this.#read();
    this.told.changed(this);
  }

  cancel() {
    this.leave();
    this.element.focus();
  }

  /** The corrected fields of the answer's top level. If one is not as the schema wants it: null,
   * and the first of them has the focus. */
  correction() {
    const problems = [], now = this.editor.read(problems);
    if (problems.length) {
      problems[0].focus();
      return null;
    }
    const names = [...new Set([...Object.keys(this.answer), ...Object.keys(now)])].filter(
      name => !isSame(this.answer[name], now[name]));
    return Object.fromEntries(names.map(name => [name, now[name] ?? null]));
  }

  /** The fields in which the other run differs, as a correction. */
  otherRun() {
    const theirs = this.card.other?.answer;
    return theirs ? Object.fromEntries(Object.keys(theirs)
                                         .filter(name => !isSame(theirs[name], this.answer[name]))
                                         .map(name => [name, theirs[name]]))
                  : null;
  }

  record(verdict, fields = null) {
      return {
        custom_id: this.card.custom_id,
        curator: this.curator,
        verdict,
        flagged: this.draft.flagged,
        fields: verdict === "corrected" ? fields : undefined,
        rating: this.draft.rating,
        comment: this.comment.value.trim() || null
      };
  }

  /** The server has kept a judgement of this card. */
  keep(kept) {
    this.own = kept;
    this.showState();
    if (!this.isCorrecting) this.#read();
  }
}

/**
 * `told`: changed(card) after a change of the draft, like(judgement) to judge as another curator
 * did.
 */
export const showCard = (card, options) => new Card(card, options);
