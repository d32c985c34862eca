"""settle: every question on the host driver agrees, and the report survives whatever a question does."""

import ctypes
import json
import sys
import textwrap
import time
from importlib.metadata import version

import pytest

from vmm.commands import settle as command
from vmm.commands.entry import run
from vmm.settle import QUESTIONS, examine
from vmm.settle.examiner import NO_ANSWER
from vmm.settle.question import Answer


def worker(script):
    """A worker that does what ``script`` says with ``keys`` and ``say``."""
    start = """
        import json, os, signal, sys, time
        keys = sys.argv[3:]
        def say(**line): print(json.dumps(line), flush=True)
        def answer(key): say(begin=key), say(key=key, seen="seen by the test")
    """
    return [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(script)]


def answers(script, keys, **options):
    return {a.key: a.seen for a in examine("host", keys=keys, worker=worker(script), **options)}


def test_all_groups_are_asked():
    assert {key.split(".")[0] for key in QUESTIONS} == {str(number) for number in range(1, 13)}
    assert len({question.text for question in QUESTIONS.values()}) == len(QUESTIONS) > 60


@pytest.mark.parametrize("backing", ["memory", "none"])
def test_on_the_host_driver_every_answer_agrees(capfd, backing, tmp_path):
    start = time.monotonic()
    assert (
        run(["settle", "--driver", "host", "--backing", backing, "--json", "--report", str(tmp_path / "report")]) == 0
    )
    assert time.monotonic() - start < 60
    text = capfd.readouterr().out
    found = json.loads(text)
    assert json.loads((tmp_path / "report").read_text()) == found
    assert (found["schema"], found["driver"], found["backing"]) == (1, "host", backing)
    assert [answer["key"] for answer in found["answers"]] == sorted(QUESTIONS, key=lambda k: [*map(int, k.split("."))])
    for answer in found["answers"]:
        assert set(answer) == {"key", "question", "expected", "seen", "agrees"}
        assert answer["agrees"], answer
    by_text = {answer["question"]: answer["seen"] for answer in found["answers"]}
    assert by_text["set access of device 99"] == "INVALID_DEVICE (101)"
    assert by_text["reserve of 4096 bytes"] == "SUCCESS (0)"


def test_the_table_says_which_driver_first_and_how_many_agree_last(capfd, monkeypatch):
    monkeypatch.setattr(command, "examine", lambda *_args: examine("host", "none", ["1.1", "7.1"]))
    assert run(["settle", "--driver", "host", "--backing", "none"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("driver host ")
    assert lines[0].endswith("backing none")
    assert "reserve of size 0" in lines[2]
    assert lines[-1].startswith("2 of 2 agree, in ")


def test_a_host_driver_that_breaks_its_own_rules_fails(capfd, monkeypatch):
    wrong = Answer("4.2", "a question", "INVALID_VALUE (1)", "SUCCESS (0)", False)
    monkeypatch.setattr(command, "examine", lambda *_args: iter([wrong]))
    assert run(["settle", "--driver", "host", "--backing", "none"]) == 1
    seen = capfd.readouterr()
    assert "NO" in seen.out
    assert seen.err.splitlines() == ["error: questions without the answer that there must be: 4.2"]


def test_a_disagreement_is_seen_as_one():
    question = QUESTIONS["1.1"]
    assert not question.answer("OUT_OF_MEMORY (2)").agrees
    assert question.answer("INVALID_VALUE (1)").agrees
    largest = QUESTIONS["1.7"]
    assert largest.answer("128 TiB, then OUT_OF_MEMORY (2)").agrees
    assert not largest.answer("128 GiB, then OUT_OF_MEMORY (2)").agrees


def test_a_question_that_ends_its_process_is_named_and_the_others_are_asked():
    script = """
        for key in keys:
            if key == "10.2":
                say(begin=key); os.kill(os.getpid(), signal.SIGSEGV)
            answer(key)
    """
    seen = answers(script, ["1.1", "10.2", "3.1"])
    assert seen == {
        "1.1": "seen by the test",
        "10.2": f"{NO_ANSWER}: the process was ended by SIGSEGV",
        "3.1": "seen by the test",
    }


def test_a_question_that_hangs_is_given_up():
    script = """
        for key in keys:
            say(begin=key)
            if key == "5.5":
                time.sleep(60)
            say(key=key, seen="there")
    """
    start = time.monotonic()
    assert answers(script, ["5.5", "6.1"], patience=1.0) == {"5.5": f"{NO_ANSWER}: nothing for 1 s", "6.1": "there"}
    assert time.monotonic() - start < 20


def test_a_lost_context_costs_a_process_and_no_question():
    script = """
        answer(keys[0])
        sys.exit(3)
    """
    assert answers(script, ["8.1", "8.2"]) == {"8.1": "seen by the test", "8.2": "seen by the test"}


def test_a_worker_that_cannot_start_answers_nothing_and_says_why():
    seen = answers("raise SystemExit('no libcuda here')", ["1.1", "1.2"])
    assert seen == dict.fromkeys(["1.1", "1.2"], f"{NO_ANSWER}: the process ended with status 1, no libcuda here")


def test_several_lines_at_once_are_all_read():
    """Lines that come together must not wait for more of them."""
    script = """
        for key in keys:
            answer(key)
        time.sleep(30)
    """
    keys = list(QUESTIONS)[:20]
    start = time.monotonic()
    examined = examine("host", keys=keys, worker=worker(script), patience=5.0)
    assert [next(examined).key for _ in keys] == keys
    examined.close()
    assert time.monotonic() - start < 4


def ask_over_the_bindings(keys):
    """The questions, with what they raised where the bindings would not pass a call on."""
    from vmm.choice import open_driver
    from vmm.settle.bench import Bench

    driver, raised = open_driver("cuda"), {}
    with driver.context(driver.context_retain(0)):
        for key in keys:
            bench = Bench(driver)
            try:
                QUESTIONS[key].probe(bench)
            except Exception as error:
                raised[key] = f"{type(error).__name__}: {error}"
            bench.close()
    driver.context_release(0)
    return raised, ctypes.string_at(ctypes.addressof(ctypes.c_void_p.from_buffer(ctypes.CDLL(None).usleep)), 8)


def test_the_real_bindings_pass_every_question_on(stub):
    """Those that name things which were never there would end the stub, as they may end a driver."""
    risky = [key for key, question in QUESTIONS.items() if "random" in question.text or "another file" in question.text]
    (raised, usleep), calls = stub(ask_over_the_bindings, [key for key in QUESTIONS if key not in risky], leaves=True)
    assert (raised, len(risky)) == ({}, 2)
    assert {"cuMemMap", "cuMemSetAccess", "cuMemExportToShareableHandle"} <= set(calls.names())
    queued = {args[1:] for args in calls.args("cuLaunchHostFunc")}
    if tuple(map(int, version("cuda-bindings").split(".")[:2])) < (13, 5):  # they passed a function of their own
        assert len({function for function, _ in queued}) == 1
    else:
        assert queued == {(usleep, (400_000).to_bytes(8, "little"))}
