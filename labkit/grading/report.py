"""Reports as HTML pages of their own: one for each student, one of the class for the instructor.

A student's page shows what the student handed in and what the grader said of it: no seed, no hidden input, no
reference value beyond the first wrong element on a shape that students know, no code of the instructor's. Pages hold
no script and load nothing; what a submission says in them is text.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from labkit.grading import csvs, gates, manual, results, similar, wording
from labkit.plots import small
from labkit.profiling.metrics import amount, describe

MOST_PAIRS = 3  # of a group of near-identical submissions, with their texts
MOST_SLOW = 10
MOST_FAULTS = 3  # of a submission, in the page of the class
CONTEXT = 2  # lines shown above and below the one that a message names
INDEX = "index.html"

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Liberation Sans", sans-serif; color: #202124; margin: 0 auto; padding: 24px;
  max-width: 960px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 20px; margin: 32px 0 8px; }
h3 { font-size: 16px; margin: 0; }
table { border-collapse: collapse; margin: 8px 0; width: 100%; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid #e8eaed; vertical-align: top; }
th { font-weight: 600; color: #3c4043; } td.n, th.n { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
a { color: #08519c; } .dim { color: #5f6368; } .big { font-size: 34px; font-weight: 650; }
section.item { border: 1px solid #dadce0; border-left-width: 5px; border-radius: 6px; padding: 12px 16px;
  margin: 14px 0; break-inside: avoid; }
.state { border-radius: 10px; padding: 1px 9px; font-size: 13px; white-space: nowrap; color: #fff; }
.pass { background: #2b8a3e; } .fail, .timeout { background: #c92a2a; } .error { background: #862e9c; }
.pending, .missing { background: #5f6368; }
section.pass, section.fail, section.timeout, section.error, section.pending, section.missing { background: none; }
section.pass { border-left-color: #2b8a3e; } section.fail, section.timeout { border-left-color: #c92a2a; }
section.error { border-left-color: #862e9c; } section.pending, section.missing { border-left-color: #5f6368; }
pre { background: #f8f9fa; border-radius: 4px; padding: 8px 10px; overflow-x: auto; font-size: 13px; line-height: 1.4;
  margin: 8px 0; } pre.text { white-space: pre-wrap; } pre mark { background: #ffe3e3; }
.counters td { font-size: 14px; } code { font-size: 90%; overflow-wrap: anywhere; } .wide { overflow-x: auto; }
.head { display: flex; justify-content: space-between; gap: 12px; align-items: baseline; flex-wrap: wrap; }
.beside { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; } .beside > div { min-width: 0; }
.note { background: #fff8e1; border-radius: 6px; padding: 8px 14px; margin: 12px 0; }
ul { margin: 4px 0; padding-left: 22px; } summary { cursor: pointer; color: #08519c; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write(out: Path, root: Path | None = None) -> Path:
    """The reports of the results in `out`, in `out/report`; returns the page of the class.

    root : the project with `solutions/`, whose stubs are not held against anyone; by default all text counts.
    Also written: `students.csv`, `items.csv`, and `out/manual.csv`, in which a person gives points. Raises LabkitError
    where there are no results, or `manual.csv` cannot be taken.
    """
    found = results.read_all(out)
    manual.offer(out, found)
    found = manual.merged(found, manual.read(out))
    folder = Path(out, "report")
    names = pages([r["submission"] for r in found])
    for result in found:
        results.write_text(folder / "students" / names[result["submission"]], student(result))
    results.write_text(folder / "students.csv", csvs.students(found))
    results.write_text(folder / "items.csv", csvs.items(found))
    stubs = _stubs(root) if root else {}
    pairs = similar.pairs(found, stubs)
    results.write_text(folder / INDEX, overview(found, pairs, {k: f"students/{v}" for k, v in names.items()}))
    return folder / INDEX


def pages(submissions: Iterable[str]) -> dict[str, str]:
    """The file name of each student's page."""
    return {name: f"{name}.html" for name in submissions}


def _stubs(root: Path) -> dict[str, str]:
    from labkit.grading import scheme

    return similar.stubs_of(scheme.load(root).items)


# --- one student -----------------------------------------------------------------------------------------


def student(result: dict[str, Any]) -> str:
    """The page of one student."""
    name = result["submission"]
    parts = [f"<h1>{escape(name)}</h1>", _total(result)]
    if result["reason"]:
        parts.append(f'<p class="note">{escape(_not_graded(result))}</p>')
    if result["faults"]:
        faults = "".join(f"<li>{escape(fault)}</li>" for fault in result["faults"])
        parts.append(f'<div class="note"><b>About your notebook</b><ul>{faults}</ul></div>')
    if result["items"]:
        parts.append(_points_table(result))
        parts.append("<h2>Question by question</h2>")
        parts += [_item(number, item) for number, item in enumerate(result["items"], 1)]
    if any(item["counters"] for item in result["items"]):
        parts.append(
            '<p class="dim">A counter is judged between two kernels of ours: one with what the rung is about '
            "(optimized) and one without it (unoptimized). It passes where yours is nearer, as a factor, to the "
            "optimized one, or better.</p>"
        )
    graded = f"Graded {result['started']} by labkit {result['labkit']}; sandbox: {result['sandbox']}."
    parts.append(f'<p class="dim">{escape(graded)}</p>')
    return _page(f"{name}: results", parts)


