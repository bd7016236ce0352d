// SPDX-License-Identifier: Apache-2.0
// machine: what the server's machine has and does: models, waiting work, nodes, cards, the last
// hour and events; the keys of the server, for admins.

import {actOnModel, machine as ask} from "/pages/api.js";
import {element, fill, say, setText, shownIfAllowed} from "/pages/dom.js";
import {bytes, count, duration, moment, percent, rate} from "/pages/figures.js";
import {showKeys} from "/pages/server_keys.js";
import {liveTable} from "/pages/live_table.js";
import {timeline} from "/pages/timeline.js";

const STEPS = 360; // steps in the hour that the server keeps
const STATES = {loaded: "good", loading: "live", unloaded: "", failed: "bad"};
const KINDS = {
  model_loaded: ["loaded", "good"],
  model_unloaded: ["unloaded", ""],
  model_failed: ["failed", "bad"],
  engine_down: ["engine down", "bad"],
  engine_restarted: ["restarted", "good"],
  upstream_down: ["upstream down", "bad"],
  upstream_up: ["upstream up", "good"],
  batch_stuck: ["stuck", "bad"],
  batch_at_risk: ["late", "warn"],
  quality_alarm: ["quality", "warn"],
  line_lost: ["line lost", "bad"],
  disk_full: ["disk full", "bad"],
  disk_has_room: ["disk has room", "good"],
};

const known = (value, text) => value === null || value === undefined ? "" : text(value);

/** What a model does, in a few words. */
function doing(model) {
  if (model.state !== "loaded") return model.text ?? "";
  const parts = [];
  if (model.running > 0) parts.push(`${count(model.running)} running`);
  if (model.waiting > 0) parts.push(`${count(model.waiting)} waiting`);
  if (model.kv_used > 0) parts.push(`KV cache ${percent(model.kv_used)} used`);
  if (model.restarts > 0) parts.push(`restarted ${count(model.restarts)} times`);
  return parts.join(", ") || "idle";
}

async function load(model, action) {
  try {
    await actOnModel(model.id, action);
    say(action === "load"
        ? `${model.id} is asked to load`
        : `${model.id} is being unloaded: its lines wait, and no new request is taken`);
  } catch (error) {
    say(error.message);
  }
}

function modelRow(model, isAdmin) {
  const action = model.held || model.state === "unloaded" ? "load" : "unload";
  const buttons = isAdmin && model.can_unload && model.id && model.state !== "failed" ? [{
    text: action === "load" ? "Load" : "Unload",
    label: `${action === "load" ? "Load" : "Unload"} ${model.id}`,
    onclick: () => load(model, action)
  }]
                                                                                      : [];
  return {
    key: String(model.worker),
    cells: [
      model.id ?? "not known yet", {text: model.state, kind: STATES[model.state] ?? ""},
      doing(model),
      model.upstream ? `upstream ${model.upstream}` : known(model.memory_bytes, bytes),
      count(model.queue_depth), {buttons}
    ]
  };
}

const queueRow = queue => ({
  key: queue.model ?? "",
  cells: [
    queue.model ?? "several models in one file", count(queue.lines), count(queue.requests),
    duration(queue.oldest_age_s)
  ]
});

const ownerRow = owner => ({
  key: owner.owner,
  cells: [owner.owner, count(owner.open_batches), count(owner.queued_lines), count(owner.requests)]
});

const cardRow = card => ({
  key: card.id,
  cells: [
    card.name ?? card.id,
    card.up ? {
      text: card.limited_by.length ? `limited by ${card.limited_by.join(", ")}` : "up",
      kind: card.limited_by.length ? "warn" : "good"
    }
            : {text: "the driver reports nothing", kind: "bad"},
    known(card.utilisation, percent),
    card.memory_used_bytes === null
      ? ""
      : `${bytes(card.memory_used_bytes)} of ${bytes(card.memory_bytes)}`,
    known(card.power_watts, watts => `${rate(watts)} W`),
    known(card.celsius, degrees => `${count(degrees)} °C`), known(card.tokens_per_second, rate),
    known(card.joules_per_1000_tokens, rate), count(card.xid_errors + (card.ecc_errors ?? 0))
  ]
});

