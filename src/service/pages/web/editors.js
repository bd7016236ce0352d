// SPDX-License-Identifier: Apache-2.0
// editors: the values of an answer as controls. An editor is {element, focus(), read()}; read()
// gives the value as it now is and adds its sentence to `problems` where the schema does not allow
// it.

import {element, setText} from "/pages/dom.js";
import {isSame, wordOf} from "/pages/fields.js";

const OPTIONS_AS_BUTTONS = 12; // options in a choice; more are a list to open
const ROWS_MAX = 18; // rows in a text's control
const COLUMNS = 60; // by which a text's rows are guessed

let made = 0;
const newId = () => `e${++made}`;

/** A control's own sentence about its value, read with the control. */
function problemOf(control) {
  const id = newId(), told = element("p", {id, class: "problem"});
  control.setAttribute("aria-describedby",
    [control.getAttribute("aria-describedby"), id].filter(part => part).join(" "));
  return {
    element: told,
    tell(sentence, problems, focus) {
      setText(told, sentence ?? "");
      if (sentence) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
      if (sentence) problems.push({sentence, focus});
    },
  };
}

/** Buttons of which one is chosen: arrows move between them, as between all radio buttons. */
function choiceEditor(node, value, labelId) {
  const name = newId(),
        inputs = node.options.map(
          option => element("input", {type: "radio", name, checked: option === value}));
  const group = element("div", {class: "options", role: "radiogroup", "aria-labelledby": labelId},
    node.options.map((option, at) => element("label", {class: "option"}, inputs[at],
                       element("span", {}, wordOf(option)))));
  const problem = problemOf(group),
        focus = () => (inputs.find(input => input.checked) ?? inputs[0])?.focus();
  return {
    element: [group, problem.element],
    focus,
    read(problems) {
      const at = inputs.findIndex(input => input.checked),
            isWrong = at < 0 && (node.isRequired || value !== undefined);
      problem.tell(isWrong ? "Choose one of these" : null, problems, focus);
      return at < 0 ? value : node.options[at];
    },
  };
}

function selectEditor(node, value, labelId) {
  const none = node.options.includes(value) ? [] : [element("option", {value: ""}, "")];
  const select = element("select", {"aria-labelledby": labelId}, none,
    node.options.map(
      (option, at) => element("option", {value: at, selected: option === value}, wordOf(option))));
  const problem = problemOf(select), focus = () => select.focus();
  return {
    element: [select, problem.element],
    focus,
    read(problems) {
      problem.tell(select.value === "" && (node.isRequired || value !== undefined)
          ? "Choose one of these"
          : null,
        problems, focus);
      return select.value === "" ? value : node.options[Number(select.value)];
    },
  };
}

function switchEditor(node, value, labelId) {
  const word = element("span", {}, wordOf(value === true));
  const input = element("input", {
    type: "checkbox",
    role: "switch",
    checked: value === true,
    "aria-labelledby": labelId,
    onchange: () => setText(word, wordOf(input.checked))
  });
  return {
    element: element("label", {class: "switch"}, input, word),
    focus: () => input.focus(),
    read: () => input.checked
  };
}

function rangeText(node) {
  const what = node.isWhole ? "a whole number" : "a number", {least, most} = node;
  const low = least === undefined ? ""
    : node.isAbove                ? `above ${least}`
                                  : `from ${least}`,
        high = most === undefined ? ""
                   : node.isBelow                ? `below ${most}`
                                                 : `up to ${most}`;
  return [what, low, high].filter(part => part).join(" ");
}

function isInRange(node, number) {
  if (!Number.isFinite(number) || (node.isWhole && !Number.isInteger(number))) return false;
  const {least = -Infinity, most = Infinity} = node;
  return (node.isAbove ? number > least : number >= least)
    && (node.isBelow ? number < most : number <= most);
}

function numberEditor(node, value, labelId) {
  const hintId = newId(), before = typeof value === "number" ? String(value) : "";
  const input = element("input", {
    type: "number",
    value: before,
    step: node.isWhole ? 1 : "any",
    min: node.least,
    max: node.most,
    "aria-labelledby": labelId,
    "aria-describedby": hintId
  });
  const problem = problemOf(input), focus = () => (input.focus(), input.select());
  return {
    element: [
      element("div", {class: "figure"}, input,
        element("span", {id: hintId, class: "range"}, rangeText(node))),
      problem.element
    ],
    focus,
    read(problems) {
      const isUntouched = input.value === before && !input.validity.badInput,
            isEmpty = input.value === "" && !input.validity.badInput;
      const isAbsent = isEmpty && (node.isNullable || !node.isRequired);
      const isWrong = !isAbsent && !isInRange(node, input.valueAsNumber);
      problem.tell(isWrong ? `This is ${rangeText(node)}` : null, problems, focus);
      if (isUntouched) return value;
      return isEmpty ? (node.isNullable ? null : undefined) : input.valueAsNumber;
    },
  };
}

function lengthTrouble(node, text) {
  const length = [...text].length;
  if (length < node.shortest) return `At least ${node.shortest} characters; it has ${length}`;
  if (node.longest !== undefined && length > node.longest)
    return `At most ${node.longest} characters; it has ${length}`;
  return null;
}

function textEditor(node, value, labelId) {
  const before = value === undefined || value === null ? "" : wordOf(value),
        rows = before.split("\n").reduce(
          (sum, line) => sum + Math.ceil((line.length + 1) / COLUMNS), 0);
  const area = element("textarea",
    {rows: Math.min(Math.max(rows, 1), ROWS_MAX), "aria-labelledby": labelId, value: before});
  // a control changes line ends: it is compared with itself
  const start = area.value, problem = problemOf(area), focus = () => area.focus();
  return {
    element: [area, problem.element],
    focus,
    read(problems) {
      const now = area.value === start ? value : area.value;
      problem.tell(typeof now === "string" ? lengthTrouble(node, now) : null, problems, focus);
      return now === "" && value === null && node.isNullable ? null : now;
    },
  };
}

