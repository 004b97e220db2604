"""Reports: what a student's page says and what it must not, the page of the class, and who is alike."""

from __future__ import annotations

import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from grading_results import HIDDEN, KERNEL, KNOWN, LOADS, WRONG, answer, explain, kernel, result, ungradable

from labkit import cli, problems
from labkit.check import compare
from labkit.errors import LabkitError
from labkit.grading import csvs, gates, manual, report, results, rubric, scheme, similar, wording
from labkit.plots import small

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "solutions" / "02_gemm" / "kernels" / "gemm"


class _Page(HTMLParser):
    """The tags of a page, its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        if self.tags and self.tags[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


# --- one student -----------------------------------------------------------------------------------------


def test_a_students_page_says_what_failed_and_why_with_the_line():
    text = KERNEL.replace("    if row < M and col < N:\n", "    if True:\n")
    said = f"{KNOWN}: gemm_coalesced line 9: thread (0, 7) of block (0, 0) writes C[0, 7], outside C[5, 7]."
    counters = {LOADS: {"yours": 8.5, "optimised": 2.0, "unoptimised": 8.5}}
    page = _Page(report.student(result(items=[
        answer(right=False), kernel(fails=said, text=text, line=9), kernel("gemm--naive--numba", counters=counters),
        explain(),
    ])))  # fmt: skip
    assert said in page.text and "C[row, col] = 0" in page.text  # with the lines around
    assert "if True:" in page.text and "from numba import cuda" not in page.text
    assert "10 of 25 points; 3 more wait" in page.text
    assert "7 FLOP is too low" in page.text and "How many floating-point operations" in page.text
    assert "On the unoptimized side: 1 of 1 counter." in page.text
    assert "Sectors per global load request" in page.text and LOADS in page.text
    row = page.text[page.text.index("Sectors per global load request") :]
    assert re.search(r"\.ratio 8\.5 2 8\.5", row)
    assert "Each lane reads a row of its own." in page.text


def test_the_words_of_a_state_follow_the_counters():
    good = {LOADS: {"yours": 3.9, "optimised": 2.0, "unoptimised": 8.0}}
    page = _Page(report.student(result(items=[kernel(counters=good)]))).text
    assert "Every counter is on the optimized side." in page and "unoptimized side:" not in page


def test_a_kernel_that_is_right_and_not_what_the_rung_is_about_is_partly_right():
    item = kernel(counters={LOADS: {"yours": 8.0, "optimised": 2.0, "unoptimised": 8.0}})
    item["parts"][1].update(state="fail", points=0.0, details={"shape": {"M": 64, "N": 48}})
    item = results.item(item["id"], "kernel", item["parts"], item["counters"])
    page = _Page(report.student(result(items=[item]))).text
    assert page.count("partly right") == 2 and "6 of 10" in page
    assert "unoptimized side: 1 of 1 counter. Counted at M=64 N=48." in page


def test_a_counter_that_is_judged_by_more_than_it_reads_says_so():
    loads = {LOADS: {"yours": 2.0, "optimised": 2.0, "unoptimised": 8.0}}
    page = _Page(report.student(result(items=[kernel(counters=loads)]))).text
    assert "Atomics count as loads." in page
    lanes = {gates.LANES: {"yours": 30.0, "optimised": 31.0, "unoptimised": 17.0}}  # but more idle
    item = kernel("divergence--select--numba", counters=lanes)
    item["parts"][1].update(state="fail", points=0.0, message=f"{gates.LANES} reads 30; with what this rung is about")
    item = results.item(item["id"], "kernel", item["parts"], item["counters"])
    page = _Page(report.student(result(items=[item]))).text
    assert "On the unoptimized side: 1 of 1 counter." in page and "Judged by how many lanes stay idle in all." in page
    assert "Active lanes per instruction not right yet" in page


def test_nothing_hidden_is_in_a_students_page():
    known = kernel("gemm--naive--numba", fails=f"{KNOWN}: A[0] {WRONG}")
    made = result(
        items=[kernel(fails=f"{HIDDEN}: C[3, 1] {WRONG}"), known],
        review=[{"what": "calls torch.matmul", "where": "gemm--coalesced--numba", "line": 3}],
    )
    text = _Page(report.student(made)).text
    assert f"{HIDDEN}: C[3, 1] is wrong (3 of 99 elements are wrong)." in text
    assert f"{KNOWN}: A[0] {WRONG}" in text
    assert text.count("0.25") == 1 and "torch.matmul" not in text and "0" * 64 not in text and "f" * 64 not in text
    passed = _Page(report.student(result(items=[kernel()]))).text
    assert HIDDEN not in passed and KNOWN not in passed  # the list of shapes that were run
    failed = ungradable(state="infrastructure_error")
    failed["reason"] = "/srv/grading/.seed is damaged"
    assert "no fault of yours" in report.student(failed) and "/srv" not in report.student(failed)


def _said(problem, shape: dict, spoil) -> str:
    inputs, outputs = problem.make_inputs(shape), problem.make_outputs(shape)
    for name, tensor in outputs.items():
        tensor.copy_(problem.reference(*inputs.values()) if name else tensor)
        spoil(tensor)
    return next(compare(problem, inputs, outputs, {}, lambda kind, message, **_: message))


@pytest.mark.parametrize("spoil", [lambda t: t.view(-1)[0].add_(0.123456), lambda t: t.fill_(float("nan"))])
def test_values_go_from_what_the_check_really_says(spoil):
    """Were labkit.check to put it in other words, this would find it."""
    problem = problems.get("gemm")
    hidden = {"M": 4, "N": 3, "K": 2}
    assert hidden not in problem.shapes
    message = _said(problem, hidden, spoil)
    want = re.search(r"want (-?[\d.]+(?:e-?\d+)?)", message)[1].rstrip(".")
    item = kernel()
    told = wording.told(item, f"M=4 N=3 K=2: {message}")
    assert want not in told and "want" not in told and "error" not in told and "C[0, 0]" in told, told
    known = dict(problem.dims_of(problem.shapes[0]))
    label = " ".join(f"{d}={v}" for d, v in known.items())
    assert wording.told(item, f"{label}: {message}") == f"{label}: {message}"


HOSTILE = "</pre><script>alert(1)</script><img src=http://evil/x onerror=alert(2)>\" onmouseover='x"


def test_what_a_submission_says_stays_text_and_pages_load_nothing():
    made = result(
        HOSTILE, [kernel(fails=HOSTILE, text=HOSTILE, line=1), explain(text=HOSTILE), answer()], faults=[HOSTILE],
        review=[{"what": HOSTILE, "where": HOSTILE, "line": None}],
    )  # fmt: skip
    other = made | {"submission": "b"}
    pair = similar.Pair(HOSTILE, "b", {"explain": 1.0}, ("gemm--naive--explain",))
    names = report.pages([HOSTILE, "b"])
    for text in (report.student(made), report.overview([made, other, ungradable()], [pair], names)):
        page = _Page(text)
        assert not {"script", "img", "iframe", "link", "object", "base", "form"} & set(page.tags)
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        links = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
        assert not [link for link in links if "evil" in link and link.startswith("http")]
        assert "default-src 'none'" in text and "alert(1)" in page.text


# --- the class -------------------------------------------------------------------------------------------


def test_items_say_each_sentence_once():
    late = [results.part(name, 1.0, "missing", "Nothing was handed in here.") for name in ("correct", "structure")]
    made = result(items=[results.item("gemm--coalesced--numba", "kernel", late, state="missing")])
    assert csvs.items([made]).count("Nothing was handed in here.") == 1


def test_the_class_page_counts_states_and_names_who_needs_a_look():
    found = [
        result("ada", [kernel(), answer()]), result("bob", [kernel(fails=f"{KNOWN}: no."), answer()], seconds=99.0),
        result("cyd", [kernel(), answer(right=False)],
               review=[{"what": "calls torch.matmul", "where": "gemm--coalesced--numba", "line": 12}]),
        ungradable("eve"), result("fay", [answer()], faults=["a.ipynb is broken at line 7.", *"ABC"]),
    ]  # fmt: skip
    faults = _Page(report.overview(found, [])).text
    assert "fay a.ipynb is broken at line 7. A B And 1 more, on the student's page." in faults
    page = _Page(report.overview(found[:-1], [], report.pages(["ada"])))
    assert "Faults of notebooks" not in page.text
    assert "4 submissions: 3 graded, 1 ungradable." in page.text
    assert "Median 10 of 12 points; from 2 to 12." in page.text
    assert "eve ungradable eve.ipynb is no notebook" in page.text
    assert "cyd gemm--coalesced--numba 12 calls torch.matmul" in page.text
    assert ("href", "ada.html") in page.attributes
    slow = page.text[page.text.index("Slow to grade") :]
    assert slow.index("bob") < slow.index("ada")
    assert ("aria-label", "2 pass, 1 fail") in page.attributes


def test_the_command_writes_pages_tables_and_formats(tmp_path, capsys):
    made = [result("ada"), result("bob"), ungradable(), ungradable("fay", "infrastructure_error")]
    for one in made:
        results.write(tmp_path, one)
    assert cli.main(["report", str(tmp_path), "--gradescope", "--prairielearn"]) == 0
    folder = tmp_path / "report"
    assert {p.name for p in (folder / "students").iterdir()} == {f"{n}.html" for n in ("ada", "bob", "eve", "fay")}
    for name in ("gradescope", "prairielearn"):
        assert {p.name for p in (folder / name).iterdir()} == {"ada.json", "bob.json", "eve.json"}
    assert "fay was not graded" in capsys.readouterr().err
    assert (folder / "items.csv").read_text() == csvs.items(made)
    row = "ada,gemm--naive--explain,"
    given = (tmp_path / manual.FILE).read_text().replace(f"{row},", f"{row}3,Good.")
    (tmp_path / manual.FILE).write_text(given)
    assert cli.main(["report", str(tmp_path)]) == 0
    page = _Page((folder / "students" / "ada.html").read_text()).text
    assert "15 of 15 points." in page and "Good." in page
    assert "12 of 15 points; 3 more wait" in _Page((folder / "students" / "bob.html").read_text()).text
    assert cli.main(["report", str(tmp_path / "empty")]) == 1 and "holds no results" in capsys.readouterr().err


def test_bars_are_as_long_as_the_counts():
    def widths(*values: float) -> list[float]:
        return [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', small.counter(*values))]

    assert widths(5, 10, 0) == [90, 180, 1]
    logs = widths(1, 10, 1000)
    assert logs[2] == 180 and logs[0] < logs[1] < logs[2] and "logarithms" in small.counter(1, 10, 1000)
    assert widths(0, 0, 0) == [1, 1, 1]
    assert "3 pass, 1 missing" in small.stack({"pass": 3, "missing": 1})
    counts = re.findall(r"<title>(\d+) from", small.histogram([0, 1, 9.9, 10], 10, bins=2))
    assert counts == ["2", "2"]


# --- who is alike ----------------------------------------------------------------------------------------

RENAMED = {"row": "y_of_mine", "col": "x_of_mine", "acc": "total", "tile_a": "ta", "k": "step", "TILE": "SIZE"}


def _disguised(source: str) -> str:
    """Other names, other layout, other comments."""
    source = re.sub(r"\b\w+\b", lambda m: RENAMED.get(m[0], m[0]), source)
    source = re.sub(r"(?m)^( +)", r"\1\1", source).replace(" + ", "+").replace(", ", ",")
    return re.sub(r"(?m)#.*$", "# mine", source)


@pytest.fixture(scope="module")
def stubs() -> dict[str, str]:
    return similar.stubs_of(scheme.load(ROOT, ["02_gemm"]).items)


def _kernels(**texts: str) -> list[dict]:
    rungs = {"tiled": "gemm--smem_tile--numba", "twice": "gemm--register_2d--numba"}
    return [kernel(rungs[name], text) for name, text in texts.items()]


def _source(rung: str) -> str:
    return (KERNELS / f"{rung}.py").read_text()


def test_a_renamed_and_reformatted_copy_is_found(stubs):
    own = _kernels(tiled=_source("smem_tile"), twice=_source("register_2d"))
    copied = _kernels(tiled=_disguised(_source("smem_tile")), twice=_disguised(_source("register_2d")))
    assert own[0]["parts"][0]["details"]["text"] != copied[0]["parts"][0]["details"]["text"]
    [pair] = similar.pairs([result("ada", own), result("bob", copied)], stubs)
    assert (pair.first, pair.second) == ("ada", "bob") and pair.shares["kernel"] > 0.9
    assert set(pair.items) == {"gemm--smem_tile--numba", "gemm--register_2d--numba"}


def test_another_kernel_for_the_same_question_is_not_found(stubs):
    found = [
        result("ada", _kernels(twice=_source("register_2d"))),
        result("bob", _kernels(twice=_source("warp_tile"))),
        result("cyd", _kernels(twice=_source("split_k"))),
    ]
    assert similar.pairs(found, stubs) == []


def test_the_stub_is_nobodys_own(stubs):
    untouched = stubs["gemm--register_2d--numba"]
    assert len(similar.grams(untouched, "numba")) > similar.LEAST["kernel"]
    found = [result(name, _kernels(twice=untouched)) for name in ("ada", "bob")]
    assert similar.pairs(found, stubs) == []
    assert len(similar.pairs(found, {})) == 1  # it is the stub that made the difference


def test_what_a_quarter_of_the_class_writes_says_nothing_about_two(stubs):
    source = _source("register_2d")
    found = [result(f"s{n}", _kernels(twice=source)) for n in range(8)]
    assert similar.pairs(found, stubs) == []
    assert len(similar.pairs(found[:3], stubs)) == 3


def test_copied_explanations_are_found_and_grouped():
    words = "Thirty two lanes of a warp ask for one column of A and so for as many sectors as there are rows in it, "
    text = words + "while the row of B lies in four sectors that everybody shares."
    other = "My kernel was slow since each thread walked down its column, and of a sector only four bytes were used."
    found = [result(n, [explain(text=t)]) for n, t in (
        ("ada", text), ("bob", text.upper().replace(",", ";")), ("cyd", text + " Thus."), ("dan", other),
    )]  # fmt: skip
    pairs = similar.pairs(found)
    assert {(p.first, p.second) for p in pairs} == {("ada", "bob"), ("ada", "cyd"), ("bob", "cyd")}
    [group] = similar.groups(pairs)
    assert len(group) == 3
    page = _Page(report.overview(found, pairs)).text
    assert "3 submissions : ada, bob, cyd" in page and "ada and bob: explanations 100%" in page
    assert similar.pairs([result(n, [explain(text="It reads rows.")]) for n in "ab"]) == []  # too short to tell


def test_a_manual_row_for_nobody_stops_the_report(tmp_path):
    results.write(tmp_path, result())
    (tmp_path / manual.FILE).write_text("submission,item,points,comment\nzoe,gemm--naive--explain,1,\n")
    with pytest.raises(LabkitError, match="of zoe"):
        report.write(tmp_path)


# --- pages that are made -----------------------------------------------------------------------------------


def test_the_rubric_says_what_the_masters_give():
    assert rubric.write(ROOT, check=True) == [], "run labkit build"
    loaded = scheme.load(ROOT, ["02_gemm/01_naive_to_tiled"])
    page = rubric.text(loaded)
    assert "## 02_gemm/01_naive_to_tiled: 26 points" in page
    assert f"**Structure** ({scheme.SHARES['structure']:.0%}," in page
    rows = [line for line in page.splitlines() if line.startswith("| gemm")]
    assert len(rows) == len(loaded.items)
    assert "| gemm/coalesced | 4 | global load sectors, global store sectors |  |" in rows


def test_the_page_on_what_grading_takes_is_what_was_measured():
    spec = importlib.util.spec_from_file_location("grading_load", ROOT / "docs" / "grading_load.py")
    load = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(load)
    found, text = json.loads(load.KEPT.read_text()), load.PAGE.read_text()
    assert found["status"] == 0 and found["states"] == {"graded": found["submissions"]}
    assert found["kernel_states"]["pass"] == found["kernels"]["right"]
    assert load.page(text, found) == text
    assert load.page(text, found | {"cpu_seconds": 1e6}) != text
