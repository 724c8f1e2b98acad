"""TileOPs #1615 with its own tests: uid 1000 on caches that root's container left, before and after.

`root` fills the shared caches with plain pytest, under umask 077; `publish` is root's job through `ondol run`, which
fills the store; `before`, `run` and `test` are uid 1000's, with the image's variables set as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from bench.gpu.process import PLACE, ROOT, Person, environment, own, python, run, said
from bench.gpu.suites import LOGS, PYTEST, STATE, Facts, NotReady, init, of_journal, plain

#: One case of each file that failed that night: gated linear attention backward, forward and step by step, Mamba, MoE.
FILES = [f"tests/ops/test_{name}.py" for name in ("gla_chunkwise_bwd", "gla_chunkwise_fwd", "gla_recurrence")]
FILES += ["tests/ops/test_mamba.py", "tests/ops/test_moe_fused_moe.py"]
CASES = ["(test_gla_bwd and dtype1)", "(test_gla_fwd and dtype1)", "(decode_vs_fla and dtype1)"]
CASES += ["(mamba2_fwd_e2e and 1-256-4 and dtype0)", "(qwen3 and softmax-bf16)"]
WORDS = ["-m", "smoke", "-k", " or ".join(CASES), *FILES]
CACHES, STORE = PLACE / "ci-cache", STATE / "users" / "store"
NIGHTLY = Person(1000)
SUITE = PLACE / "tileops"


def mounted() -> dict[str, str]:
    """As the image and the workflow set them."""
    tilelang = CACHES / "tilelang"
    return {
        "TRITON_CACHE_DIR": str(CACHES / "triton"),
        "TILELANG_CACHE_DIR": str(tilelang),
        "TILELANG_TMP_DIR": str(tilelang / "tmp"),
    }


def step(what: str, limit: float) -> Facts:
    """`users:root` and its like."""
    name = f"users-{what}"
    if what == "root":
        for folder in mounted().values():
            own(Path(folder), ROOT).chmod(0o777)  # anybody may add, and what is there is its maker's
        return plain(name, WORDS, SUITE, limit, mounted(), Person(0, umask=0o077))
    if what == "publish":
        if not STORE.exists():
            init(STORE, "--writers", str(NIGHTLY.uid))
        return _through_ondol(name, ROOT, limit, "--tools", "auto,triton,tilelang")
    if not CACHES.exists():
        raise NotReady("users:root comes first")
    if what == "before":
        told = plain(name, WORDS, SUITE, limit, mounted(), NIGHTLY)
        return {**told, **_faults((LOGS / f"{name}.log").read_text(errors="replace"))}
    if not STORE.exists():
        raise NotReady("users:publish comes first")
    return _through_ondol(name, NIGHTLY, limit) if what == "run" else _test(name, limit)


def _through_ondol(name: str, person: Person, limit: float, *options: str) -> Facts:
    before = python("-m", "ondol", "run", "--store", STORE, *options, "--")
    return plain(name, WORDS, SUITE, limit, mounted(), person, *before)


def _test(name: str, limit: float) -> Facts:
    journal = own(LOGS / f"of-{NIGHTLY.uid}", NIGHTLY) / f"{name}.jsonl"
    journal.unlink(missing_ok=True)
    words = ["-m", "ondol", "test", "--store", str(STORE), "--workers-per-device", "2", "--journal", str(journal)]
    env = environment(NIGHTLY, **mounted())
    ended = run(python(*words, *PYTEST[2:], *WORDS), LOGS / f"{name}.log", limit, env, SUITE, NIGHTLY)
    return {**of_journal(ended, journal), "logs": [name]}


def _faults(output: str) -> Facts:
    """What the tests died of, alike ones counted; directories and numbers aside."""
    errors = [line[1:].strip() for line in output.splitlines() if line.startswith("E  ") and "Error" in line]
    alike = Counter(re.sub(r"[A-Z2-7]{20,}|(?<=tmp\.pid_)[\w-]+", "…", line)[:250] for line in errors)
    return {"errors": dict(alike.most_common(6)), "first": said(output, "Permission denied", most=3)}