function jsonEditor(node, value, labelId) {
  const before = value === undefined ? "" : JSON.stringify(value, null, 2);
  const area = element("textarea", {
    rows: Math.min(before.split("\n").length + 1, ROWS_MAX),
    class: "json",
    spellcheck: "false",
    "aria-labelledby": labelId,
    value: before
  });
  const problem = problemOf(area), focus = () => area.focus();
  return {
    element: [area, problem.element],
    focus,
    read(problems) {
      let now = value;
      try {
        if (area.value !== before)
          now = area.value.trim() === "" ? undefined : JSON.parse(area.value);
        problem.tell(null);
      } catch {
        problem.tell("This is no JSON", problems, focus);
      }
      return now;
    },
  };
}

/**
 * Entries below each other, each with a control of its own. Enter in a text begins the next entry.
 */
function listEditor(node, value, labelId) {
  const rows = [], start = Array.isArray(value) ? value : [];
  const list = element("ul", {class: "entries"}),
        adding = element("button",
          {type: "button", onclick: () => add(undefined, rows.length, true)}, "Add an entry");
  const box = element("div", {role: "group", "aria-labelledby": labelId}, list, adding),
        problem = problemOf(box);
  const focus = () => (rows[0]?.editor ?? {focus: () => adding.focus()}).focus();

  function add(item, at, isFocused) {
    const id = newId(), shape = {...node.itemOf(item, start[0]), isRequired: true};
    const editor = editorOf(shape, item, `${labelId} ${id}`);
    const row = {
      editor,
      isText: shape.kind === "text",
      element: element("li", {onkeydown: event => onKey(event, row)},
        element("span", {id, class: "hidden"}, "entry"),
        element("div", {class: "entry"}, editor.element),
        element("button", {type: "button", class: "more", onclick: () => remove(row)}, "Remove"))
    };
    rows.splice(at, 0, row);
    list.insertBefore(row.element, list.children[at] ?? null);
    if (isFocused) editor.focus();
  }

  function remove(row) {
    const at = rows.indexOf(row);
    rows.splice(at, 1);
    row.element.remove();
    (rows[Math.min(at, rows.length - 1)]?.editor ?? {focus: () => adding.focus()}).focus();
  }

  function onKey(event, row) {
    if (!row.isText || event.target.tagName !== "TEXTAREA" || event.ctrlKey || event.metaKey
      || event.isComposing)
      return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      add(undefined, rows.indexOf(row) + 1, true);
    } else if (event.key === "Backspace" && event.target.value === "" && rows.length > 1) {
      event.preventDefault();
      remove(row);
    }
  }

  start.forEach((item, at) => add(item, at, false));
  return {
    element: [box, problem.element],
    focus,
    read(problems) {
      const now = rows.map(row => row.editor.read(problems))
                    .filter((item, at) => item !== undefined
                        && !(rows[at].isText && item === "" && !start.includes("")));
      const isFew = now.length < node.fewest,
            isMany = node.most !== undefined && now.length > node.most;
      problem.tell(isFew ? `At least ${node.fewest} entries`
          : isMany ? `At most ${node.most} entries`
                   : null,
        problems, focus);
      return value === undefined && !now.length ? undefined : now;
    },
  };
}

/** A group of fields. `fields` has the editor of each by its name. */
export function groupEditor(node, value, labelId = null) {
  const has = value !== null && typeof value === "object" ? value : {}, fields = new Map();
  const box = element("div", {class: "group", role: labelId && "group", "aria-labelledby": labelId},
    node.fields.map(field => {
      const id = newId(), editor = editorOf(field, has[field.name], id);
      fields.set(field.name, editor);
      return element("div", {
        class: "field",
        "data-kind": field.kind,
        "data-reason": field.isReason,
        "data-name": field.name
      },
        element("div", {id, class: "label", onclick: () => editor.focus()}, field.label),
        field.hint && element("p", {class: "hint"}, field.hint), editor.element);
    }));
  return {
    element: box,
    fields,
    focus: () => fields.values().next().value?.focus(),
    read(problems) {
      const read = {...has};
      for (const [name, editor] of fields) {
        const now = editor.read(problems);
        if (now === undefined) delete read[name];
        // a field may be called __proto__
        else
          Object.defineProperty(
            read, name, {value: now, enumerable: true, configurable: true, writable: true});
      }
      return value === undefined && isSame(read, {}) ? undefined : read;
    },
  };
}

/** A value of another type than its schema has is a choice still to be made, or JSON. */
function editorOf(node, value, labelId) {
  if (node.kind === "choice")
    return node.options.length > OPTIONS_AS_BUTTONS ? selectEditor(node, value, labelId)
                                                    : choiceEditor(node, value, labelId);
  if (node.kind === "switch")
    return typeof value === "boolean"
      ? switchEditor(node, value, labelId)
      : choiceEditor({...node, options: [true, false]}, value, labelId);
  if (node.kind === "number") return numberEditor(node, value, labelId);
  const isScalar = value === undefined || value === null || typeof value !== "object";
  if (node.kind === "text" && isScalar) return textEditor(node, value, labelId);
  if (node.kind === "list" && (value === undefined || Array.isArray(value)))
    return listEditor(node, value, labelId);
  if (node.kind === "group" && (value === undefined || (!isScalar && !Array.isArray(value))))
    return groupEditor(node, value, labelId);
  return jsonEditor(node, value, labelId);
}
