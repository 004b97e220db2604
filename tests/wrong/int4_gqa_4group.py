"""Wrong kernels of int4_gqa_4group, whose files are those of int4_gqa."""

from wrong import Wrong

WRONG = [
    Wrong(
        "the first group's scale for all",
        "cu_baseline",
        ("by = K[b, first + t, d * GROUPS // 8]", "by = K[b, first + t, 0]"),
        ("((const __half2 *)row)[8 * at / GROUP]", "((const __half2 *)row)[0]"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "sums of p' over all groups",
        "opt11_direct_mma",
        ("0x3F803F80 if g % GROUPS == group else 0", "0x3F803F80"),
        ("g % GROUPS == group ? 0x3f803f80 : 0", "0x3f803f80"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "8 bytes at an address that is a multiple of 4",
        "opt06_group_vector_loads",
        None,
        ("(const unsigned *)(row + HEADER) + at;", "(const unsigned *)(row + HEADER) + at + 1;"),
        "misaligned",
        r"8",
    ),
]
