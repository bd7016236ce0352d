# SPDX-License-Identifier: Apache-2.0
"""`quern erase`: one person's lines go, the manifest proves all others, whatever cuts it short."""
import hashlib, json, os, pathlib, random, shutil, sys

import pytest

import support
from test_proof import Home

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

SEED = support.SEED
LINES = 30
NAMES = ("in.jsonl", "out.jsonl", "out.jsonl.manifest.json", "out.jsonl.manifest.salts.json")
WHO = "line-00007 é"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def made(home):
    folder = home.folder / "run"
    folder.mkdir()
    (folder / "in.jsonl").write_bytes(support.jsonl(life.echo_lines(LINES)))
    (folder / "judged.jsonl").write_bytes(support.jsonl(
        [{"custom_id": f"line-{i % LINES:05d} é", "judgement": {"verdict": "accepted"},
          "curator": "anna" if i < LINES else "ben"} for i in range(2 * LINES)]))
    home.run(folder, "--model", "smollm2=echo")
    return folder


def verify(home, folder):
    return home.verify(folder, "--input", folder / "in.jsonl", "--skip-models")


def erase(home, folder, *arguments, status=0):
    done = home.quern("erase", folder / "out.jsonl", "--input", folder / "in.jsonl", *arguments)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def lines_of(path):
    return path.read_bytes().split(b"\n")[:-1]


def salt_of(nodes, line):
    """The salt of a line from 0, as line_salts.h says; None if it was taken out."""
    for node in nodes:
        level, index, seed = node.split()
        level, seed = int(level), bytes.fromhex(seed)
        if line >> 32 - level != int(index):
            continue
        for below in range(level + 1, 33):
            seed = hashlib.sha256(seed + bytes([line >> 32 - below & 1])).digest()
        return seed
    return None


def check_by_hand(folder):
    """The sums of a manifest by thirty lines of Python, without quern; the erased lines."""
    manifest = json.loads((folder / "out.jsonl.manifest.json").read_text())
    salts = json.loads((folder / "out.jsonl.manifest.salts.json").read_text())
    assert salts["manifest_sha256"] == hashlib.sha256(
        (folder / "out.jsonl.manifest.json").read_bytes()).hexdigest()
    gone = {}
    for what, name in (("input", "in.jsonl"), ("output", "out.jsonl")):
        leaves = {}
        for erasure in salts["erasures"]:
            leaves |= {int(text.split()[0]): text.split()[1] for text in erasure["files"][what]}
        whole = hashlib.sha256()
        for i, line in enumerate(lines_of(folder / name)):
            salt = salt_of(salts["salts"][what], i)
            assert (salt is None) == (i + 1 in leaves) and (salt or not line)
            leaf = hashlib.sha256(salt + line + b"\n").hexdigest() if salt else leaves[i + 1]
            whole.update(leaf.encode() + b"\n")
        assert whole.hexdigest() == manifest[what]["lines_sha256"]
        assert manifest[what]["lines"] == LINES
        gone[what] = sorted(leaves)
    return gone


def test_one_persons_lines_go_and_all_others_stay_proven(home, copy):
    before = {name: (copy / name).read_bytes() for name in NAMES}
    others = {name: [line for line in lines_of(copy / name) if WHO[:10].encode() not in line]
              for name in ("in.jsonl", "out.jsonl", "judged.jsonl")}
    assert check_by_hand(copy) == {"input": [], "output": []}
    said = erase(home, copy, "--custom-id", WHO, "--reason", "asked by mail of 2 May",
                 "--judgements", copy / "judged.jsonl")
    assert "1 request was erased, 4 lines in all files" in said and "Backups" in said
    for name, kept in others.items():
        assert [line for line in lines_of(copy / name) if line] == kept
        assert lines_of(copy / name)[7] == b""
    assert (copy / NAMES[2]).read_bytes() == before[NAMES[2]]
    said, _ = verify(home, copy)
    [record] = said["erasures"]
    assert said["is_good"] and record["reason"] == "asked by mail of 2 May"
    assert record["requests"] == 1
    assert record["others"] == [{"name": "judged.jsonl", "lines": 2}]
    assert "line-00007" not in (copy / NAMES[3]).read_text()
    assert check_by_hand(copy) == {"input": [8], "output": [8]}
    words = home.quern("verify", copy / "out.jsonl", "--input", copy / "in.jsonl",
                       "--skip-models").stdout
    assert "erased   1 request with its result on " in words
    assert "all other lines are those of the manifest of " in words
    assert not list(copy.glob("*.erasing"))