def _not_graded(result: dict[str, Any]) -> str:
    if result["state"] == "infrastructure_error":
        return "The grader failed; that is no fault of yours, and it will be run again."
    return f"This could not be graded: {result['reason']}"


def _total(result: dict[str, Any]) -> str:
    if result["state"] != "graded":
        return ""
    n = wording.number
    said = f'<p><span class="big">{n(result["points"])}</span> of {n(result["possible"])} points'
    if result["pending"]:
        said += f"; {n(result['pending'])} more wait for a GPU or for a person who reads your explanations"
    return said + ".</p>"


def _points_table(result: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><td><a href="#q{number}">{escape(wording.name(item))}</a></td>'
        f'<td>{_state(item["state"], item["points"])}</td>'
        f'<td class="n">{wording.number(item["points"])}</td><td class="n">{wording.number(item["possible"])}</td></tr>'
        for number, item in enumerate(result["items"], 1)
    )
    return (
        '<h2>Points</h2><table><tr><th>question</th><th>state</th><th class="n">points</th><th class="n">of</th></tr>'
        f"{rows}</table>"
    )


def _state(state: str, points: float = 0.0) -> str:
    said = "partly right" if state == "fail" and points > 0 else wording.STATES[state]
    return f'<span class="state {state}">{escape(said)}</span>'


def _item(number: int, item: dict[str, Any]) -> str:
    points = f"{wording.number(item['points'])} of {wording.number(item['possible'])}"
    inside = [
        f'<div class="head"><h3>{escape(wording.name(item))}</h3>'
        f'<span>{_state(item["state"], item["points"])} {points}</span></div>',
        f'<p class="dim">{escape(wording.about(item))}</p>',
    ]
    messages = [_said(item, part) for part in item["parts"]]
    if len(set(messages)) == 1:
        inside.append(f"<p>{escape(messages[0])}</p>")
    else:
        rows = "".join(_part(part, said) for part, said in zip(item["parts"], messages, strict=True))
        inside.append(f"<table>{rows}</table>")
    for part in item["parts"]:
        if type(part["details"].get("line")) is int and part["details"].get("text"):
            inside.append(_excerpt(part["details"]["text"], part["details"]["line"]))
    if item["kind"] == "explain" and (text := _text_of(item)):
        inside.append(f'<pre class="text">{escape(text)}</pre>')
    if item["counters"]:
        inside.append(_counters(item))
    return f'<section class="item {item["state"]}" id="q{number}">{"".join(inside)}</section>'


def _said(item: dict[str, Any], part: dict[str, Any]) -> str:
    if part["name"] == "structure" and item["counters"]:  # the table says which
        wrong = sum(not _passes(item, metric) for metric in item["counters"])
        shape = " ".join(f"{name}={size}" for name, size in (part["details"].get("shape") or {}).items())
        taken = f" Counted at {shape}." if shape else ""
        if wrong:
            return f"On the unoptimized side: {wrong} of {_count(len(item['counters']), 'counter')}.{taken}"
        if part["state"] == "pass":
            return f"Every counter is on the optimized side.{taken}"
    return wording.told(item, part["message"])


def _part(part: dict[str, Any], said: str) -> str:
    points = f"{wording.number(part['points'])} of {wording.number(part['possible'])}"
    if part["state"] == "pending":
        points = f"{wording.number(part['possible'])} wait"
    return (
        f'<tr><td>{wording.PARTS[part["name"]]}</td><td>{_state(part["state"])}</td><td class="n">{points}</td>'
        f"<td>{escape(said)}</td></tr>"
    )


def _text_of(item: dict[str, Any]) -> str:
    return next((p["details"]["text"] for p in item["parts"] if p["details"].get("text")), "")


def _excerpt(text: str, line: int) -> str:
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return ""
    first, last = max(line - CONTEXT, 1), min(line + CONTEXT, len(lines))
    shown = []
    for number in range(first, last + 1):
        code = f"{number:4}  {escape(lines[number - 1][:300])}"
        shown.append(f"<mark>{code}</mark>" if number == line else code)
    return f"<pre>{chr(10).join(shown)}</pre>"


