# SPDX-License-Identifier: Apache-2.0
"""The table of the 160 cases, from the tests themselves.

  tests/contract/table.py            prints it
  tests/contract/table.py --write    puts it into README.md
"""
import ast, pathlib, re, sys

FOLDER = pathlib.Path(__file__).parent
FENCE = "<!-- the table: tests/contract/table.py --write -->"


def marks(nodes):
    """Reasons of not_there_yet and xfail among decorators or a module's pytestmark."""
    found = {}
    for node in nodes:
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and isinstance(
                    call.func, ast.Attribute) and call.func.attr in ("not_there_yet", "xfail"):
                texts = [
                    a.value
                    for a in [*call.args, *(k.value for k in call.keywords)]
                    if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                found[call.func.attr] = texts[0]
    return found


def cases():
    """(number, sentence, state, file) of every case, by number."""
    for path in sorted(FOLDER.glob("test_*.py")):
        tree = ast.parse(path.read_text())
        whole = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and node.targets[0].id == "pytestmark"]
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or not (name := re.match(
                    r"test_case_(\d{3})_", node.name)):
                continue
            paragraph = (ast.get_docstring(node) or "").partition("\n\n")[0]
            sentence = " ".join(paragraph.split())
            found = marks(whole + node.decorator_list)
            if "not_there_yet" in found:
                state = f"refused clearly: {found['not_there_yet']}"
            elif "xfail" in found:
                state = f"held, unless {found['xfail']}"
            else:
                state = "held"
            yield int(name[1]), sentence, state, path.name


def table():
    rows = ["| case | what is asserted | state | test |", "|---|---|---|---|"]
    for number, sentence, state, name in sorted(cases()):
        rows.append(
            f"| {number} | {sentence.replace('|', chr(92) + '|')} | {state} | [{name}]({name}) |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        readme = FOLDER / "README.md"
        head, _, _ = readme.read_text().partition(FENCE)
        readme.write_text(head + FENCE + "\n\n" + table())
    else:
        print(table())
