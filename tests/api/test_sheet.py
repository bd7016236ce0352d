# SPDX-License-Identifier: Apache-2.0
"""Modules of the pages that know no page, run by node: the table form's reader and template against
`quern table`, over tables that are hard to read."""
import json, shutil, subprocess

import pytest

import support

pytestmark = pytest.mark.skipif(not shutil.which("node"), reason="no node to run the page's code")
WEB = support.ROOT / "src/service/pages/web"

TABLES = {
    "plain": "id,name\n1,Ana\n2,Ben\n",
    "quoted": 'id,name\n1,"a ""b"", c"\n2,"two\nlines"\n3,""\n4,\n',
    "crlf": 'id,name\r\n1,Ana\r\n\r\n2,"x\r\ny"\r\n',
    "cr": "id,name\r1,Ana\r2,Ben",
    "mark": "\ufeffid,name\n1,Ana\n",
    "mark-quoted": '\ufeff"id","name"\n1,Ana\n',
    "no-end": 'id,name\n1,"Ana"',
    "numbers-as-names": "10,9,name\na,b,c\n",
    "prototypes": "__proto__,constructor,name\na,b,c\n",
    "one-column": "name\nAna\n\nBen\n",
    "blanks": "id, name ,name\n 1 , x , y \n",
    "wide": "id,name\n1,\U0001f600\u00e9\u2028\n",
    "sep": "sep=;\nid;name\n1;a,b\n",
}
BAD = {
    "quote-inside": 'id,name\n1,a"b\n',
    "behind-quote": 'id,name\n1,"a"b\n',
    "open-quote": 'id,name\n1,"a\n2,b\n',
    "few-cells": "id,name\n1\n",
    "many-cells": "id,name\n1,2,3\n",
    "same-name": "name,name\n1,2\n",
    "no-name": "id,,name\n1,2,3\n",
    "empty": "",
    "nul": "id,name\n1,a\0b\n",
}
TRY = """
import fs from "node:fs";
import {columnsOf, eachRow, lineOf, requestsOf, separatorOf} from "./sheet.mjs";
const said = {};
for (const [name, text] of Object.entries(JSON.parse(fs.readFileSync("tables.json")))) {
  const file = new Blob([text]), lines = [];
  let make = null;
  try {
    await eachRow(file, separatorOf(text, "t.csv"), (row, number) => {
      if (!make) make = requestsOf(columnsOf(row), {prompt: "<{name}> {{ name }} {x}", model: "m", maxTokens: 3});
      else lines.push(lineOf(make(row, number)));
    });
    said[name] = {lines: lines.join("")};
  } catch (error) {
    said[name] = {bad: error.message, kind: error.constructor.name};
  }
}
console.log(JSON.stringify(said));
"""


def test_the_page_makes_the_lines_that_quern_table_makes(tmp_path):
    (tmp_path / "sheet.mjs").write_text((WEB / "sheet.js").read_text())
    (tmp_path / "tables.json").write_text(json.dumps(TABLES | BAD))
    (tmp_path / "try.mjs").write_text(TRY)
    said = json.loads(
        subprocess.run(["node", "try.mjs"], cwd=tmp_path, capture_output=True, text=True,
                       check=True).stdout)
    (tmp_path / "prompt.jinja").write_text("<{{ name or '' }}> {{ name or '' }} {x}")
    for name, text in (TABLES | BAD).items():
        table, out = tmp_path / f"{name}.csv", tmp_path / f"{name}.jsonl"
        table.write_bytes(text.encode())
        done = support.quern("table", table, "--prompt", tmp_path / "prompt.jinja", "--body",
                             '{"model": "m"}', "--max-tokens", "3", "-o", out)
        if name in BAD:
            assert done.returncode != 0 and said[name].get("kind") == "Unreadable", (name,
                                                                                     said[name])
            continue
        assert done.returncode == 0, (name, done.stderr)
        ours = [json.loads(line) for line in said[name]["lines"].split("\n") if line]
        theirs = [json.loads(line) for line in out.read_text().split("\n") if line]
        assert ours == theirs and len(ours) > 0, name
        assert [list(line["row"]) for line in ours] == [list(line["row"]) for line in theirs], name
