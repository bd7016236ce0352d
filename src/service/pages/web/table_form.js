// SPDX-License-Identifier: Apache-2.0
// table_form: from a table to a file of requests: a template with the names of columns, the first
// rows as they will be asked, and the requests of all rows. sheet.js reads and makes them, in this
// browser; the server gets the requests.

import {models} from "/pages/api.js";
import {element, fill, longText} from "/pages/dom.js";
import {bytes, count} from "/pages/figures.js";
import {
  columnsOf,
  eachRow,
  lineOf,
  requestsOf,
  separatorOf,
  strangers,
  Unreadable
} from "/pages/sheet.js";

const HEAD_BYTES = 64 << 10; // in which the separator shows
const SHOWN_ROWS = 3;
const SHOWN_COLUMNS = 40;         // as buttons; the others can be written
const SHOWN_CHARACTERS = 2000;    // the most of a message in the preview
const PIECE_CHARACTERS = 1 << 20; // the size of a Blob of requests
const PAUSE_MS = 250;             // after the last key before the preview follows
const SEPARATORS = [[",", "comma"], [";", "semicolon"], ["\t", "tab"]];

/** The columns of a table and its first rows. */
async function beginningOf(file, separator) {
  let columns = null;
  const rows = [];
  await eachRow(file, separator, row => {
    if (!columns)
      columns = columnsOf(row);
    else
      rows.push(row);
    return rows.length < SHOWN_ROWS;
  });
  if (rows.length === 0) throw new Unreadable("The table has no row but its header");
  return {columns, rows};
}

/** The requests of all rows as a file; told(bytes) says how much of the table is read. */
async function requestFile(file, separator, wish, told) {
  const parts = [], ids = new Set();
  let make = null, text = "";
  await eachRow(file, separator, (row, number) => {
    if (!make)
      make = requestsOf(columnsOf(row), wish);
    else {
      const request = make(row, number);
      if (ids.has(request.custom_id))
        throw new Unreadable(
          `Line ${row.line}: the id "${request.custom_id}" is that of an earlier row`);
      ids.add(request.custom_id);
      text += lineOf(request);
    }
    if (text.length < PIECE_CHARACTERS) return;
    parts.push(new Blob([text])); // which the browser keeps outside of the page's memory
    text = "";
  }, told);
  const name = file.name.replace(/\.[^.]*$/, ".jsonl");
  return new File([...parts, text], name, {type: "application/jsonl"});
}

const field = (text, input) => [element("label", {for: input.id
}, text), input];

/**
 * The form for a table; made(file, name) is called with the requests, cancelled() when the reader
 * wants none.
 */
