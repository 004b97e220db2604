"""Static findings for a person to look at. They change no points: honest code says such things, too."""

from __future__ import annotations

import ast
import re

MOST = 50

_NAMES = {
    "eval": "evaluates a text", "exec": "executes a text", "compile": "compiles a text",
    "__import__": "imports by name", "open": "opens a file", "globals": "looks at globals", "breakpoint": "stops",
}  # fmt: skip
_MODULES = {
    "subprocess": "starts processes", "socket": "uses the network", "urllib": "uses the network",
    "requests": "uses the network", "http": "uses the network", "ctypes": "calls C by address", "gc": "walks objects",
    "inspect": "looks at frames", "os": "uses the operating system", "sys": "looks at the interpreter",
    "importlib": "imports by name", "cupy": "uses CuPy", "triton": "uses Triton", "pickle": "uses pickle",
    "threading": "starts threads", "multiprocessing": "starts processes", "shutil": "uses files",
    "time": "reads a clock", "signal": "sets signals", "atexit": "runs at exit", "tempfile": "uses files",
    "solutions": "imports solutions",
}  # fmt: skip
_TORCH = re.compile(
    r"\b(?:torch\s*\.\s*(?:matmul|mm|bmm|einsum|addmm|softmax|compile|nn|ops|cuda|from_dlpack)|F\s*\.\s*\w+|\.matmul\b|"
    r"\.softmax\b|\.sum\b|\.mm\b)"
)
_CUDA = (
    (re.compile(r"#\s*include\s*[<\"](?:/|[^>\"]*\.\.)"), "includes a file by its path"),
    (re.compile(r"\bcublas|\bcudnn|\bcutlass", re.IGNORECASE), "names a library"),
    (re.compile(r"\basm\b"), "holds PTX"),
    (re.compile(r"\bclock(?:64)?\s*\(|%globaltimer|%clock"), "reads a clock"),
)


def findings(source: str, language: str) -> list[tuple[str, int]]:
    """What a source does that a person may want to see, with its line."""
    found = list(_of_cuda(source) if language == "cuda" else _of_python(source))
    return sorted(set(found), key=lambda pair: pair[1])[:MOST]


def _of_cuda(source: str):
    for number, line in enumerate(source.split("\n"), 1):
        for pattern, what in _CUDA:
            if pattern.search(line):
                yield what, number


def _of_python(source: str):
    for number, line in enumerate(source.split("\n"), 1):
        if _TORCH.search(line.split("#")[0]):
            yield "calls PyTorch", number
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                first = name.split(".")[0]
                if first in _MODULES:
                    yield _MODULES[first], line
                elif name.startswith(("labkit.grading", "labkit.check", "labkit.problems")):
                    yield f"imports {name}", line
        elif isinstance(node, ast.Name) and node.id in _NAMES:
            yield _NAMES[node.id], line
        elif isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
            yield "reads the environment", line
        elif isinstance(node, ast.Attribute) and node.attr.startswith("__") and node.attr.endswith("__"):
            yield f"uses {node.attr}", line
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield "multiplies matrices on the host", line
        elif isinstance(node, ast.Try):
            yield "catches errors", line
