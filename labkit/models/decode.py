"""How many tokens per second a model can generate: every token reads all weights and the whole key-value cache once.

One token is one product of each matrix with a vector: 2 operations per weight, against 2 bytes that must come from
memory in float16. A GPU does dozens of operations in the time of a byte, so that memory alone decides:

    tokens per second = bandwidth / bytes per token
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit import recorded
from labkit.errors import LabkitError
from labkit.models import devices

FP32, FP16, Q8_0 = 4.0, 2.0, 34 / 32  # bytes per weight; q8_0: 34 bytes for 32 weights


@dataclass(frozen=True)
class Transformer:
    """The sizes of a Llama-like model: `kv_heads` heads of keys and values serve `heads` heads of queries."""

    name: str
    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocab: int

    def bytes_per_token(
        self, context: int, weight: float = FP16, cache: float = FP16, classifier: float | None = None
    ) -> dict[str, int]:
        """Bytes that one token reads, by part, with `context` tokens in the cache.

        weight, cache : bytes per weight, and per number in the cache.  classifier : per weight of the last matrix, by
        default `weight`. Norms are float32. Of the embedding, one row is read. Activations are thousands of times
        smaller and stay in the L2.
        """
        if context < 1:
            raise LabkitError(f"A context has at least 1 token, not {context}.")
        attention = self.dim * self.head_size * 2 * (self.heads + self.kv_heads)  # Q and output, K and V
        feed_forward = 3 * self.dim * self.hidden  # W1, W2, W3
        last = weight if classifier is None else classifier
        return {
            "attention weights": round(self.layers * attention * weight),
            "feed-forward weights": round(self.layers * feed_forward * weight),
            "norms": round((2 * self.layers + 1) * self.dim * FP32),
            "embedding row": round(self.dim * weight),
            "classifier": round(self.vocab * self.dim * last),
            "key-value cache": round(self.layers * 2 * self.kv_heads * self.head_size * context * cache),
        }


MISTRAL_7B = Transformer("Mistral-7B", 4096, 14336, 32, 32, 8, 128, 32000)  # Mistral-7B-Instruct-v0.2, config.json
LLAMA_2_7B = Transformer("Llama 2 7B", 4096, 11008, 32, 32, 32, 128, 32000)  # Llama-2-7b, config.json


@dataclass(frozen=True)
class Speed:
    """The most tokens per second that memory allows; origin: of the bandwidth, "measured" or "datasheet"."""

    tokens_per_s: float
    bytes: int
    gbps: float
    machine: str
    origin: str

    def __repr__(self) -> str:
        return (
            f"at most {self.tokens_per_s:.1f} tokens/s: {self.bytes:,} bytes per token at {self.gbps:,.0f} GB/s "
            f"({self.origin} bandwidth of the {self.machine})"
        )


def speed(parts: dict[str, int], machine: str | None = None) -> Speed:
    """The bound for `bytes_per_token` on a machine, by default the GPU of this one.

    By the read bandwidth that was measured there, or by its datasheet where none was. Raises LabkitError for a machine
    of which neither is known, and where there is no GPU to take by default.
    """
    here = None
    if machine is None:
        here = devices.present()
        if here is None:
            raise LabkitError(
                f"There is no GPU here to take by default; name one, such as {next(reversed(devices.DEVICES))}."
            )
        machine = here.name
    rate, origin = recorded.ceilings(machine).get("read_gbps"), "measured"
    if rate is None:
        device = here or devices.find(machine)
        machine, rate, origin = device.name, device.bandwidth_gbps, "datasheet"
    total = sum(parts.values())
    return Speed(rate * 1e9 / total, total, rate, machine, origin)