def test_no_guess_of_the_erased_line_can_be_checked(home, copy):
    """What stays is the same for each guess: no sum of a file, no size, no salt."""
    line = lines_of(copy / "in.jsonl")[7] + b"\n"
    whole = [hashlib.sha256((copy / name).read_bytes()).hexdigest() for name in NAMES[:2]]
    sizes = [str((copy / name).stat().st_size) for name in NAMES[:2]]
    salts = json.loads((copy / NAMES[3]).read_text())["salts"]
    secret = [salt_of(salts[what], 7) for what in ("input", "output")]
    assert all(secret)
    # as runs leave them that are killed while they write their salts
    shutil.copy(copy / NAMES[3], copy / f"{NAMES[3]}.4711.tmp")
    shutil.copy(copy / NAMES[3], copy / f"{NAMES[3]}.12.tmp")
    erase(home, copy, "--custom-id", WHO)
    assert not list(copy.glob("*.tmp"))
    kept = "".join((copy / name).read_text() for name in NAMES[2:])
    assert not any(sum_ in kept for sum_ in whole)
    assert not any(f'": {size}' in kept for size in sizes)
    assert hashlib.sha256(line).hexdigest() not in kept
    assert not any(salt.hex() in kept for salt in secret)
    for what, root in salts.items():
        seed = bytes.fromhex(root[0].split()[2])
        for below in range(1, 33):
            assert seed.hex() not in kept, (what, below)
            seed = hashlib.sha256(seed + bytes([7 >> 32 - below & 1])).digest()


@pytest.mark.parametrize("draw", range(4))
def test_each_of_200_changed_bytes_after_an_erasure_is_found(home, copy, draw):
    """Four times fifty changes, in each file of the run."""
    rng = random.Random(f"{SEED} {draw}")
    print(f"seed {SEED}")
    erase(home, copy, "--custom-id", WHO, "--custom-id", "line-00029 é")
    for _ in range(50):
        path = copy / rng.choice(NAMES)
        keep = path.read_bytes()
        content = bytearray(keep)
        at = rng.randrange(len(content))
        content[at] ^= rng.randrange(1, 256)
        path.write_bytes(content)
        said, words = verify(home, copy)
        assert not (said and said["is_good"]), f"{path.name}, byte {at}"
        assert said or path.name in words
        path.write_bytes(keep)
    assert verify(home, copy)[0]["is_good"]


def test_a_second_erasure_and_then_all(home, copy):
    erase(home, copy, "--custom-id", WHO)
    words = erase(home, copy, "--custom-id", WHO, status=4)
    assert "--custom-id: no line of " in words and "nothing was erased" in words
    (copy / "ids").write_text("line-00000 é\n\nline-00029 é\nline-00000 é\n")
    assert "2 requests were erased" in erase(home, copy, "--ids", copy / "ids")
    assert check_by_hand(copy) == {"input": [1, 8, 30], "output": [1, 8, 30]}
    rest = [f"line-{i:05d} é" for i in range(LINES) if i not in (0, 7, 29)]
    (copy / "ids").write_text("\n".join(rest))
    erase(home, copy, "--ids", copy / "ids")
    assert (copy / "in.jsonl").read_bytes() == (copy / "out.jsonl").read_bytes() == b"\n" * LINES
    said, _ = verify(home, copy)
    assert said["is_good"] and [one["requests"] for one in said["erasures"]] == [1, 2, 27]