const NODES = {ready: "good", loading: "live", draining: "warn", sick: "bad",
               failed: "bad"};

const nodeRow = node => ({
  key: node.id,
  cells: [
    node.id, {text: node.state, kind: NODES[node.state] ?? ""}, node.text ?? "",
    node.models.join(", "), count(node.in_flight), rate(node.busy_results_per_second),
    duration(Math.round(node.beat_age_s)), node.version ?? ""
  ]
});

/** The queue between machines, in one sentence. */
function queueText(queue) {
  if (!queue) return "";
  if (!queue.up) return `The queue between machines is not reached. ${queue.text ?? ""}`;
  return `The queue is reached; nodes have ${count(queue.in_flight)} requests, ${
    count(queue.returned)} were given out again, ${count(queue.nodes_lost)} nodes were lost.`;
}

function eventRow(event, at, events) {
  const [text, kind] = KINDS[event.kind] ?? [event.kind, ""];
  const later = events.slice(at)
                  .filter(other => other.at === event.at && other.kind === event.kind
                      && other.message === event.message)
                  .length;
  return {
    key: `${event.at} ${event.kind} ${event.batch_id} ${event.message} ${later}`,
    cells: [
      moment(event.at), {text, kind}, event.message,
      event.batch_id ? {text: event.batch_id, href: `#/batch/${event.batch_id}`} : ""
    ]
  };
}

const titles = (...names) => names.map(
  name => ({title: name.replace("#", ""), isNumber: name.startsWith("#")}));

export function showMachine(main) {
  const models = liveTable("Models",
    titles("Model", "State", "Doing", "Memory", "#Waiting", "Action"), "No model is served.");
  const queues = liveTable(
    "Waiting work by model", titles("Model", "#Lines", "#Requests", "Oldest"), "No request waits.");
  const owners = liveTable("Waiting work by owner",
    titles("Owner", "#Open batches", "#Lines", "#Requests"), "No owner has an open batch.");
  const cards = liveTable("Cards",
    titles("Card", "State", "#Load", "Memory", "#Power", "#Heat", "#Tokens per second",
      "#Joules per 1,000 tokens", "#Errors"),
    "No card is in use: models run on the processors, or at upstreams.");
  const nodes = liveTable("Nodes",
    titles("Node", "State", "Doing", "Models", "#In flight", "#Lines per second", "#Last beat",
      "Version"),
    "No node on another machine is connected.");
  const events = liveTable("Events", titles("Time", "What", "Message", "Batch"),
    "Nothing has happened since the server started.");
  const tokens = timeline("Tokens", "tokens per second"),
        lines = timeline("Lines of batches", "lines per second");
  const queueNote = element("p", {class: "note"});
  const since = element("p", {class: "note"}), keys = showKeys();
  const part = (title, ...parts) => element(
    "section", {class: "part"}, element("h2", {}, title), parts);
  const parts = shownIfAllowed(since, part("Models", models.element),
    part("Throughput", element("div", {class: "trends"}, tokens.element, lines.element)),
    part("Waiting work", element("h3", {}, "By model"), queues.element,
      element("h3", {}, "By owner"), owners.element),
    part("Nodes", queueNote, nodes.element), part("Cards", cards.element), part("Events", events.element));
  fill(main, element("h1", {}, "Machine"), parts.element, keys.element);

  function show(now) {
    setText(since, `Running since ${moment(now.started_at)}`);
    models.show(now.models.map(model => modelRow(model, now.admin)));
    tokens.show(now.throughput.tokens, now.throughput.step_s, STEPS);
    lines.show(now.throughput.lines, now.throughput.step_s, STEPS);
    queues.show(now.queues.map(queueRow));
    owners.show(now.owners.map(ownerRow));
    setText(queueNote, queueText(now.queue));
    nodes.show(now.nodes.map(nodeRow));
    cards.show(now.devices.map(cardRow));
    events.show(now.events.map(eventRow));
  }

  /** A key may see the machine, the keys, both or none. */
  async function refresh() {
    await parts.refresh(async () => show(await ask()));
    await keys.refresh();
  }

  return {refresh};
}
