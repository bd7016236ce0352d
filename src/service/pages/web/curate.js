// SPDX-License-Identifier: Apache-2.0
// curate: the answers of a batch are judged, one card at a time. Every command has a key.

import {batch as askBatch, judgementSummary, schemaOf} from "/pages/api.js";
import {showCard} from "/pages/card.js";
import {deckOf} from "/pages/deck.js";
import {element, fill, say, setText} from "/pages/dom.js";
import {count, counted, percent} from "/pages/figures.js";
import {keyButton, listenKeys, openHelp} from "/pages/shortcuts.js";
import {
  disputed,
  hasForeign,
  hurry,
  isUnsent,
  listen,
  outboxTrouble,
  put,
  unsent
} from "/pages/outbox.js";
import {queueOf, showQueue} from "/pages/queue.js";
import {adoptButton, openTrail, showDisputes, showExports} from "/pages/trail.js";

const CURATOR = "quern-curator";
const CURATOR_LETTERS = 64;
const SUMMARY_EVERY = 5; // refreshes of the page

/** The form that asks once who judges; the name stays in the tab. */
function askCurator(main, done) {
  const field = element("input", {
    id: "curator",
    required: true,
    maxlength: CURATOR_LETTERS,
    autocomplete: "name",
    value: sessionStorage.getItem(CURATOR) ?? ""
  });
  fill(main,
    element("form", {class: "key", onsubmit: submit}, element("h1", {}, "Who judges?"),
      element("p", {},
        "Each judgement is kept with this name. It stays in this tab until you change it."),
      element("label", {for: "curator"
      }, "Your name"), field, element("button", {type: "submit"}, "Begin")));
  field.focus();

  function submit(event) {
    event.preventDefault();
    const name = field.value.trim();
    if (!name) return field.focus();
    sessionStorage.setItem(CURATOR, name);
    done();
  }
}

class Curation {
  constructor(main, batch, query) {
    Object.assign(this,
      {main, batch, query, deck: null, card: null, schema: undefined, turns: 0, isShort: false});
    this.title = element("h1", {}, batch);
    this.bar = element("progress", {max: 1, value: 0, "aria-label": "Judged cards of this queue"});
    this.counts = element("p", {class: "counts"});
    this.together = element("p", {class: "quiet"});
    this.stage = element("div", {class: "stage"});
    // also tells a flag and a rating of the draft
    this.kept = element("p", {class: "kept", role: "status"});
    this.waits = element("p", {class: "waits"});
    this.disputes = showDisputes(batch);
    this.exports = showExports(batch);
    this.#makeButtons();
    fill(main,
      element("div", {class: "curation"},
        element("div", {class: "title"}, this.title,
          element("span", {class: "quiet"}, `Judged as ${query.curator} `,
            element("button", {type: "button", class: "more", onclick: () => this.#rename()},
              "Change the name"))),
        showQueue(batch, query), this.bar,
        element("div", {class: "title"}, this.counts, this.together), this.disputes.element,
        this.stage,
        element("div", {class: "actions"}, element("div", {class: "told"}, this.kept, this.waits),
          this.reading, this.correcting),
        this.exports.element));
    this.silence = [
      listen(() => this.#showSending()), listenKeys({
        command: (key, event) => this.#command(key, event),
        escape: target => this.#escape(target),
        enter: () => this.#enter()
      })
    ];
    this.#showButtons();
    this.#showSending();
  }