def test_what_cannot_be_erased_changes_nothing(home, copy, made, tmp_path):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    (tmp_path / "ids").write_text("line-00001 é\nnobody\n")
    words = erase(home, copy, "--ids", tmp_path / "ids", status=4)
    assert f"--ids {tmp_path}/ids, line 2: no line of " in words and '"nobody"' in words
    os.link(copy / "out.jsonl", tmp_path / "other")
    assert "hard links" in erase(home, copy, "--custom-id", WHO, status=3)
    os.unlink(tmp_path / "other")
    (copy / "out.jsonl.quern").mkdir()
    assert "has not ended" in erase(home, copy, "--custom-id", WHO, status=3)
    (copy / "out.jsonl.quern").rmdir()
    (copy / "out.jsonl").write_bytes(before["out.jsonl"].replace(b"lantern", b"lanterN", 1))
    assert "nothing was erased" in erase(home, copy, "--custom-id", WHO, status=3)
    (copy / "out.jsonl").write_bytes(before["out.jsonl"])
    (tmp_path / "table.csv").write_text("custom_id,name\nx,anna\n")
    words = erase(home, copy, "--custom-id", WHO, "--judgements", tmp_path / "table.csv", status=3)
    assert "table.csv, line 1: it is no JSON object" in words and "judgements" in words
    os.rename(copy / NAMES[3], tmp_path / "salts")
    assert "is missing" in erase(home, copy, "--custom-id", WHO, status=3)
    said, _ = verify(home, copy)
    assert [file["what"] for file in said["files"] if file["state"] == "missing"] == ["salts"]
    os.rename(tmp_path / "salts", copy / NAMES[3])
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    other = Home(tmp_path / "other-home")
    assert "there is no key" in erase(other, copy, "--custom-id", WHO, status=3)
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(life.echo_lines(1)))
    other.run(tmp_path, "--model", "smollm2=echo")
    assert "not a trusted key" in erase(other, copy, "--custom-id", WHO, status=3)


def test_a_kill_at_any_call_leaves_the_old_files_or_the_new_ones(home, made, tmp_path):
    """Killed before each system call in turn; the same command ends what was begun."""
    old = {name: (made / name).read_bytes() for name in (*NAMES, "judged.jsonl")}
    states = {"old": 0, "between": 0, "new": 0}
    for number in range(1, 1000):
        folder = tmp_path / str(number)
        shutil.copytree(made, folder)
        command = ("erase", folder / "out.jsonl", "--input", folder / "in.jsonl", "--custom-id",
                   WHO, "--judgements", folder / "judged.jsonl")
        done = support.quern(*command, env=home.variables | {"QUERN_FAULT": f"any:{number}:KILL"})
        if done.returncode == 0:
            break
        said, _ = verify(home, folder)
        is_old = all((folder / name).read_bytes() == content for name, content in old.items())
        if any(file["what"] == "erasing" for file in said["files"]):
            state = "between"
        else:
            state = "old" if is_old else "new"
            assert said["is_good"] and len(said["erasures"]) == (state == "new"), number
        states[state] += 1
        done = home.quern(*command)
        assert done.returncode == (4 if state == "new" else 0), (number, state, done.stderr)
        said, _ = verify(home, folder)
        assert said["is_good"] and len(said["erasures"]) == 1, number
        assert not list(folder.glob("*.erasing")) and check_by_hand(folder)["input"] == [8]
        assert all(WHO[:10].encode() not in path.read_bytes() for path in folder.iterdir())
        shutil.rmtree(folder)
    assert states["old"] > 10 and states["between"] > 5, states
    print(states)


def test_a_file_that_was_changed_after_a_kill_is_not_overwritten(home, copy):
    command = ("erase", copy / "out.jsonl", "--input", copy / "in.jsonl", "--custom-id", WHO)
    for number in range(1, 1000):
        support.quern(*command, env=home.variables | {"QUERN_FAULT": f"any:{number}:KILL"})
        if (copy / "out.jsonl.manifest.json.erasing").exists():
            break
    [waiting] = [path for path in copy.glob("in.jsonl.erasing")]
    (copy / "in.jsonl").write_text("mine\n")
    done = home.quern("erase", copy / "out.jsonl")
    assert done.returncode != 0 and "was changed since" in done.stderr
    assert (copy / "in.jsonl").read_text() == "mine\n" and waiting.exists()


def test_a_batch_of_a_server_is_refused_by_name(home, tmp_path):
    whole = {"object": "quern.manifest", "version": 1, "batch": {"id": "batch_1"}}
    (tmp_path / "b.manifest.json").write_text(json.dumps(whole, indent=2) + "\n")
    done = home.quern("erase", tmp_path / "b.manifest.json", "--custom-id", "a")
    assert done.returncode == 3 and "server's batch" in done.stderr, done.stderr


