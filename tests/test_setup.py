"""The declarations of dependencies agree, and the import is light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
OUR_OWN = {"labkit"}


def declared() -> dict[str, Requirement]:
    """Every dependency of pyproject.toml, those of the extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = dict.fromkeys(sum(project["optional-dependencies"].values(), []))  # two of them may need the same
    return by_name([*project["dependencies"], *extras])


def by_name(lines: list[str]) -> dict[str, Requirement]:
    requirements = [Requirement(line) for line in lines]
    named = {canonicalize_name(r.name): r for r in requirements}
    assert len(named) == len(requirements), "a dependency is listed twice"
    return named


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return exact(by_name([line for line in lines if line and not line.startswith("#")]))


def exact(requirements: dict[str, Requirement]) -> dict[str, str]:
    versions = {}
    for name, requirement in requirements.items():
        (pin,) = requirement.specifier
        assert pin.operator == "==" and "*" not in pin.version, f"{requirement} is no exact pin"
        versions[name] = pin.version
    return versions


def conda() -> tuple[list[str], dict[str, Requirement]]:
    """What environment.yml takes from conda, and what from pip."""
    *packages, pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert pip["pip"][:2] == ["-c constraints.txt", "-e ."]
    return packages, by_name(pip["pip"][2:])


def test_constraints_pin_every_dependency_within_its_bounds():
    pins = constraints()
    for name, requirement in declared().items():
        assert name in pins, f"constraints.txt does not pin {name}"
        assert pins[name] in requirement.specifier, f"{pins[name]} is not {requirement}"


def test_constraints_pin_one_release_of_the_compilers():
    pins = constraints()
    release = declared()["cuda-toolkit"].specifier
    for wheel in ("cuda-cccl", "cuda-crt", "cuda-nvrtc", "cuda-runtime", "nvjitlink", "nvvm"):
        assert pins[f"nvidia-{wheel}"] in release, wheel
    from labkit.doctor import TOOLKIT

    assert f"{TOOLKIT}.0" in release


def test_conda_gets_the_same():
    packages, pip = conda()
    assert exact(pip) == {name: constraints()[name] for name in declared()}
    for name, requirement in declared().items():
        assert pip[name].extras == requirement.extras, name
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert packages == [f"python{python}", "pip"]


def test_the_tests_run_in_the_pinned_versions():
    found = {}
    for name, version in constraints().items():
        try:
            found[name] = Version(metadata.version(name)).public
        except metadata.PackageNotFoundError:
            assert name in ("playwright", "nbgrader"), f"{name} is not installed"  # of some tests alone
            continue
        assert Version(found[name]) == Version(version), f"{name} {found[name]} is installed"


def test_what_labkit_imports_is_declared():
    homes = metadata.packages_distributions()
    missing = {}
    for path in (ROOT / "labkit").rglob("*.py"):
        for module in imported(path) - sys.stdlib_module_names - OUR_OWN:
            packages = {canonicalize_name(p) for p in homes.get(module, [module])}
            if not packages & declared().keys():
                missing[module] = path.relative_to(ROOT)
    assert not missing, f"not declared in pyproject.toml: {missing}"


def imported(path: Path) -> set[str]:
    """The top-level modules that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module.split(".")[0])
    return modules


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light():
    heavy = ("torch", "numba", "pandas", "plotly", "IPython")
    seconds = min(
        float(
            python(
                "import time; start = time.process_time(); import labkit, sys\n"
                "seconds = time.process_time() - start\n"
                f"assert not (loaded := sys.modules.keys() & {set(heavy)}), loaded\n"
                "print(seconds)"
            )
        )
        for _ in range(2)
    )
    assert seconds < 1


@pytest.mark.parametrize("name", ["answer", "cuda_kernel", "emulate", "plots", "problem"])
def test_names_load_when_first_used(name: str):
    import labkit

    assert name in dir(labkit)
    assert getattr(labkit, name).__name__.split(".")[-1] == name


def test_an_unknown_name_is_an_attribute_error():
    import labkit

    with pytest.raises(AttributeError, match="no attribute 'problme'"):
        labkit.problme  # noqa: B018


def test_magics_are_there_after_the_import_in_a_notebook():
    assert python(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "assert shell.find_cell_magic('kernel') is None\n"
        "shell.run_cell('import labkit')\n"
        "print(shell.find_cell_magic('kernel') is not None)"
    ).endswith("True\n")


def test_make_says_what_is_missing(tmp_path: Path):
    """A machine whose only Python is too old, or lacks venv, gets a sentence."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    for script, sentence in (
        ("[ $1 = -V ] && echo Python 3.8.1; exit 1", r"No Python 3\.11 or newer .*Python 3\.8\.1"),
        ("case $2 in *ensurepip*) exit 1; esac", r"cannot create .*python3-venv"),
    ):
        bin_ = tmp_path / "bin"
        bin_.mkdir(exist_ok=True)
        for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
            (bin_ / name).write_text(f"#!/bin/sh\n{script}\n")
            (bin_ / name).chmod(0o755)
        done = subprocess.run(
            ["make", "-C", tmp_path, "lab"],
            env={"PATH": f"{bin_}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert done.returncode
        assert re.search(sentence, done.stderr), done.stderr
        assert not (tmp_path / ".venv").exists()