def _counters(item: dict[str, Any]) -> str:
    rows = []
    for metric, values in item["counters"].items():
        about = describe(metric)
        numbers = "".join(f'<td class="n">{amount(values[name])}</td>' for name in small.KERNELS)
        state = "pass" if _passes(item, metric) else "fail"
        note = gates.note(metric)
        text = f"{about.text} {note[:1].upper()}{note[1:]}." if note else about.text
        rows.append(
            f"<tr><td><b>{escape(about.title[:1].upper() + about.title[1:])}</b> {_state(state)}"
            f'<br><span class="dim">{escape(text)}</span><br><code class="dim">{escape(metric)}</code></td>'
            f"{numbers}<td>{small.counter(**values)}</td></tr>"
        )
    heads = "".join(f'<th class="n">{small.key(name)} {small.WORDS[name]}</th>' for name in small.KERNELS)
    return f'<table class="counters"><tr><th>counter</th>{heads}<th></th></tr>{"".join(rows)}</table>'


def _passes(item: dict[str, Any], metric: str) -> bool:
    values = item["counters"][metric]
    if metric == gates.LANES:  # what is shown is not what it was judged by
        said = [p["message"] for p in item["parts"] if p["name"] == "structure" and p["state"] == "fail"]
        return not any(f"{metric} reads" in message for message in said)
    return gates.gate(values["yours"], values["optimised"], values["unoptimised"])


# --- the class -------------------------------------------------------------------------------------------


def overview(found: list[dict], pairs: list[similar.Pair], names: Mapping[str, str] | None = None) -> str:
    """The page of a class, for its instructor. names : submission -> its page, as a link from this one."""
    names = names or {}
    graded = [r for r in found if r["state"] == "graded"]
    parts = ["<h1>The class</h1>", _class_total(found, graded)]
    bad = [r for r in found if r["state"] != "graded"]
    if bad:
        rows = "".join(
            f"<tr><td>{_link(r['submission'], names)}</td><td>{escape(r['state'].replace('_', ' '))}</td>"
            f"<td>{escape(r['reason'] or '')}</td></tr>"
            for r in bad
        )
        parts.append(f"<h2>Not graded</h2><table>{rows}</table>")
    if graded:
        most = max(r["possible"] for r in graded)
        parts += ["<h2>Points</h2>", small.histogram([r["points"] for r in graded], most), _questions(graded)]
        parts += ["<h2>Each student</h2>", _students(found, names)]
        parts += ["<h2>Slow to grade</h2>", _slow(graded, names)]
    if any(r["faults"] for r in found):
        parts += ["<h2>Faults of notebooks</h2>", _faults(found, names)]
    parts += ["<h2>For a person to look at</h2>", _review(found, names)]
    parts += ["<h2>Nearly the same</h2>", _pairs(found, pairs, names)]
    return _page("The class: results", parts)


def _link(name: str, names: Mapping[str, str]) -> str:
    from urllib.parse import quote

    return f'<a href="{escape(quote(names[name]))}">{escape(name)}</a>' if name in names else escape(name)


def _class_total(found: list[dict], graded: list[dict]) -> str:
    states = Counter(r["state"].replace("_", " ") for r in found)
    said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    lines = [f"{_count(len(found), 'submission')}: {said}."]
    if graded:
        points = [r["points"] for r in graded]
        middle, possible = statistics.median(points), max(r["possible"] for r in graded)
        lines.append(
            f"Median {wording.number(middle)} of {wording.number(possible)} points; from "
            f"{wording.number(min(points))} to {wording.number(max(points))}."
        )
        seconds = sum(r["seconds"] for r in found)
        lines.append(f"Grading took {amount(round(seconds / len(found), 1))} s per submission.")
    waiting = sum(1 for r in found for i in r["items"] for p in i["parts"] if p["state"] == "pending")
    if waiting:
        lines.append(f"{_count(waiting, 'part')} of questions wait for a GPU or a person; {manual.FILE} takes points.")
    boxes = sorted({r["sandbox"] for r in found})
    lines.append(f"Sandbox: {', '.join(boxes)}.")
    if len({r["scheme"] for r in graded}) > 1:
        lines.append("These were not all graded by the same points; grade them again to compare them.")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _questions(graded: list[dict]) -> str:
    items: dict[str, list[dict]] = {}
    for result in graded:
        for item in result["items"]:
            items.setdefault(item["id"], []).append(item)
    rows = []
    for ident, all_of in items.items():
        states = Counter(item["state"] for item in all_of)
        possible = max(item["possible"] for item in all_of)
        mean = statistics.fmean(item["points"] for item in all_of)
        rows.append(
            f"<tr><td><code>{escape(ident)}</code></td><td>{small.stack(states)}</td>"
            f'<td class="n">{wording.number(mean)}</td><td class="n">{wording.number(possible)}</td></tr>'
        )
    legend = " ".join(
        f'<span class="state" style="background:{color};color:{small.INK.get(state, "#fff")}">'
        f"{wording.STATES[state]}</span>"
        for state, color in small.STATES.items()
    )
    return (
        f'<p>{legend}</p><table><tr><th>question</th><th>submissions</th><th class="n">mean</th>'
        f'<th class="n">of</th></tr>{"".join(rows)}</table>'
    )


