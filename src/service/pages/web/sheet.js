// SPDX-License-Identifier: Apache-2.0
// sheet: a table as CSV, and the requests that a template makes of its rows. It reads as
// app/table/csv_reader does, strictly, and makes the lines that `quern table --prompt` makes;
// tests/api/test_sheet.py holds both to each other. It knows no page.

const ROW_CHARACTERS_MAX = 16 << 20;
const COLUMNS_MAX = 1000;
const PLACE = /\{\{\s*([^{}]+?)\s*\}\}|\{([^{}\n]+)\}/g;

/** A table that is no table, or a template that fits none; its sentence is for the reader. */
export class Unreadable extends Error {}

const countEnds = text => (text.match(/\r\n|\r|\n/g) ?? []).length;

/**
 * The rows of a CSV text that comes in pieces. A cell is a text, or null where it is empty without
 * quotes. feed() and end() give {line, cells} of each row that is whole.
 */
export class CsvRows {
  constructor(separator) {
    this.separator = separator;
    this.rest = "";
    this.line = 1;
    this.isFirst = true;
    // one cell, with the separator, the end of the row or the end of the text behind it
    const sign = separator.replace(/[\\\]^-]/g, "\\$&");
    this.cell = new RegExp(`"([^"]*(?:""[^"]*)*)"|([^"\\r\\n${sign}]*)`, "y");
  }

  feed(text) {
    this.rest += text;
    return this.#rows(false);
  }

  end() { return this.#rows(true); }

  #rows(isEnd) {
    const found = [];
    let at = this.isFirst ? this.#begin(isEnd) : 0;
    while (at !== null && at < this.rest.length) {
      const row = this.#row(at, isEnd);
      if (!row) break;
      if (row.cells.length > 1 || row.cells[0] !== null)
        found.push({line: this.line, cells: row.cells});
      this.line += countEnds(this.rest.slice(at, row.end));
      at = row.end;
    }
    if (at !== null) this.rest = this.rest.slice(at);
    if (this.rest.length > ROW_CHARACTERS_MAX)
      throw new Unreadable(`Line ${this.line}: a row has more than 16 MiB; a quote may be missing`);
    return found;
  }

  /** Where the first row begins: behind a byte-order mark, and a line such as "sep=;". */
  #begin(isEnd) {
    if (!isEnd && this.rest.length < 8) return null;
    this.isFirst = false;
    let at = this.rest.startsWith("\ufeff") ? 1 : 0;
    const named = /^sep=[^"\r\n](\r\n|\r|\n)/i.exec(this.rest.slice(at, at + 8));
    if (!named) return at;
    this.line = 2;
    at += named[0].length;
    return at;
  }

  #bad(at, why) {
    const before = this.rest.slice(0, at),
          end = Math.max(before.lastIndexOf("\n"), before.lastIndexOf("\r"));
    throw new Unreadable(`Line ${this.line + countEnds(before)}, column ${at - end}: ${why}`);
  }

  /** {cells, end} of the row that begins at `at`; null where its end is not there yet. */
  #row(at, isEnd) {
    const cells = [], text = this.rest;
    this.rest = text.slice(at); // so that #bad counts from this row
    try {
      for (let from = 0;;) {
        this.cell.lastIndex = from;
        const [whole, quoted, plain] = this.cell.exec(this.rest), next = from + whole.length;
        if (next === this.rest.length && !isEnd) return null;
        // a quote that none closes: the expression leaves it, or the second one of a pair, behind
        if (this.rest[next] === "\"") {
          if (quoted === undefined && next > from)
            this.#bad(next, "a quote inside a cell that does not begin with one; put the cell in " +
                              "quotes and double those inside");
          if (!isEnd) return null;
          this.#bad(from, "a quote opens the cell and none closes it");
        }
        cells.push(quoted === undefined ? plain || null : quoted.replaceAll("\"\"", "\""));
        const behind = this.rest[next];
        if (behind === this.separator) {
          from = next + 1;
          continue;
        }
        if (behind !== undefined && behind !== "\r" && behind !== "\n")
          this.#bad(next, "text follows the quote that closes the cell; a quote inside a cell is " +
                            "doubled");
        if (behind === "\r" && next + 1 === this.rest.length && !isEnd) return null;
        const isPair = behind === "\r" && this.rest[next + 1] === "\n";
        return {cells, end: at + Math.min(next + (isPair ? 2 : 1), this.rest.length)};
      }
    } finally {
      this.rest = text;
    }
  }
}

