// SPDX-License-Identifier: Apache-2.0
// queue: which cards of a batch are judged, and in which order. The address has the choice, so that
// a link shows the same queue to others.

import {batches} from "/pages/api.js";
import {element, fill, setText} from "/pages/dom.js";
import {moment} from "/pages/figures.js";

const QUEUES = [
  ["all", "All lines"], ["sampled", "A sample"], ["uncertain", "Most uncertain first"],
  ["runs_disagree", "Where another run disagrees"], ["curators_disagree", "Where curators disagree"]
];
const SIZE = 100; // lines in a sample
const BATCHES = 100; // that are offered as the other run

const wholeOf = (text, otherwise) => /^[1-9]\d{0,8}$/.test(text ?? "") ? Number(text) : otherwise;

/** The query of the route of cards, without what the deck adds. */
export function queueOf(parameters, curator) {
  const named = parameters.get("queue"),
        queue = QUEUES.some(([name]) => name === named) ? named : "all";
  return {
    queue,
    curator,
    judged: parameters.get("judged") === "any" ? "any" : "no",
    with: queue === "runs_disagree" ? parameters.get("with") : null,
    size: queue === "sampled" ? wholeOf(parameters.get("size"), SIZE) : null,
    seed: queue === "sampled" ? wholeOf(parameters.get("seed"), 1) : null
  };
}

function addressOf(batch, query) {
  const kept = Object.entries(query).filter(([name, value]) => name !== "curator" && value !== null
      && !(name === "judged" && value === "no"));
  return `#/batch/${batch}/curate?${new URLSearchParams(kept)}`;
}

const field = (id, label, control) => element("div", {class: "control"}, element("label", {for: id
}, label), control);

/** The controls of a queue; each change goes to the address. */
export function showQueue(batch, query) {
  const go = change => location.assign(addressOf(batch, {...query, ...change}));
  const choice = element("select", {id: "queue", onchange: () => go({queue: choice.value})},
    QUEUES.map(
      ([name, text]) => element("option", {value: name, selected: name === query.queue}, text)));
  const any = element("input", {
    id: "judged",
    type: "checkbox",
    checked: query.judged === "any",
    onchange: () => go({judged: any.checked ? "any" : "no"})
  });
  const size = element("input", {
    id: "size",
    type: "number",
    min: 1,
    step: 1,
    value: query.size ?? SIZE,
    onchange: () => go({size: wholeOf(size.value, SIZE)})
  });
  const seed = element("input", {
    id: "seed",
    type: "number",
    min: 1,
    step: 1,
    value: query.seed ?? 1,
    onchange: () => go({seed: wholeOf(seed.value, 1)})
  });
  const other = element("select",
    {id: "with", onchange: () => other.value && go({with: other.value})},
    element("option", {value: ""}, "Choose a batch"));
  const made = element("form",
    {class: "queue", "aria-label": "Queue", onsubmit: event => event.preventDefault()},
    field("queue", "Cards", choice),
    query.queue === "sampled" && [field("size", "Lines", size), field("seed", "Draw number", seed)],
    query.queue === "runs_disagree" && field("with", "The other run", other),
    element("div", {class: "control check"}, any, element("label", {for: "judged"
    }, "also cards that I have judged")));

  async function offer() {
    const page = await batches({limit: BATCHES});
    fill(other, element("option", {value: ""}, "Choose a batch"),
      page.data.filter(({id}) => id !== batch)
        .map(({id, metadata, created_at: created}) => element("option",
               {value: id, selected: id === query.with},
               `${metadata?.name ?? id}, ${moment(created)}`)),
      query.with && !page.data.some(({id}) => id === query.with)
        && element("option", {value: query.with, selected: true}, query.with));
  }

  if (query.queue === "runs_disagree")
    offer().catch(error => setText(other.firstChild, error.message));
  return made;
}
