"""Bytes and tokens per second of generation, against yalm's published figures and a count of parameters."""

from __future__ import annotations

import pytest

import labkit as lk
from labkit.models import devices
from labkit.models.decode import FP16, FP32, LLAMA_2_7B, MISTRAL_7B, Q8_0, speed


def total(**how) -> int:
    return sum(MISTRAL_7B.bytes_per_token(4096, **how).values())


def test_published_bytes_of_mistral_7b():
    # yalm keeps the classifier in float16 and counts it with 4 bytes.
    assert total(classifier=FP32) == 15_020_875_776
    assert total(weight=FP32, cache=FP32) == 29_516_398_592
    assert total(classifier=FP32) - total() == 32000 * 4096 * 2


def test_parameters_of_llama_2_7b_are_those_of_its_model_card():
    parts = LLAMA_2_7B.bytes_per_token(1, weight=1, cache=0)
    norms = parts["norms"] // 4
    embedding = 32000 * 4096
    assert sum(parts.values()) - parts["norms"] + norms - 4096 + embedding == 6_738_415_616


def test_cache_grows_with_the_context_and_weights_do_not():
    short, long = (MISTRAL_7B.bytes_per_token(n) for n in (1000, 3000))
    changed = [part for part in short if short[part] != long[part]]
    assert changed == ["key-value cache"] and long["key-value cache"] == 3 * short["key-value cache"]


def test_q8_0_takes_17_bits_where_float16_takes_32():
    half, q8 = (MISTRAL_7B.bytes_per_token(1, weight=w)["feed-forward weights"] for w in (FP16, Q8_0))
    assert q8 * 32 == half * 17


def test_published_speed_on_an_rtx_4090():
    found = speed(MISTRAL_7B.bytes_per_token(4096, classifier=FP32), "RTX 4090")
    assert round(found.tokens_per_s, 1) == 67.1
    assert found.origin == "datasheet" and "67.1 tokens/s" in repr(found)


def test_measured_bandwidth_goes_before_the_datasheets():
    found = speed({"all": 10**9}, "NVIDIA H200")
    assert found.origin == "measured"
    assert 0.9 * devices.find("H200").bandwidth_gbps < found.tokens_per_s < devices.find("H200").bandwidth_gbps


def test_refusals(monkeypatch):
    with pytest.raises(lk.LabkitError, match="at least 1 token"):
        MISTRAL_7B.bytes_per_token(0)
    with pytest.raises(lk.LabkitError, match="names no one device"):
        speed({"all": 1}, "abacus")
    monkeypatch.setattr(devices, "present", lambda: None)
    with pytest.raises(lk.LabkitError, match="no GPU here"):
        speed({"all": 1})