def _students(found: list[dict], names: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><td>{_link(r['submission'], names)}</td><td>{escape(r['state'].replace('_', ' '))}</td>"
        f'<td class="n">{wording.number(r["points"])}</td><td class="n">{wording.number(r["possible"])}</td>'
        f'<td class="n">{wording.number(r["pending"])}</td><td class="n">{r["seconds"]:.1f}</td></tr>'
        for r in found
    )
    return (
        '<table><tr><th>submission</th><th>state</th><th class="n">points</th><th class="n">of</th>'
        f'<th class="n">pending</th><th class="n">seconds</th></tr>{rows}</table>'
    )


def _slow(graded: list[dict], names: Mapping[str, str]) -> str:
    late = [(r, i) for r in graded for i in r["items"] if i["state"] == "timeout"]
    rows = "".join(
        f'<tr><td>{_link(r["submission"], names)}</td><td class="n">{r["seconds"]:.1f} s</td></tr>'
        for r in sorted(graded, key=lambda r: -r["seconds"])[:MOST_SLOW]
    )
    more = "".join(
        f"<li>{_link(r['submission'], names)}: {escape(wording.name(i))} ran out of time.</li>" for r, i in late
    )
    return f"<table>{rows}</table>" + (f"<ul>{more}</ul>" if more else "")


def _faults(found: list[dict], names: Mapping[str, str]) -> str:
    rows = []
    for result in found:
        if faults := result["faults"]:
            more = len(faults) - MOST_FAULTS
            said = [*faults[:MOST_FAULTS], *([f"And {more} more, on the student's page."] if more > 0 else [])]
            inside = "<br>".join(escape(line) for line in said)
            rows.append(f"<tr><td>{_link(result['submission'], names)}</td><td>{inside}</td></tr>")
    return f'<p class="dim">The students see these, too.</p><table>{"".join(rows)}</table>'


def _review(found: list[dict], names: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><td>{_link(r['submission'], names)}</td><td><code>{escape(str(note['where']))}</code></td>"
        f'<td class="n">{"" if note["line"] is None else note["line"]}</td><td>{escape(note["what"])}</td></tr>'
        for r in found
        for note in r["review"]
    )
    if not rows:
        return "<p>Nothing was found.</p>"
    return (
        '<p class="dim">What a program noticed. It changed no points.</p>'
        '<table><tr><th>submission</th><th>question</th><th class="n">line</th>'
        f'<th>what</th></tr>{rows}</table>'
    )


def _pairs(found: list[dict], pairs: list[similar.Pair], names: Mapping[str, str]) -> str:
    rule = (
        f"Pairs that share at least {similar.THRESHOLD:.0%} of the smaller one's own runs of {similar.GRAM} tokens "
        f"(kernels) or {similar.WORDS} words (explanations). Names, layout and comments do not count, nor what the "
        "release gave out, nor, in kernels, what a quarter of the class wrote. A reason to look, not a proof."
    )
    said = f'<p class="dim">{escape(rule)}</p>'
    if not pairs:
        return said + "<p>None.</p>"
    texts = {r["submission"]: similar.texts(r) for r in found}
    return said + "".join(_group(group, texts, names) for group in similar.groups(pairs))


def _group(group: list[similar.Pair], texts: Mapping[str, Any], names: Mapping[str, str]) -> str:
    members = sorted({name for pair in group for name in (pair.first, pair.second)})
    blocks = [f"<p><b>{len(members)} submissions</b>: {', '.join(_link(name, names) for name in members)}</p>"]
    for pair in sorted(group, key=lambda pair: -pair.most)[:MOST_PAIRS]:
        kinds = {"kernel": "kernels", "explain": "explanations"}
        shares = ", ".join(f"{kinds[kind]} {share:.0%}" for kind, share in pair.shares.items())
        sides = []
        for item in pair.items:
            both = [texts[name].get(item, ("", "", ""))[2] for name in (pair.first, pair.second)]
            columns = "".join(f"<div><pre>{escape(text)}</pre></div>" for text in both)
            sides.append(f'<h3><code>{escape(item)}</code></h3><div class="beside">{columns}</div>')
        blocks.append(
            f"<details><summary>{escape(pair.first)} and {escape(pair.second)}: {shares}</summary>"
            f"{''.join(sides)}</details>"
        )
    if len(group) > MOST_PAIRS:
        blocks.append(f'<p class="dim">And {_count(len(group) - MOST_PAIRS, "more pair")} of these, less alike.</p>')
    return "".join(blocks)


def _page(title: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )
