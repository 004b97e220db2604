"""An item of a result in words, and its messages as a student may read them: without what is hidden."""

from __future__ import annotations

import functools
import re
from typing import Any

from labkit.errors import LabkitError
from labkit.labels import LANGUAGES

STATES = {
    "pass": "right", "fail": "not right yet", "timeout": "took too long", "missing": "not handed in",
    "pending": "not judged yet", "error": "could not be judged",
}  # fmt: skip
PARTS = {
    "correct": "Correct", "structure": "Structure", "time": "Time", "answer": "Answer",
    "manual": "Explanation, read by a person",
}  # fmt: skip

_LABEL = re.compile(r"((?:\w+=[^\s:]+ )*\w+=[^\s:]+): ")
_VALUES = (  # what the grader compares with, in the sentences of labkit.check
    (re.compile(r" got \S+ want \S+(?= \()"), " is wrong"),
    (re.compile(r"; want [^\s;]+\.(?=\s|$)"), "."),
    (re.compile(r"; error \S+, allowed [^\s)]+"), ""),
    (re.compile(r" For example, .*", re.DOTALL), ""),
)


def name(item: dict[str, Any]) -> str:
    """Such as "gemm/coalesced in numba" or "gemm/naive: sectors per request"."""
    problem, *middle, last = item["id"].split("--")
    rung = "/".join([problem, *middle])
    if item["kind"] == "kernel":
        return f"{rung} in {LANGUAGES.get(language(item), language(item))}"
    if item["kind"] == "answer":
        return f"{rung}: {last.removeprefix('q-').replace('_', ' ')}"
    return f"{rung}: explanation" + (" (CUDA C++)" if last.endswith("-cuda") else "")


def language(item: dict[str, Any]) -> str:
    """Of a kernel: the one that was handed in, or else the one that the question is asked in."""
    found = (p["details"].get("language") for p in item["parts"])
    return next(filter(None, found), item["id"].rpartition("--")[2])


def about(item: dict[str, Any]) -> str:
    """What the question asks, in a sentence; nothing where that is not known."""
    problem, *middle, last = item["id"].split("--")
    try:
        if item["kind"] == "kernel":
            step = _problem(problem).step(middle[0])
            return f"What this rung changes: {step.change}." if step.change else ""
        if item["kind"] == "answer":
            from labkit.answers import _questions

            return _questions(problem)["/".join([*middle, last.removeprefix("q-")])].text
    except (LabkitError, KeyError, IndexError):
        pass
    return ""


def told(item: dict[str, Any], message: str) -> str:
    """The message of a part for the student.

    On shapes that students know it stays as it is. On the others it keeps the shape and the place, and loses the values
    that the grader computed from its own inputs.
    """
    found = _LABEL.match(message)
    if item["kind"] != "kernel" or not found or found[1] in _known_shapes(item["id"].split("--")[0]):
        return message
    for pattern, instead in _VALUES:
        message = pattern.sub(instead, message)
    return message


@functools.cache
def _problem(problem: str) -> Any:
    from labkit import problems

    return problems.get(problem)


@functools.cache
def _known_shapes(problem: str) -> frozenset[str]:
    try:
        found = _problem(problem)
    except LabkitError:
        return frozenset()
    gates = (step.gate_shape for step in found.ladder if step.gate_shape)
    shapes = (found.dims_of(shape) for shape in (*found.shapes, found.profile_shape, *gates))
    return frozenset(" ".join(f"{d}={v}" for d, v in shape.items()) for shape in shapes)


def number(value: float) -> str:
    """Points: 4, 3.5, 2.25."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")
