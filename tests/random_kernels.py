"""Random small CUDA C++ kernels, for the emulator and for an H200: `python tests/random_kernels.py OUT` records them.

A kernel is made of its number alone, and so are its inputs; nothing in it depends on an order that the hardware
chooses. It stores the bits of all its variables. Operations that compilers may contract are written so that they
cannot, and so a recorded result belongs to the source, not to one compiler's version.
"""

from __future__ import annotations

import hashlib
import random
import sys
from functools import cache
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("random_kernels_h200.json")
KERNELS, PER_SOURCE = 260, 20
WORDS = 256  # of the input
SLOTS = 24  # words that each thread stores
BINS = 32  # words that all threads share, for atomics

PRELUDE = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define FULL 0xffffffffu
typedef unsigned long long u64;
typedef long long i64;

__constant__ unsigned table[16] = {3, 0x80000000, 17, 0xffffffff, 0, 0x7f800000, 12345, 0x3f800000,
                                   0x00010001, 0xbc003c00, 99, 0x7fffffff, 1, 31, 32, 0xdeadbeef};

// Bits of a value. All NaN are one: compilers may move a sign, and with it that of a NaN.
__device__ __forceinline__ unsigned bits(unsigned x) { return x; }
__device__ __forceinline__ unsigned bits(int x) { return (unsigned)x; }
__device__ __forceinline__ unsigned bits(float x) { return x != x ? 0x7fffffffu : __float_as_uint(x); }
__device__ __forceinline__ u64 bits(double x) { return x != x ? 0x7ff8000000000000ull : (u64)__double_as_longlong(x); }
__device__ __forceinline__ unsigned bits(__half x) { return __hisnan(x) ? 0x7fffu : __half_as_ushort(x); }
__device__ __forceinline__ unsigned bits(__nv_bfloat16 x) { return __hisnan(x) ? 0x7fffu : __bfloat16_as_ushort(x); }
__device__ __forceinline__ unsigned bits(__half2 x) { return bits(__low2half(x)) | bits(__high2half(x)) << 16; }
__device__ __forceinline__ unsigned shl(unsigned a, unsigned b)
{
    unsigned r;
    asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ int sar(int a, unsigned b)
{
    int r;
    asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ unsigned bfe(unsigned a, unsigned b, unsigned c)
{
    unsigned r;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__device__ __forceinline__ int bfes(int a, unsigned b, unsigned c)
{
    int r;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
__device__ __forceinline__ unsigned bfi(unsigned a, unsigned b, unsigned c, unsigned d)
{
    unsigned r;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "r"(d));
    return r;
}
__device__ __forceinline__ unsigned lop3(unsigned a, unsigned b, unsigned c)
{
    unsigned r;
    asm("lop3.b32 %0, %1, %2, %3, 0x6d;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
"""

# What an expression of a type may be made of. Each type has a letter: u unsigned, i int, l 64-bit unsigned, f float,
# d double, h half, b bfloat16, v half2, c a condition, k a small number.
GRAMMAR = {
    "u": """{u} + {u}; {u} - {u}; {u} * {u}; {u} & {u}; {u} | {u}; {u} ^ {u}; ~{u}; {u} / ({u} | 1); {u} % ({u} | 1);
        {u} << ({u} & 31); {u} >> ({u} & 31); shl({u}, {u} & 63); bfe({u}, {u}, {u}); bfi({u}, {u}, {u}, {u});
        lop3({u}, {u}, {u}); min({u}, {u}); max({u}, {u}); __popc({u}); __clz((int){u}); __brev({u}); __ffs((int){u});
        __byte_perm({u}, {u}, {u} & 0x7777); __umulhi({u}, {u}); __funnelshift_l({u}, {u}, {u});
        __funnelshift_rc({u}, {u}, {u}); __usad({u}, {u}, {u}); __dp4a((unsigned){u}, (unsigned){u}, (unsigned){u});
        __vadd4({u}, {u});
        __vmaxs2({u}, {u}); __vabsdiffu4({u}, {u}); __vcmpgtu4({u}, {u}); __uhadd({u}, {u}); (unsigned){i};
        (unsigned){l}; (unsigned)({l} >> 32); (unsigned char){u}; (unsigned short){u}; {c} ? {u} : {u};
        __float2uint_rn({f}); __float2uint_rz({f}); __float2uint_ru({f}); __double2uint_rd({d}); bits({f});
        __half2uint_rn({h}); __half2ushort_rz({h}); __umul24({u}, {u}); (unsigned)({c}); in[{u} % 256]; bits({v});
        table[{u} & 15]; ((const unsigned char *)in)[{u} % 1024]; ((const uint4 *)in)[{u} % 64].z;
        ((const uint2 *)in)[{u}
        % 128].y; __ldg(in + {u} % 256)""",
    "i": """(int)({u}); (int)({u} + (unsigned){i}); min({i}, {i}); max({i}, {i}); {i} & {i}; {i} ^ {i};
        {i} / ({k} + 1); {i} % ({k} + 1); {i} / (int)(({u} & 0xffff) + 1); {i} % (int)(({u} & 255) + 1);
        sar({i}, {u} & 63); {i} >> ({u} & 31); bfes({i}, {u}, {u}); __mulhi({i}, {i}); __mul24({i}, {i});
        __dp4a((int){i}, (int){i}, (int){i}); __dp2a_lo((int){i}, (int){i}, (int){i}); __hadd({i}, {i});
        (int)(signed char){u}; (int)(short){u};
        __float2int_rn({f}); __float2int_rz({f}); __float2int_rd({f}); __float2int_ru({f}); __double2int_rn({d});
        __half2int_rd({h}); (int)__half2short_rn({h}); {c} ? {i} : {i}; (int)((i64){l} >> 20);
        (int)((const signed char *)in)[{u} % 1024]; (int)((const short *)in)[{u} % 512]""",
    "l": """{l} + {l}; {l} - {l}; {l} * {l}; {l} ^ {l}; {l} & {l}; {l} << ({u} & 63); {l} >> ({u} & 63);
        {l} / ({l} | 1);
        {l} % (({l} >> 7) | 1); (u64){u} * {u}; (u64)((i64){i} * {i}); __umul64hi({l}, {l}); __brevll({l});
        (u64)__popcll({l}); (u64)__clzll((i64){l}); min({l}, {l}); (u64)max((i64){l}, (i64){l});
        (u64)((i64){l} >> ({u} & 63)); (u64){u} << 32 | {u}; __float2ull_rn({f}); __double2ull_rz({d});
        (u64)__float2ll_rd({f}); bits({d}); {c} ? {l} : {l}; (u64)(i64){i}; ((const u64 *)in)[{u} % 128]""",
    "f": """__fadd_rn({f}, {f}); __fsub_rn({f}, {f}); __fmul_rn({f}, {f}); fmaf({f}, {f}, {f}); __fdiv_rn({f}, {f});
        __fsqrt_rn({f}); __frcp_rn({f}); __fadd_rz({f}, {f}); __fadd_ru({f}, {f}); __fmul_rd({f}, {f});
        __fmaf_rz({f}, {f}, {f}); __fmaf_ru({f}, {f}, {f}); fminf({f}, {f}); fmaxf({f}, {f}); fabsf({f}); -{f};
        copysignf({f}, (float){i}); truncf({f}); floorf({f}); ceilf({f}); rintf({f}); __saturatef({f}); {c} ? {f} : {f};
        __uint2float_rn({u}); __int2float_rz({i}); __uint2float_ru({u}); __int2float_rd({i}); __ull2float_rn({l});
        __ll2float_rz((i64){l}); __double2float_rn({d}); __double2float_ru({d}); __half2float({h});
        __bfloat162float({b});
        __low2float({v}); __uint_as_float({u}); ldexpf({f}, (int)({u} & 31) - 16); fdimf({f}, {f})""",
    "d": """__dadd_rn({d}, {d}); __dsub_rn({d}, {d}); __dmul_rn({d}, {d}); __fma_rn({d}, {d}, {d}); __ddiv_rn({d}, {d});
        __dsqrt_rn({d}); __dadd_rd({d}, {d}); __dmul_ru({d}, {d}); __fma_rz({d}, {d}, {d}); fmin({d}, {d});
        fmax({d}, {d}); fabs({d}); -{d}; trunc({d}); floor({d}); rint({d}); (double){f}; __int2double_rn({i});
        __uint2double_rn({u}); __ull2double_rn({l}); __ll2double_ru((i64){l}); {c} ? {d} : {d};
        __hiloint2double((int){u}, (int){u})""",
    "h": """__hadd_rn({h}, {h}); __hsub_rn({h}, {h}); __hmul_rn({h}, {h}); __hfma({h}, {h}, {h});
        __hfma_relu({h}, {h}, {h});
        __hadd_sat({h}, {h}); __hmin({h}, {h}); __hmax({h}, {h}); __hmax_nan({h}, {h}); __hneg({h}); __habs({h});
        __float2half_rn({f}); __float2half_rz({f}); __float2half_ru({f}); __float2half_rd({f}); __uint2half_rn({u});
        __int2half_rz({i}); __ushort2half_rd((unsigned short){u}); __double2half({d}); hrint({h}); hfloor({h});
        htrunc({h}); {c} ? {h} : {h}; __low2half({v}); __high2half({v}); ((const __half *)in)[{u} % 512]""",
    "b": """__hadd_rn({b}, {b}); __hmul_rn({b}, {b}); __hfma({b}, {b}, {b}); __hmin({b}, {b}); __hmax({b}, {b});
        __hneg({b}); __float2bfloat16_rn({f}); __float2bfloat16_rz({f}); {c} ? {b} : {b};
        __ushort_as_bfloat16((unsigned short){u})""",
    "v": """__hadd2_rn({v}, {v}); __hmul2_rn({v}, {v}); __hfma2({v}, {v}, {v}); __hmin2({v}, {v}); __hmax2({v}, {v});
        __hneg2({v}); __halves2half2({h}, {h}); __lowhigh2highlow({v}); __floats2half2_rn({f}, {f});
        __hsub2_rn({v}, {v});
        ((const __half2 *)in)[{u} % 256]""",
    "c": """{u} < {u}; {i} < {i}; {i} >= {i}; {u} == ({u} & 7); {l} > {l}; (i64){l} <= (i64){l}; {f} < {f}; {f} >= {f};
        {f} != {f}; {f} == {f}; {d} < {d}; {d} != {d}; __hlt({h}, {h}); __hgeu({h}, {h}); __heq({b}, {b});
        ({u} & {k}) == 0; {c} && {c}; {c} || {c}; !({c}); isinf({f}) != 0; isfinite({f}) != 0""",
}
FORMS = {kind: [" ".join(form.split()) for form in text.split(";")] for kind, text in GRAMMAR.items()}
TYPES = {"u": "unsigned", "i": "int", "l": "u64", "f": "float", "d": "double", "h": "__half", "b": "__nv_bfloat16",
         "v": "__half2"}  # fmt: skip
LITERALS = {
    "u": "0u 1u 7u 31u 32u 0xffu 0xffffu 0x7fffffffu 0x80000000u 0xffffffffu 0x12345678u t g".split(),
    "i": "0 1 (-1) 5 (-128) 32767 0x7fffffff (-0x7fffffff-1) (int)t".split(),
    "l": "0ull 1ull 0xffffffffull 0x8000000000000000ull 0xffffffffffffffffull 0x123456789abcdefull (u64)g".split(),
    "f": "0.0f (-0.0f) 1.0f (-1.5f) 0.1f 3e38f 1e-40f (-2147483648.0f) 16777217.0f 65519.0f 2.5f "
    "__uint_as_float(0x7f800000)".split(),
    "d": "0.0 (-0.0) 1.0 (-2.5) 0.1 1e300 4e-320 4294967295.5 (-9.3e18) 1e-7".split(),
    "h": [f"__ushort_as_half({b:#06x})" for b in (0, 0x8000, 0x3C00, 0xBE00, 1, 0x7BFF, 0x7C00, 0x3555)],
    "b": [f"__ushort_as_bfloat16({b:#06x})" for b in (0, 0x3F80, 0xBFC0, 1, 0x7F7F, 0xFF80)],
    "v": ["__floats2half2_rn(1.0f, -2.5f)", "__floats2half2_rn(0.1f, 6e-8f)"],
}
FIRST = {  # a variable's first value, from a word of the input
    "u": "in[{}]", "i": "(int)in[{}]", "l": "(u64)in[{}] << 32 | in[({} + 1) % 256]",
    "f": "__uint_as_float(in[{}])", "d": "__hiloint2double((int)in[{}], (int)in[({} + 9) % 256])",
    "h": "__ushort_as_half((unsigned short)in[{}])", "b": "__ushort_as_bfloat16((unsigned short)in[{}])",
    "v": "((const __half2 *)in)[{}]",
}  # fmt: skip
TAME = {  # the same, but numbers near one another, so that arithmetic does not end in NaN at once
    "f": "((int)(in[{}] >> 24) - 128) * 0.375f", "d": "((int)(in[{}] >> 20) - 2048) * 0.125",
    "h": "__int2half_rn((int)(in[{}] >> 26) - 32)", "b": "__int2bfloat16_rn((int)(in[{}] >> 27) - 16)",
    "v": "__floats2half2_rn((in[{}] >> 28) * 0.5f, (float)(in[({} + 3) % 256] >> 29))",
}  # fmt: skip
ATOMICS = ("atomicAdd", "atomicMin", "atomicMax", "atomicAnd", "atomicOr", "atomicXor", "atomicInc")
WHOLE_WARP = """u = __shfl_sync(FULL, {u}, (int){u}); f = __shfl_xor_sync(FULL, {f}, {k});
    l = __shfl_down_sync(FULL, {l}, {k});
    i = __shfl_up_sync(FULL, {i}, {k}, 16); d = __shfl_sync(FULL, {d}, (int){u}, 8);
        v = __shfl_xor_sync(FULL, {v}, {k}, 4);
    u = __ballot_sync(FULL, {c}); u = __any_sync(FULL, {c}); u = __all_sync(FULL, {c});
    u = __reduce_add_sync(FULL, {u});
    i = __reduce_min_sync(FULL, {i}); u = __reduce_xor_sync(FULL, {u}); u = __match_any_sync(FULL, {u} & 3);
    h = __shfl_down_sync(FULL, {h}, {k}, 8); i = __reduce_max_sync(FULL, {i} >> 3); u = __reduce_or_sync(FULL, {u})"""
WHOLE_WARP = [" ".join(form.split()) for form in WHOLE_WARP.split(";")]


class Writer:
    """Writes the body of one kernel."""

    def __init__(self, number: int) -> None:
        self.rng = random.Random(number)
        self.lines: list[str] = []
        self.block = self.rng.choice((32, 64, 96, 160))
        self.variables = {kind: [f"{kind}0", f"{kind}1"] for kind in TYPES}
        self.variables["u"] += ["u2", "u3"]
        self.shared_atomic, self.global_atomic = self.rng.choice(ATOMICS), self.rng.choice(ATOMICS)
        self.names = 0

    def expression(self, kind: str, depth: int) -> str:
        """Depth: how many operations may still nest."""
        if kind == "k":
            return str(self.rng.randrange(1, 31))
        if kind != "c" and (depth == 0 or self.rng.random() < 0.2):
            return self.rng.choice(LITERALS[kind] if self.rng.random() < 0.2 else self.variables[kind])
        if kind == "c" and depth == 0:
            return f"{self.expression('u', 0)} < {self.expression('u', 0)}"
        return f"({self.fill(self.rng.choice(FORMS[kind]), max(depth - 1, 0))})"

    def fill(self, form: str, depth: int) -> str:
        """A form with expressions in place of its letters."""
        out = ""
        while "{" in form:
            before, _, rest = form.partition("{")
            kind, _, form = rest.partition("}")
            out += before + self.expression(kind, depth)
        return out + form

    def put(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def some(self, indent: int, most: int, loops: int) -> None:
        for _ in range(self.rng.randint(1, most)):
            self.statement(indent, loops)

    def statement(self, indent: int, loops: int = 0) -> None:
        """Any statement that lanes may run apart from each other."""
        choice = self.rng.random()
        inner = indent + 1
        if choice < 0.55 or indent > 3:
            kind = self.rng.choice("uuuiilfffddhhbv")
            self.put(indent, f"{kind}{self.rng.randrange(2)} = {self.expression(kind, 3)};")
        elif choice < 0.62:
            target, operator = self.rng.randrange(4), self.rng.choice(("+", "-", "^", "|", "*"))
            self.put(indent, f"u{target} {operator}= {self.expression('u', 2)};")
        elif choice < 0.74:
            self.put(indent, f"if ({self.expression('c', 2)}) {{")
            self.some(inner, 3, loops)
            if self.rng.random() < 0.5:
                self.put(indent, "} else {")
                self.some(inner, 3, loops)
            self.put(indent, "}")
        elif choice < 0.84 and loops < 2:
            name = self.name()
            head = f"for (unsigned {name} = 0; {name} < ({self.expression('u', 1)} & 7); ++{name}) {{"
            if self.rng.random() < 0.3:
                head = f"for (unsigned {name} = {self.expression('u', 1)} & 0xff; {name}; {name} >>= 1) {{"
            self.put(indent, head)
            self.variables["u"].append(name)
            # The bound is evaluated anew in each turn, and so may change; this ends it.
            self.put(inner, f"if (++turns > {self.rng.choice((9, 40, 90))}) break;")
            self.some(inner, 3, loops + 1)
            if self.rng.random() < 0.4:
                self.put(inner, f"if ({self.expression('c', 1)}) {self.rng.choice(('break', 'continue'))};")
                self.some(inner, 2, loops + 1)
            self.variables["u"].remove(name)
            self.put(indent, "}")
        elif choice < 0.88:
            self.put(indent, f"switch ({self.expression('u', 1)} & 3) {{")
            for case in range(3):
                self.put(indent, f"case {case}:")
                self.some(inner, 2, loops)
                if self.rng.random() < 0.8:
                    self.put(inner, "break;")
            self.put(indent, "default:")
            self.some(inner, 2, loops)
            self.put(indent, "}")
        elif choice < 0.92:
            name = self.name()
            self.put(indent, f"unsigned {name}[8] = {{{', '.join(self.expression('u', 1) for _ in range(8))}}};")
            self.put(indent, f"{name}[{self.expression('u', 1)} & 7] = {self.expression('u', 2)};")
            self.put(indent, f"u{self.rng.randrange(4)} = {name}[{self.expression('u', 1)} & 7];")
        else:
            where, atomic = self.rng.choice((("sums", self.shared_atomic), ("bins", self.global_atomic)))
            value = "77u" if atomic == "atomicInc" else self.expression("u", 2)
            self.put(indent, f"{atomic}(&{where}[{self.expression('u', 1)} % {BINS}], {value});")

    def together(self) -> None:
        """A statement that all threads of a warp, or of a block, run at once."""
        choice = self.rng.random()
        if choice < 0.5:
            form = self.rng.choice(WHOLE_WARP)
            kind, _, value = form.partition(" = ")
            self.put(1, f"{self.rng.choice(self.variables[kind])} = {self.fill(value, 2)};")
        elif choice < 0.7:
            some, mask = self.name(), self.name()
            self.put(1, f"bool {some} = {self.expression('c', 2)};")
            self.put(1, f"unsigned {mask} = __ballot_sync(FULL, {some});")
            self.put(1, f"if ({some}) {{")
            self.put(2, f"u0 += __shfl_sync({mask}, {self.expression('u', 1)}, __ffs((int){mask}) - 1);")
            self.put(2, f"i0 ^= (int)__ballot_sync({mask}, {self.expression('c', 1)});")
            self.put(1, "}")
        else:
            self.put(1, f"shared[t] = {self.expression('u', 2)};")
            self.put(1, "__syncthreads();")
            read = self.rng.choice((
                "u1 = shared[{u} % %d]", "u1 = ((unsigned char *)shared)[{u} % %d]",
                "u1 += ((uint2 *)shared)[{u} % (%d / 2)].y", "f1 = ((float *)shared)[{u} % %d]",
                "u1 = ((uint4 *)shared)[{u} % (%d / 4)].z",
                "i1 = ((short *)shared)[{u} % %d]",
            ))  # fmt: skip
            self.put(1, self.fill(read.replace("%d", str(self.block)), 1) + ";")
            self.put(1, "__syncthreads();")

    def kernel(self, number: int) -> str:
        """The whole kernel."""
        self.put(0, f'extern "C" __global__ void k{number}(const unsigned *in, unsigned *out, unsigned *bins)')
        self.put(0, "{")
        self.put(1, f"__shared__ __align__(16) unsigned shared[{self.block}], sums[{BINS}];")
        self.put(1, "unsigned t = threadIdx.x, g = blockIdx.x * blockDim.x + t, turns = 0;")
        self.put(1, f"if (t < {BINS})")
        self.put(2, "sums[t] = in[t];")
        for kind, names in self.variables.items():
            for name in names:
                place = f"(g * {self.rng.randrange(1, 99)} + {self.rng.randrange(WORDS)}) % {WORDS}"
                first = TAME if kind in TAME and self.rng.random() < 0.6 else FIRST
                self.put(1, f"{TYPES[kind]} {name} = {first[kind].replace('{}', place)};")
        self.put(1, "__syncthreads();")
        for _ in range(self.rng.randint(4, 9)):
            self.some(1, 3, 0)
            if self.rng.random() < 0.6:
                self.together()
        self.put(1, "__syncthreads();")
        self.put(1, f"u0 ^= sums[t % {BINS}];")
        self.put(1, f"out += {SLOTS} * g;")
        slot = 0
        for kind, names in self.variables.items():
            for name in names:
                value = name if kind == "l" else f"bits({name})"
                if kind in "ld":
                    self.put(1, f"out[{slot}] = (unsigned){value}; out[{slot + 1}] = (unsigned)({value} >> 32);")
                    slot += 2
                else:
                    self.put(1, f"out[{slot}] = {value};")
                    slot += 1
            if self.rng.random() < 0.1:
                self.put(1, f"if ({self.expression('c', 1)}) return;")
        assert slot <= SLOTS
        self.put(0, "}")
        return "\n".join(self.lines)


# ---------------------------------------------------------------------------- launches


@cache
def source(batch: int) -> str:
    """The kernels of one batch in one text."""
    numbers = range(batch * PER_SOURCE, (batch + 1) * PER_SOURCE)
    return "\n\n".join([PRELUDE, *(Writer(n).kernel(n) for n in numbers)]) + "\n"


def inputs(number: int) -> tuple[np.ndarray, np.ndarray]:
    """(words of the input, words that atomics change)."""
    rng = np.random.default_rng(number)
    words = rng.integers(0, 1 << 32, WORDS, dtype=np.uint32)
    edges = np.array([0, 1, 1 << 31, 0xFFFFFFFF, 0x7F800000, 0x7FC00000, 0xFF800000, 0x3C003C00, 0x8001, 0x7BFF0400])
    words[rng.integers(0, WORDS, 40)] = edges[rng.integers(0, len(edges), 40)]
    return words, rng.integers(0, 1 << 32, BINS, dtype=np.uint32)


def launch(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Launch a kernel wherever launches go to now; (what the threads store, the words that atomics change)."""
    from labkit.kernels import cuda_kernel

    block, grid = Writer(number).block, 2
    words, bins = inputs(number)
    out = np.full((grid * block, SLOTS), 0xEEEEEEEE, np.uint32)
    kernel = cuda_kernel(source(number // PER_SOURCE), f"k{number}", path=f"random_{number // PER_SOURCE}.cu")
    kernel[grid, block](words, out, bins)
    return out, bins


def digest(out: np.ndarray, bins: np.ndarray) -> str:
    return hashlib.sha256(out.tobytes() + bins.tobytes()).hexdigest()[:16]


def results_on_gpu(numbers: list[int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """What the kernels leave on a GPU, which runs the PTX that the emulator runs."""
    from labkit.kernels import recording
    from labkit.kernels.replay import replay

    found = {}
    for number in numbers:
        with recording() as record:
            out, bins = launch(number)
        buffers = replay(record)
        places = [param.buffer for param in record.launches[0].params]
        found[number] = buffers[places[1]].view(np.uint32).reshape(out.shape), buffers[places[2]].view(np.uint32)
    return found


def main(folder: str) -> None:
    """Write the results of all kernels under `folder`: the file beside this one, and all words for a closer look."""
    from labkit import recorded

    found = results_on_gpu(list(range(KERNELS)))
    about = recorded.provenance()
    about["command"] = "python tests/random_kernels.py OUT"
    sources = [hashlib.sha256(source(n).encode()).hexdigest()[:16] for n in range(KERNELS // PER_SOURCE)]
    results = {}
    for number, (out, bins) in found.items():
        results[str(number)] = [digest(out, bins), *out[:: len(out) // 2, :6].ravel().tolist()]
    data = {**about, "sources": sources, "results": results}
    (Path(folder) / FILE.name).write_text(recorded.text(data))
    words = {f"out{n}": out for n, (out, _) in found.items()} | {f"bins{n}": bins for n, (_, bins) in found.items()}
    np.savez_compressed(Path(folder) / "random_kernels.npz", **words)


if __name__ == "__main__":
    main(*sys.argv[1:])
