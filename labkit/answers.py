"""Predictions: `lk.answer(key, number)`, checked against a value that is computed on the spot."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from labkit import problems
from labkit.errors import LabkitError
from labkit.problems import Question
from labkit.problems.problem import unknown


@dataclass(frozen=True)
class Answer:
    """A question and what came of an answer to it; `right` is None while there is none."""

    key: str
    question: Question
    value: float | str | None
    right: bool | None

    @property
    def verdict(self) -> str:
        if self.right is None:
            return "not answered yet: put your answer in place of the dots"
        if isinstance(self.value, str):
            said = f"{self.value!r} is {'right' if self.right else 'not it'}."
            return f"{said} {self.question.explain}" if self.right else f"{said} Look at the report again."
        if self.right:
            return f"{_short(self.value)} {self.question.unit} is right. {self.question.explain}".strip()
        want = self.question.value()
        side = "too low" if self.value < want else "too high"
        ratio = max(abs(want / self.value), abs(self.value / want)) if self.value and want else float("inf")
        far = ", but near" if ratio < 1.5 else ", by a factor of more than ten" if ratio > 10 else ""
        return f"{_short(self.value)} {self.question.unit} is {side}{far}. Work it out again."

    def __repr__(self) -> str:
        return f"{self.question.text}\n  {self.verdict}"

    def _repr_html_(self) -> str:
        color = {None: "#5f6368", True: "#137333", False: "#c5221f"}[self.right]
        mark = {None: "?", True: "&#10003;", False: "&#10007;"}[self.right]
        return (
            f"<div style='border-left:4px solid {color};padding:2px 12px'><div>{html.escape(self.question.text)}</div>"
            f"<b style='color:{color}'>{mark} {html.escape(self.verdict)}</b></div>"
        )


def names(key: str) -> dict[str, float]:
    """What an answer to the question `key` may name, in the notebook's own words, and the numbers behind it."""
    name, _, rest = key.partition("/")
    return {word: float(value()) for word, value in _questions(name)[rest].names.items()}


def answer(key: str, value: float | str | None = ...) -> Answer:
    """Check `value` as the answer to the question `key` ("problem/rung/name"); dots or None leave it open.

    The right value is computed here and now, so that no key is stored anywhere.
    """
    name, _, rest = key.partition("/")
    questions = _questions(name)
    if rest not in questions:
        raise LabkitError(unknown("question", key, [f"{name}/{q}" for q in questions]))
    question = questions[rest]
    if value is None or value is ...:
        return Answer(key, question, None, None)
    want = question.value()
    if isinstance(want, str):
        if not isinstance(value, str):
            raise LabkitError(f"The answer to {key} is a word in quotes, not {value!r}.")
        return Answer(key, question, value.strip(), value.strip().lower() == want.lower())
    if not isinstance(value, Real) or isinstance(value, bool):
        raise LabkitError(f"The answer to {key} is a number ({question.unit}), not {value!r}.")
    return Answer(key, question, float(value), abs(value - want) <= question.relative * abs(want))


def _short(value: float) -> str:
    """Whole numbers in full, others to four digits or a tenth."""
    if abs(value) < 1e15 and (value % 1 == 0 or abs(value) >= 1e4):
        return f"{value:,.{0 if value % 1 == 0 else 1}f}"
    return f"{value:,.4g}"


def _questions(name: str) -> Mapping[str, Question]:
    """Of a problem, or of the cases of the notebook on profiling."""
    if name == "detective":
        from labkit.profiling.detective import QUESTIONS

        return QUESTIONS
    return problems.get(name).questions
