"""Ten ways to break the decode kernel, each of which a check must notice: wrong results, or a race that is reported.

A mutation is a text replacement in a copy of the source; one that no longer matches fails the test, so that it follows
the kernel. Results are compared under the settings that show most: copies that land late, blocks and warps in every
order, NaN wherever there is no token. A race must be named by the race check, whatever the result.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

import pytest

from kernels_cu import HostRun, HostTarget, checked_launch
from kernels_cu.host_run import COPIES, SCHEDULES
from kernels_cu.race import RaceError
from kernels_cu.source import PACKAGE

pytestmark = pytest.mark.exhaustive  # each compiles the kernel anew, some with the race check too


@dataclass(frozen=True)
class Mutation:
    """``before`` becomes ``after``. ``line``: what the line of a race has to do with; none: no race."""

    before: str
    after: str
    line: str = ""
    wrong: bool = True


WAIT = "ptx_cp_async_wait_group<STAGES - 2>();"
BARRIER = (
    "            __syncwarp();  // the tile's copies of all lanes are there, "
    "and all lanes are done with the tile before it\n"
)
REFILL = re.compile(
    r"( {12}if \(ahead\.valid\(\)\) \{\n {16}ahead\.load\(shared, ring \+ \(stage == 0.*?\n {12}\}\n)", re.DOTALL
)
MUTATIONS = {
    "waits for one group too few": Mutation(
        WAIT, "ptx_cp_async_wait_group<STAGES - 1>();", line="ptx_cp_async|ptx_ldmatrix"
    ),
    "no barrier after the wait": Mutation(BARRIER, "", line="ptx_cp_async|ptx_ldmatrix", wrong=False),
    "refills before the barrier": Mutation(BARRIER, "", line="ptx_cp_async|ptx_ldmatrix", wrong=False),
    "refills the tile that is read": Mutation(
        "(stage == 0 ? STAGES - 1 : stage - 1)", "stage", line="ptx_cp_async|ptx_ldmatrix"
    ),
    "reads V without the swizzle": Mutation(
        "matrix + place_of(lane % 8 + lane / 16 * 8, lane / 8 % 2)",
        "matrix + ((lane % 8 + lane / 16 * 8) * CHUNKS + lane / 8 % 2) * 16",
    ),
    "weights are not transposed": Mutation(
        "ptx_movmatrix_trans(Core::pack(scores[n][0], scores[n][1]))",
        "Core::pack(scores[n][0], scores[n][1])",
    ),
    "one token too many": Mutation("scores[n][e] = t < segment.end", "scores[n][e] = t <= segment.end"),
    "copies what is behind the last token": Mutation(
        "const int bytes = row < last && (!WINDOW || row >= begin) ? 16 : 0;", "const int bytes = 16;"
    ),
    "no barrier before warps are joined": Mutation(
        "        __syncthreads();  // all warps have left theirs\n", "", line="joint"
    ),
    "no barrier after warps are joined": Mutation(
        "        __syncthreads();  // all have read: the next set or segment may come\n",
        "",
        line="joint",
        wrong=False,
    ),
}


@pytest.fixture
def mutate(tmp_path, monkeypatch):
    """Replace the decode kernel by its mutation for the rest of the test."""

    def replace(name):
        for path in PACKAGE.glob("*.cu*"):
            shutil.copy(path, tmp_path)
        mutation = MUTATIONS[name]
        found = [path for path in tmp_path.glob("*.cu*") if mutation.before in path.read_text()]
        assert len(found) == 1, f"{mutation.before!r} stands in {len(found)} files of the package"
        (path,) = found
        text = path.read_text()
        assert text.count(mutation.before) == 1
        text = text.replace(mutation.before, mutation.after)
        if name == "refills before the barrier":
            text, moved = REFILL.subn(rf"\1{BARRIER}", text)
            assert moved == 1
        path.write_text(text)
        load = checked_launch.load

        def load_mutation(source, *what):
            return load(tmp_path / f"{source}.cu" if source == "paged_decode" else source, *what)

        monkeypatch.setattr(checked_launch, "load", load_mutation)
        return tmp_path

    return replace


def _case(cases):
    """Several segments in a share, tiles for every warp and none, and a last tile that is full but for one."""
    case = cases.Case("float16", head_dim=64, group=4, lengths=(1, 15, 333, 16, 161), seed=3)
    case.append(HostTarget())
    return case


@pytest.mark.usefixtures("target")
def test_the_kernel_itself_passes_every_check(cases):
    case = _case(cases)
    for schedule in SCHEDULES:
        for copies in COPIES:
            case.check(case.decode(HostTarget(HostRun(schedule, copies=copies, race_check=True)), shares=2))


RACES = [name for name, mutation in MUTATIONS.items() if mutation.line]


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("name", RACES)
def test_a_race_is_reported_by_kernel_and_line(mutate, cases, name):
    case, folder = _case(cases), mutate(name)
    for schedule in SCHEDULES:
        for copies in COPIES:
            with pytest.raises(RaceError, match="paged_decode, block") as caught:
                case.decode(HostTarget(HostRun(schedule, copies=copies, race_check=True)), shares=2)
            for access in (caught.value.before, caught.value.now):
                file, number = access.line.split(":")
                line = (folder / file).read_text().splitlines()[int(number) - 1]
                assert re.search(MUTATIONS[name].line, line), f"{access.line}: {line}"


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("name", [name for name, mutation in MUTATIONS.items() if mutation.wrong])
def test_a_wrong_result_is_noticed(mutate, cases, name):
    case = _case(cases)
    mutate(name)
    with pytest.raises(AssertionError):
        for schedule in SCHEDULES:
            case.check(case.decode(HostTarget(HostRun(schedule)), shares=2))


def test_there_are_ten():
    assert len(MUTATIONS) == 10
    assert all(mutation.line or mutation.wrong for mutation in MUTATIONS.values())
