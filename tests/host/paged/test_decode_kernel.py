"""Which kernel decode uses: the simple one on the host driver, the fast one where it is asked for or has held."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import paged
import vmm
from kernels_cu import LaunchError, Scoring, launch, net, reference
from paged import attention
from paged.attention import decode_kernel, kernel_choice, last_plans

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
BOUNDS = {"float16": 2e-3, "bfloat16": 1.6e-2}
LENGTHS = (1, 0, 16, 333)


@contextlib.contextmanager
def _filled(device, dtype="float16", head_dim=64, *, order="block", layout="hnd"):
    """A pool of two layers with four sequences in its second, a query, and attention in float64."""
    rng = np.random.default_rng(0)
    found = SimpleNamespace()
    layout = paged.KVLayout(paged.KVSpec(2, 2, head_dim, dtype), 16, order, layout)
    with paged.KVPool(device, layout, blocks=40) as pool:
        drawn = [rng.standard_normal((2, n, 2, head_dim)).astype(DTYPES[dtype]) for n in LENGTHS]
        found.pool, found.sequences = pool, [pool.sequence() for _ in LENGTHS]
        for sequence, (key, value) in zip(found.sequences, drawn, strict=True):
            if len(key):
                attention.append(pool, 1, key, value, sequence.append(len(key)))
        found.query = rng.standard_normal((len(LENGTHS), 8, head_dim)).astype(DTYPES[dtype])
        found.wanted = reference.paged_attention(found.query, *zip(*drawn, strict=True))
        yield found


pytestmark = pytest.mark.usefixtures("compiler")


def _decode(found, **options):
    return attention.decode(found.pool, 1, found.query, found.sequences, **options).astype(np.float64)


@pytest.fixture
def counted(monkeypatch):
    """How often each decode kernel was launched by ``attention.decode``; the net's own launches do not count."""
    counts = {"paged_decode": 0, "paged_attention_simple": 0}
    stand_in = SimpleNamespace(**vars(launch))
    for name in counts:
        setattr(stand_in, name, _counting(counts, name))
    monkeypatch.setattr(decode_kernel, "launch", stand_in)
    return counts


def _counting(counts, name):
    def call(*arguments, **options):
        counts[name] += 1
        return getattr(launch, name)(*arguments, **options)

    return call


@pytest.mark.parametrize("layout", ["hnd", "nhd"])
@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("dtype", BOUNDS)
def test_the_fast_kernel_can_be_forced_and_agrees_with_float64(device, counted, dtype, order, layout):
    with _filled(device, dtype, order=order, layout=layout) as found:
        out = _decode(found, kernel="fast")
        assert np.abs(out - found.wanted).max() <= 5 * BOUNDS[dtype]
        scaled = _decode(found, kernel="fast", scoring=Scoring(scale=0.5))
        assert np.abs(scaled - _decode(found, kernel="simple", scoring=Scoring(scale=0.5))).max() <= 10 * BOUNDS[dtype]
        assert np.abs(scaled - out).max() > 0.1
    assert counted == {"paged_decode": 2, "paged_attention_simple": 1}


def test_on_the_host_driver_the_simple_kernel_is_the_default(device, counted):
    with _filled(device) as found:
        _decode(found)
    assert counted == {"paged_decode": 0, "paged_attention_simple": 1}


def test_the_layers_of_a_step_share_a_plan(device, monkeypatch):
    plans = []
    plan = last_plans.plan_decode
    monkeypatch.setattr(last_plans, "plan_decode", lambda *which, **how: plans.append(plan(*which, **how)) or plans[-1])
    with _filled(device) as found:
        for layer in (0, 1, 1):
            attention.decode(found.pool, layer, found.query, found.sequences, kernel="fast")
        assert len(plans) == 1
        found.sequences[0].append(1)
        attention.append(
            found.pool, 1, *np.zeros((2, 1, 2, 64), np.float16), np.array(found.sequences[0].table) * 16 + 1
        )
        longer = _decode(found, kernel="fast")
        assert len(plans) == 2
        assert np.abs(longer - _decode(found, kernel="simple")).max() <= 0.01


@pytest.mark.parametrize("streams", ["deferred"])
def test_what_the_fast_kernel_needs_lives_until_it_has_run(streams):
    with vmm.Device(driver=vmm.HostDriver(memory="64 MiB", streams=streams)) as device, _filled(device) as found:
        out = attention.decode(found.pool, 1, found.query, found.sequences, kernel="fast")
        out[...] = np.nan
        device.synchronize()
        assert np.abs(out.astype(np.float64) - found.wanted).max() <= 0.01


@pytest.mark.parametrize(
    "shape", [{"dtype": "float32"}, {"head_dim": 16}, {"layout": "vllm"}], ids=["float32", "head_dim", "vllm"]
)
def test_a_cache_that_the_fast_kernel_does_not_walk_is_refused_if_it_is_forced(device, shape):
    with _filled(device, **shape) as found, pytest.raises(LaunchError, match="use paged_attention_simple"):
        _decode(found, kernel="fast")


def test_an_unknown_kernel_is_refused_before_anything_is_launched(device, counted):
    with _filled(device) as found, pytest.raises(ValueError, match="kernel 'quick' is unknown; use 'simple', 'fast'"):
        _decode(found, kernel="quick")
    assert not any(counted.values())


@pytest.fixture
def unproven(device, monkeypatch):
    """The CPU as a GPU of its own name, on which nothing was proven."""
    monkeypatch.setattr(kernel_choice, "CPU", "nowhere")
    monkeypatch.setattr(net, "_right", {})
    return device


def test_on_a_gpu_the_fast_kernel_is_used_once_it_has_held(unproven, counted):
    with _filled(unproven) as found:
        for _ in range(2):
            assert np.abs(_decode(found) - found.wanted).max() <= 0.01
        assert _decode(found, kernel="simple").shape == found.wanted.shape
    assert counted == {"paged_decode": 2, "paged_attention_simple": 1}
    assert list(net._right.values()) == [True]


def test_a_wrong_fast_kernel_is_a_warning_once_and_the_simple_one_is_used(unproven, counted, monkeypatch):
    right = launch.paged_decode

    def wrong(target, kv, plan, query, tables, *rest, **options):
        right(target, kv, plan, query, np.roll(tables, 1, axis=0), *rest, **options)

    monkeypatch.setattr(net.launch, "paged_decode", wrong)
    with _filled(unproven) as found:
        with pytest.warns(
            RuntimeWarning, match="paged_decode does not agree with the simple kernel on software device"
        ):
            out = _decode(found)
        assert np.abs(out - found.wanted).max() <= 0.01
        assert np.abs(_decode(found) - found.wanted).max() <= 0.01  # and says no more
        assert counted == {"paged_decode": 0, "paged_attention_simple": 2}
        assert np.abs(_decode(found, kernel="fast") - found.wanted).max() > 0.1


@pytest.mark.parametrize("shape", [{"dtype": "float32"}, {"head_dim": 16}, {"layout": "vllm"}])
def test_on_a_gpu_other_caches_have_the_simple_kernel_without_a_look(unproven, counted, shape):
    with _filled(unproven, **shape) as found:
        _decode(found)
    assert counted == {"paged_decode": 0, "paged_attention_simple": 1}
    assert not net._right


def test_a_query_that_does_not_fit_is_refused_as_ever(unproven):
    with _filled(unproven) as found:
        found.query = found.query[:, :7]
        with pytest.raises(LaunchError, match="7 heads"):
            _decode(found)
