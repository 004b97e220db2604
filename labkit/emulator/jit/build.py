"""LLVM text to machine code, kept on disk by content."""

from __future__ import annotations

import ctypes
import functools
import hashlib

import llvmlite
import llvmlite.binding as llvm

from labkit import cache


@functools.cache
def _target() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, jit=True
    )


@functools.cache
def _engine() -> llvm.ExecutionEngine:
    _target()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())


@functools.cache
def usable() -> bool:
    """Whether this machine rounds a fused multiply-add once."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("fma")) or "aarch64" in llvm.get_default_triple() or "arm64" in llvm.get_default_triple()


@functools.cache
def _machine() -> str:
    features = llvm.get_host_cpu_features().flatten()
    return "\0".join([llvmlite.__version__, llvm.get_host_cpu_name(), features])


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def function(text: str, *, fresh: bool = True) -> ctypes._CFuncPtr | None:
    """The function `@NAME` of a text as machine code; None where it would have to be compiled, unless `fresh`."""
    name = f"region_{_key(text)}"
    code = _code(text, name, fresh)
    if code is None:
        return None
    _load(code)
    return _FUNCTION(_engine().get_function_address(name))


@functools.cache
def library(text: str) -> None:
    """Make the functions of a text known to those that are loaded later."""
    _load(_code(text, "", True))


def _load(code: bytes) -> None:
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()


def _key(text: str) -> str:
    return hashlib.sha256("\0".join([_machine(), text]).encode()).hexdigest()[:40]


def _code(text: str, name: str, fresh: bool) -> bytes | None:
    parts = (_machine(), text)
    if not fresh:
        return cache.kept(parts, "o")
    return cache.compiled(parts, "o", lambda: _compile(text.replace("@NAME", f"@{name}")))


def _compile(text: str) -> bytes:
    module = llvm.parse_assembly(text)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=0)
    builder = llvm.create_pass_builder(_target(), tuning)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    return _target().emit_object(module)