export async function tableForm(file, made, cancelled) {
  const known = (await models()).data.map(model => model.id);
  const first = separatorOf(await file.slice(0, HEAD_BYTES).text(), file.name);
  const separator = element("select", {id: "table-separator", onchange: read},
    [...SEPARATORS, ...(SEPARATORS.some(([sign]) => sign === first) ? [] : [[first, first]])].map(
      ([sign, text]) => element("option", {value: sign, selected: sign === first}, text)));
  const model = element("select", {id: "table-model", required: true},
    known.map(id => element("option", {value: id}, id)));
  const prompt = element(
    "textarea", {id: "table-prompt", rows: 5, required: true, "aria-describedby": "table-how"});
  const system = element("textarea", {id: "table-system", rows: 2});
  const id = element("select", {id: "table-id"});
  const tokens = element("input", {id: "table-tokens", type: "number", min: 1, step: 1});
  const schema = element("textarea", {id: "table-schema", rows: 3, spellcheck: "false"});
  const names = element("div", {class: "buttons", role: "group", "aria-label": "Columns"});
  const preview = element("div", {class: "preview"}),
        trouble = element("p", {class: "trouble", role: "alert"}),
        bar = element("progress", {max: file.size, value: 0, "aria-label": "Rows", hidden: true}),
        make = element("button", {type: "submit"}, "Make the requests");
  let table = null, timer = 0;

  const form = element("form", {class: "start", onsubmit: submit, oninput: later},
    field("Separator of the cells", separator), field("Model", model),
    field("Prompt of each row", prompt),
    element("p", {id: "table-how", class: "quiet"},
      "A column's name in braces stands for its cell: {name}. A button below writes it."),
    names,
    element("details", {}, element("summary", {}, "More"),
      element("div", {class: "limits"}, field("Instructions (the message of the system)", system),
        field("Id of a request", id), field("Tokens of an answer, at most", tokens),
        field("JSON schema of the answers", schema))),
    preview, bar, trouble,
    element("div", {class: "buttons"}, make,
      element("button", {type: "button", onclick: cancelled}, "Not now")));

  function insert(name) {
    prompt.setRangeText(`{${name}}`, prompt.selectionStart, prompt.selectionEnd, "end");
    prompt.focus();
    show();
  }

  /** Reads the header and the first rows, with the separator that is chosen. */
  async function read() {
    fill(trouble);
    try {
      table = await beginningOf(file, separator.value);
    } catch (error) {
      table = null;
      if (!(error instanceof Unreadable)) throw error;
      fill(trouble, error.message);
    }
    const columns = table?.columns ?? [];
    fill(names,
      columns.slice(0, SHOWN_COLUMNS)
        .map(name => element(
               "button", {type: "button", class: "more", onclick: () => insert(name)}, name)),
      columns.length > SHOWN_COLUMNS
        && element("span", {class: "quiet"}, `and ${count(columns.length - SHOWN_COLUMNS)} more`));
    fill(id, element("option", {value: ""}, "the number of its row"),
      columns.map(name => element("option", {value: name}, name)));
    show();
  }

  function wish() {
    let shape = null;
    try {
      shape = schema.value.trim() ? JSON.parse(schema.value) : null;
    } catch {
      throw new Unreadable("The JSON schema is not JSON");
    }
    if (shape !== null && (typeof shape !== "object" || Array.isArray(shape)))
      throw new Unreadable("The JSON schema is no object");
    return {
      prompt: prompt.value,
      system: system.value.trim() ? system.value : "",
      id: id.value,
      model: model.value,
      maxTokens: Number(tokens.value) || null,
      schema: shape
    };
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(show, PAUSE_MS);
  }

  /** The first rows as they will be asked, or why they cannot. */
  function show() {
    clearTimeout(timer);
    make.disabled = !table;
    fill(preview);
    if (!table) return;
    fill(trouble);
    if (!prompt.value.trim()) return;
    try {
      const request = requestsOf(table.columns, wish());
      const unknown = strangers(prompt.value + system.value, table.columns);
      fill(preview, element("h3", {}, "The first rows, as they will be asked"),
        unknown.length > 0
          && element("p", {class: "quiet"},
            `No column of the table: ${
              unknown.map(name => `{${name}}`).join(", ")}. It stays as it `
              +
              "is written."),
        table.rows.map((row, at) => {
          const {custom_id: name, body} = request(row, at + 1);
          return element("section", {class: "message"}, element("p", {class: "role"}, `Id ${name}`),
            body.messages.map(
              ({role, content}) => element("p", {class: "text"},
                role === "system" && element("span", {class: "role"}, "Instructions: "),
                longText(content, SHOWN_CHARACTERS))));
        }));
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      make.disabled = true;
      fill(trouble, error.message);
    }
  }

  async function submit(event) {
    event.preventDefault();
    make.disabled = true;
    bar.hidden = false;
    try {
      await made(
        await requestFile(file, separator.value, wish(), read => bar.value = read), file.name);
    } catch (error) {
      fill(trouble, error.message);
    }
    make.disabled = false;
    bar.hidden = true;
  }

  await read();
  return [
    element("h2", {}, file.name),
    element("p", {class: "quiet"},
      `A table of ${bytes(file.size)}. Each row becomes a request; the answers then have the row ` +
        "next to them."),
    known.length === 0
      && element("p", {class: "trouble"}, "This server has no model that could be asked."),
    form
  ];
}