/** The separator that the first line of a table has most often; a line "sep=;" names its own. */
export function separatorOf(head, name) {
  if (/\.(tsv|tab)$/i.test(name)) return "\t";
  const text = head.replace(/^\ufeff/, ""), named = /^sep=([^"\r\n])[\r\n]/i.exec(text);
  if (named) return named[1];
  const line = text.split(/[\r\n]/, 1)[0].replace(/"(?:[^"]|"")*"/g, "");
  const often = sign => line.split(sign).length;
  return [",", ";", "\t"].reduce((best, sign) => often(sign) > often(best) ? sign : best);
}

/** The names of a header's columns; none is empty or there twice. */
export function columnsOf({line, cells}) {
  const empty = cells.indexOf(null) + 1 || cells.indexOf("") + 1;
  if (empty) throw new Unreadable(`Line ${line}: column ${empty} has no name`);
  const twice = cells.find((name, at) => cells.indexOf(name) !== at);
  if (twice !== undefined)
    throw new Unreadable(`Line ${line}: two columns have the name "${twice}"`);
  if (cells.length > COLUMNS_MAX)
    throw new Unreadable(`Line ${line}: a table has at most ${COLUMNS_MAX} columns here`);
  return cells;
}

/**
 * A template as a function of a row. {column} and {{ column }} stand for a cell; what stands in
 * braces and is no column's name is text in the first spelling, and an error in the second.
 */
export function templateOf(text, columns) {
  if (/\{%|\{#/.test(text))
    throw new Unreadable("This form fills in {column} alone. A template with conditions or loops " +
                         "({%) is for the command quern table");
  const known = new Set(columns), parts = [];
  let at = 0;
  for (const found of text.matchAll(PLACE)) {
    const [whole, doubled, single] = found;
    if (doubled !== undefined && !known.has(doubled))
      throw new Unreadable(`The table has no column "${doubled}"`);
    if (doubled === undefined && !known.has(single)) continue;
    parts.push(text.slice(at, found.index), {column: doubled ?? single});
    at = found.index + whole.length;
  }
  parts.push(text.slice(at));
  return row =>
           parts.map(part => typeof part === "string" ? part : row.get(part.column) ?? "").join("");
}

/** Names in braces that are no column: likely slips. */
export const strangers = (text,
  columns) => [...text.matchAll(PLACE)]
                .map(([, doubled, single]) => doubled ?? single)
                .filter(name => /^[\p{L}_][\p{L}\d_ .-]*$/u.test(name) && !columns.includes(name));

/**
 * A function that makes the request of a row, whose `row` is a Map. wish: {prompt, system, id,
 * model, maxTokens, schema}; all but prompt and model may be empty.
 */
export function requestsOf(columns, wish) {
  const prompt = templateOf(wish.prompt, columns),
        system = wish.system ? templateOf(wish.system, columns) : null;
  if (wish.id && !columns.includes(wish.id))
    throw new Unreadable(`The table has no column "${wish.id}"`);
  return ({line, cells}, number) => {
    if (cells.length !== columns.length)
      throw new Unreadable(
        `Line ${line}: ${cells.length} cells, and the header has ${columns.length}`);
    const row = new Map(columns.map((name, at) => [name, cells[at]]));
    if (wish.id && !row.get(wish.id))
      throw new Unreadable(`Line ${line} of the table: column "${wish.id}" is empty`);
    const messages = [];
    if (system) messages.push({role: "system", content: system(row)});
    messages.push({role: "user", content: prompt(row)});
    const body = {messages, model: wish.model};
    if (wish.maxTokens) body.max_tokens = wish.maxTokens;
    if (wish.schema)
      body.response_format = {
        type: "json_schema",
        json_schema: {name: "answer", strict: true, schema: wish.schema}
      };
    return {
      custom_id: wish.id ? row.get(wish.id) : String(number),
      method: "POST",
      url: "/v1/chat/completions",
      row,
      body
    };
  };
}

/** A request as a line. Its row keeps the order of its columns, whatever their names are. */
export function lineOf({row, ...request}) {
  const cells = [...row].map(([name, cell]) => `${JSON.stringify(name)}:${JSON.stringify(cell)}`);
  const {custom_id: id, method, url, body} = request;
  return `{"custom_id":${JSON.stringify(id)},"method":"${method}","url":"${url}","row":{${
    cells.join(",")}},"body":${JSON.stringify(body)}}\n`;
}

/**
 * Gives each row of a file to take(row, number), number from 0 on, the header; take() returns false
 * to stop. told(bytes) is called as the file is read.
 */
export async function eachRow(file, separator, take, told = () => {}) {
  const rows = new CsvRows(separator),
        decoder = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});
  let number = 0;
  const decode = (bytes, isMore) => {
    try {
      const text = decoder.decode(bytes, {stream: isMore});
      if (!text.includes("\0")) return text;
    } catch { /* the sentence below */
    }
    throw new Unreadable(`Near line ${rows.line}: the table is no text in UTF-8; save it as UTF-8`);
  };
  const PIECE = 1 << 20;
  for (let at = 0; at <= file.size; at += PIECE) {
    const isMore = at + PIECE <= file.size;
    const text = decode(await file.slice(at, at + PIECE).arrayBuffer(), isMore);
    const found = rows.feed(text);
    if (!isMore) found.push(...rows.end());
    for (const row of found)
      if (await take(row, number++) === false) return;
    told(Math.min(at + PIECE, file.size));
  }
  if (number === 0) throw new Unreadable("The table is empty: it has no header");
}