  #makeButtons() {
    this.accept = keyButton("Accept", "a", "a", () => this.judge("accepted"), {class: "main"});
    this.correct = keyButton("Correct", "c", "c", () => this.card.correct());
    this.other = keyButton("Take the other run's", "o", "o", () => this.#takeOther());
    this.skip = keyButton("Skip", "s", "s", () => this.judge("skipped"));
    this.flag = keyButton("Flag", "f", "f", () => this.#flag(), {"aria-pressed": "false"});
    this.back = keyButton("Back", "b", "b", () => this.#go(-1));
    this.next = keyButton("Next", "→", "n", () => this.#go(1));
    this.trail = keyButton("Trail", "t", "t", () => this.#openTrail());
    this.reading = element("div", {class: "buttons", role: "group", "aria-label": "Judgement"},
      this.accept, this.correct, this.other, this.skip, this.flag, this.back, this.next, this.trail,
      keyButton("Help", "?", "?", openHelp));
    this.correcting = element("div",
      {class: "buttons", role: "group", "aria-label": "Correction", hidden: true},
      keyButton(
        "Keep the correction", "Ctrl Enter", "Control+Enter", () => this.#enter(), {class: "main"}),
      keyButton("Leave it as it was", "Esc", "Escape", () => this.card.cancel()),
      keyButton("Help", "?", "?", openHelp));
  }

  #rename() {
    this.close();
    askCurator(this.main, () => dispatchEvent(new Event("hashchange")));
  }

  /** Asks for news: first for the batch and its cards, later for what others judged. */
  async refresh() {
    if (!this.deck) {
      const [batch, schema] = await Promise.all([askBatch(this.batch), schemaOf(this.batch)]);
      if (this.isClosed) return;
      if (!schema.is_made) return this.#showReading(schema);
      this.schema = schema.schema;
      setText(this.title, batch.metadata?.name ?? this.batch);
      this.exports.refresh(batch);
      await this.#open();
    }
    if (this.turns++ % SUMMARY_EVERY === 0) {
      this.#showTogether(await judgementSummary(this.batch));
      if (outboxTrouble()) hurry();
    }
    if (this.isShort) await this.#fill();
  }

  async #open() {
    this.deck?.close();
    this.deck = deckOf(this.batch, this.query);
    this.shown = new Map();
    this.show();
    await this.#fill();
  }

  /**
   * Fetches cards ahead. Trouble of one's own making stands in place of the card; a server that is
   * away is asked again.
   */
  async #fill() {
    if (this.query.queue === "runs_disagree" && !this.query.with) return;
    const deck = this.deck;
    this.isShort = true;
    try {
      await deck.fill();
      this.isShort = deck.reading() !== null; // the next refresh asks again
    } catch (error) {
      if (error.status !== 400 && error.status !== 404 && error.status !== 422) throw error;
      this.isShort = false;
      fill(this.stage, element("p", {class: "trouble", role: "alert"}, error.message));
      return;
    }
    if (deck === this.deck && !this.card) this.show();
    this.#showProgress();
  }

  /** The card where the curator is: made once, so that a draft is still there on the way back. */
  show() {
    const data = this.deck.current(), focused = document.activeElement,
          hadFocus = this.stage.contains(focused) || focused === document.body
      || focused === this.main;
    this.card = data && (this.shown.get(data) ?? this.#makeCard(data));
    if (this.card) fill(this.stage, this.card.element);
    else this.#showNone();
    if (this.card) this.#showState(this.card);
    this.#showButtons();
    this.#showProgress();
    if (hadFocus) (this.card?.element ?? this.main).focus({preventScroll: true});
    if (this.card && this.card.element.getBoundingClientRect().top < 0)
      this.card.element.scrollIntoView({block: "start"});
  }

  #makeCard(data) {
    const made = showCard(data, {
      schema: this.schema,
      curator: this.query.curator,
      isDispute: this.query.queue === "curators_disagree",
      told: {
        changed: card => card === this.card && this.#showButtons(),
        like: judgement => this.judge(judgement.verdict, judgement.fields ?? null)
      }
    });
    this.shown.set(data, made);
    if (this.shown.size > 100) this.shown.delete(this.shown.keys().next().value);
    return made;
  }

  /** The server reads the answers of a batch, and of the other run, before it has cards. */
  #showReading({indexed, lines, with: other = {indexed: 0, lines: 0}}) {
    const all = lines + other.lines;
    fill(this.stage,
      element("p", {class: "end"},
        `The answers are being read: ${all ? percent((indexed + other.indexed) / all) : "0 %"}`));
  }

  #showNone() {
    if (this.query.queue === "runs_disagree" && !this.query.with)
      return fill(this.stage,
        element("p", {class: "end"},
          "Choose the other run above: the cards whose answers differ are shown."));
    if (this.deck.reading()) return this.#showReading(this.deck.reading());
    if (!this.deck.isEnd())
      return fill(this.stage, element("p", {class: "end"}, "The next card is on its way…"));
    const text = this.deck.hasBack() ? "No further card in this queue."
                                     : "No card in this queue is left for you.";
    fill(this.stage, element("p", {class: "end"}, text),
      element("p", {},
        element("button",
          {type: "button", onclick: () => this.#open().catch(error => say(error.message))},
          "Look for new cards")));
  }

  #showState(card) {
    card.showState(isUnsent(this.batch, card.card.custom_id) ? "being kept…" : null);
  }

