"""Wrong kernels of latency."""

from wrong import Wrong

WRONG = [
    Wrong(
        "one hop short",
        "one_thread",
        ("for _ in range(steps):", "for _ in range(steps - 1):"),
        ("s < steps;", "s < steps - 1;"),
        "value",
        r"place\[0\] got .* allowed 0",
    ),
    Wrong(
        "start outside of the table",
        "one_thread",
        ("start[w] % table.shape[0]", "start[w]"),
        ("start[w] % N", "start[w]"),
        "out_of_bounds",
        r"past the end of table\[100\]",
    ),
    Wrong(
        "last walks forgotten",
        "interleaved",
        ("range(0, W, SIDE_BY_SIDE)", "range(0, W - W % SIDE_BY_SIDE, SIDE_BY_SIDE)"),
        ("w < W; w +=", "w < W - W % SIDE_BY_SIDE; w +="),
        "unwritten",
        r"place\[0\] was never written",
    ),
    Wrong(
        "all walks follow the first",
        "interleaved",
        ("p[k] = table[p[k]]", "p[k] = table[p[0]]"),
        ("p[k] = table[p[k]]", "p[k] = table[p[0]]"),
        "value",
        r"place\[\d+\] got",
    ),
    Wrong(
        "no bound",
        "many_threads",
        ("if w < place.shape[0]:", "if True:"),
        ("if (w < W)", "if (true)"),
        "out_of_bounds",
        r"start|place",
        ("p = start[w]", "int p = start[w]"),
    ),
    Wrong(
        "walks of a thread side by side",
        "both",
        ("place[first + k * THREADS] = p[k]", "place[first + k] = p[k]"),
        ("place[first + k * THREADS] = p[k]", "place[first + k] = p[k]"),
        "value|race|unwritten",
        r"place\[\d+\]",
    ),
]