def log(home, folder, *arguments, status=0):
    done = home.quern("log", folder / "out.jsonl", "--input", folder / "in.jsonl", *arguments)
    assert done.returncode == status, done.stderr
    return done.stdout if status != 4 else done.stderr


def test_a_decision_log_says_what_was_asked_answered_and_judged(home, copy):
    arguments = ("--custom-id", WHO, "--judgements", copy / "judged.jsonl")
    is_ = json.loads(log(home, copy, *arguments, "--format", "json"))
    request = life.echo_lines(LINES)[7]
    assert is_["is_proven"] and is_["custom_id"] == WHO and is_["request"] == request
    assert is_["result"] == json.loads(lines_of(copy / "out.jsonl")[7])
    assert [one["curator"] for one in is_["judgements"]] == ["anna", "ben"]
    sections = {section["heading"]: {entry["label"]: entry["text"] for entry in section["entries"]}
                for section in is_["sections"]}
    assert list(sections) == ["What was asked", "What answered", "What was answered",
                              "Who judged it", "Whether this is what the run made"]
    asked = request["body"]["messages"][-1]["content"]
    assert sections["What was asked"]["Question (user)"] == asked
    assert sections["What was answered"]["Answer"] == asked
    assert sections["What answered"]["Model"] == "smollm2"
    assert sections["Who judged it"]["Person"] == "ben"
    text = log(home, copy, *arguments)
    page = log(home, copy, *arguments, "--format", "html")
    for heading, entries in sections.items():
        assert heading in text and f"<h2>{heading}</h2>" in page
        assert all(f"{label}:\n" in text for label in entries)
    assert "In short:\n  verified: " in text and "none is known" in log(home, copy, *arguments[:2])


def test_a_log_is_safe_to_print_and_to_open(home, tmp_path):
    line = life.echo_lines(1)[0]
    line["body"]["messages"][-1]["content"] = "<script>x</script>\x1b[2J & \"ä\"\nline two"
    line["body"] |= {"max_tokens": 99, "temperature": 0.5}
    (tmp_path / "in.jsonl").write_bytes(support.jsonl([line]))
    home.run(tmp_path, "--model", "smollm2=echo")
    arguments = ("--custom-id", line["custom_id"])
    text = log(home, tmp_path, *arguments)
    page = log(home, tmp_path, *arguments, "--format", "html")
    assert "\x1b" not in text and "\\x1b" in text and "\n  line two\n" in text
    assert "How strong chance was (temperature):\n  0.5\n" in text
    assert "pieces of words (max_tokens):\n  99\n" in text
    assert "<script>" not in page and "&lt;script&gt;" in page and "ä" in page


def test_a_log_of_changed_files_says_so_and_erased_ones_have_none(home, copy):
    content = (copy / "out.jsonl").read_bytes()
    (copy / "out.jsonl").write_bytes(content.replace(b"lantern", b"lanterN", 1))
    assert "NOT verified" in log(home, copy, "--custom-id", WHO, status=10)
    (copy / "out.jsonl").write_bytes(content)
    words = log(home, copy, "--custom-id", "nobody", status=4)
    assert "--custom-id nobody: no line of " in words
    erase(home, copy, "--custom-id", WHO)
    assert "were erased" in log(home, copy, "--custom-id", WHO, status=4)
    assert "on 20" in log(home, copy, "--custom-id", "line-00001 é")
    done = home.quern("log", copy / "out.jsonl", "--custom-id", "x", "--format", "pdf")
    assert done.returncode == 2 and "--format pdf" in done.stderr


def test_a_replay_after_an_erasure_computes_the_lines_that_are_left(home, tmp_path):
    import gguf_of
    from test_proof import FAMILY, lines_of as token_lines
    gguf_of.convert(FAMILY, tmp_path / "m.gguf")
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(token_lines(6)))
    home.run(tmp_path, "--model", f"m={tmp_path}/m.gguf", "--device", "cpu")
    erase(home, tmp_path, "--custom-id", "c0")
    _, said = home.replay(tmp_path, "--lines", "6")
    assert said["lines"] == 5 and said["unexplained"] == 0, said
    assert {line["custom_id"] for line in said["compared"]} == {"c1", "c2", "c3", "c4", "c5"}