  #showButtons() {
    const {card} = this, isCorrecting = card?.isCorrecting === true;
    this.reading.hidden = isCorrecting;
    this.correcting.hidden = !isCorrecting;
    for (const button
           of [this.accept, this.correct, this.other, this.skip, this.flag, this.next, this.trail])
      button.disabled = !card;
    this.back.disabled = !this.deck?.hasBack();
    this.other.hidden = !card?.card.other?.answer;
    this.flag.setAttribute("aria-pressed", String(card?.draft.flagged === true));
  }

  #showProgress() {
    const {total, judged} = this.deck?.progress() ?? {total: null, judged: 0};
    this.bar.max = total || 1;
    this.bar.value = judged;
    setText(this.counts,
      total === null ? "" : `Judged ${count(judged)} of ${count(total)} in this queue`);
  }

  #showTogether({judged = 0, by_curator: curators = [], flagged = 0, agreement}) {
    const parts = [`${counted(judged, "line is", "lines are")} judged by ${
      curators.length === 1 ? "one curator" : `${count(curators.length)} curators`}`];
    if (flagged) parts.push(`${count(flagged)} flagged`);
    if (typeof agreement === "number")
      parts.push(`${percent(agreement)} of the lines with two judgements agree`);
    setText(this.together, judged ? `Together: ${parts.join(", ")}` : "");
  }

  /** What is on its way to the server, and why it waits. */
  #showSending() {
    const waiting = unsent(),
          trouble = outboxTrouble()
      || (disputed(this.batch).length ? "your choice is needed above" : "");
    const text = !waiting
      ? ""
      : `${count(waiting)} ${waiting === 1 ? "judgement is" : "judgements are"} not kept yet${
        trouble ? `: ${trouble}` : ""}`;
    setText(this.waits, text);
    if (waiting && hasForeign()) this.waits.append(" ", adoptButton());
    this.disputes.refresh();
    if (this.card) this.#showState(this.card);
  }

  judge(verdict, fields = null) {
    const {card} = this;
    if (!card) return;
    const {deck} = this;
    put(this.batch, card.record(verdict, fields), card.own?.version ?? 0, kept => {
      deck.count(card.card, card.wasJudged);
      card.keep(kept);
      setText(this.kept, `Kept: ${kept.custom_id} ${kept.verdict}`);
      this.#showProgress();
    });
    this.#go(1);
  }

  #go(by) {
    if (!this.deck || (by > 0 && !this.card)) return;
    if (by > 0) this.deck.forward();
    else this.deck.back();
    this.show();
    if (by > 0) this.#fill().catch(error => say(error.message));
  }

  #flag() {
    setText(
      this.kept, this.card.flag() ? "Flagged: it goes with the judgement" : "No longer flagged");
  }

  #rate(number) {
    const rating = this.card.rate(number);
    setText(this.kept, rating ? `Rated ${rating} of 5: it goes with the judgement` : "No rating");
  }

  #takeOther() {
    const fields = this.card?.otherRun();
    if (fields) this.judge("corrected", fields);
  }

  #openTrail() {
    openTrail(this.batch, this.card.card, this.card.answer);
  }

  /** Whether a key was a command. */
  #command(key, event) {
    if (key === "?") return openHelp(), true;
    const {card} = this;
    if (card?.isCorrecting) return /^[1-9]$/.test(key) && (card.focusField(Number(key)), true);
    if (key === "b" || key === "ArrowLeft") return this.#go(-1), true;
    if (!card) return false;
    if (key === "n" || key === "ArrowRight") return this.#go(1), true;
    if (event.repeat) return false; // a key that is held judges one card
    const commands = {
      a: () => this.judge("accepted"),
      c: () => card.correct(),
      s: () => this.judge("skipped"),
      f: () => this.#flag(),
      m: () => card.comment.focus(),
      o: () => this.#takeOther(),
      t: () => this.#openTrail()
    };
    if (/^[1-5]$/.test(key)) return this.#rate(Number(key)), true;
    return Object.hasOwn(commands, key) && (commands[key](), true);
  }

  /** Out of a text, then out of the correction. */
  #escape(target) {
    const {card} = this;
    if (!card?.element.contains(target))
      return card?.isCorrecting === true && (card.cancel(), true);
    if (/^(TEXTAREA|INPUT|SELECT)$/.test(target.tagName)) return card.element.focus(), true;
    return card.isCorrecting && (card.cancel(), true);
  }

  #enter() {
    const {card} = this;
    if (!card?.isCorrecting)
      return card?.comment === document.activeElement && (card.element.focus(), true);
    const fields = card.correction();
    if (!fields) return say("Not kept: a field is not as the answer's schema wants it"), true;
    card.leave();
    if (Object.keys(fields).length) this.judge("corrected", fields);
    else this.judge("accepted");
    return true;
  }

  close() {
    this.isClosed = true;
    for (const end of this.silence) end();
    this.deck?.close();
  }
}

export function showCurate(main, batch, parameters) {
  const curator = sessionStorage.getItem(CURATOR);
  let page = null;
  function begin() {
    page = new Curation(main, batch, queueOf(parameters, sessionStorage.getItem(CURATOR)));
    return page.refresh();
  }
  if (!curator) askCurator(main, () => begin().catch(error => say(error.message)));
  else page = new Curation(main, batch, queueOf(parameters, curator));
  return {refresh: async () => page?.refresh(), close: () => page?.close()};
}
