"""Runs the demo program as three jobs on the default store: cold; warm in another checkout; warm as another user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ondol import units
from ondol.report import table

#: `nobody`: a user that every machine has and that owns nothing.
_OTHER_UID = 65534


def main() -> int:
    os.umask(0o022)  # the third job's user must be able to read the first one's store
    base = Path(tempfile.mkdtemp(prefix="ondol-demo-"))
    base.chmod(0o755)
    try:
        return _three_jobs(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _three_jobs(base: Path) -> int:
    # The default store, in a cache directory of the demo's own, so that the first job is really cold.
    os.environ["XDG_CACHE_HOME"] = str(base / "cache")
    store = base / "cache" / "ondol" / "store"
    print("Nine real Triton kernels, compiled for an NVIDIA H100 (no GPU needed), as three CI jobs on one store.\n")
    rows = [_job("1 cold", _checkout(base, "one"), [])]
    rows.append(_job("2 warm, another path", _checkout(base, "two"), []))
    why_not = _why_not_another_user(base)
    if why_not:
        print(f"3 warm, another user: left out, {why_not}\n")
    else:
        rows.append(_job("3 warm, another user", _checkout(base, "three"), ["--store", str(store)], uid=_OTHER_UID))
    header = ("job", "took", "filled", "used", "new", "published", "saved")
    print("\n".join(table.lines(header, rows, right=(1, 2, 3, 4, 5, 6))))
    ok = all(row[4] == "0" for row in rows[1:])
    if not ok:
        print("\nA later job compiled something that should have come from the store: please report this.")
        return 1
    print("\nThe later jobs compiled nothing: every kernel came from the store, verified, in a room of the job's own.")
    return 0


def _checkout(base: Path, name: str) -> Path:
    """The program in a directory of its own, as a CI system would check it out."""
    folder = base / name
    folder.mkdir(mode=0o755)
    shutil.copy(Path(__file__).with_name("kernels.py"), folder / "kernels.py")
    return folder


def _job(label: str, checkout: Path, options: list[str], uid: int | None = None) -> tuple[str, ...]:
    answer = checkout / "ondol.json"
    answer.touch()
    answer.chmod(0o666)
    ondol = [sys.executable, "-m", "ondol", "run", *options, "--json", str(answer), "--"]
    print(f"$ ondol run {' '.join([*options, '--'])} python kernels.py" + (f"    (as uid {uid})" if uid else ""))
    started = time.perf_counter()
    done = subprocess.run(
        [*ondol, sys.executable, "kernels.py"],
        cwd=checkout,
        env={**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", **({"HOME": "/"} if uid else {})},
        user=uid,
        group=uid,
        extra_groups=[] if uid else None,
        check=False,
    )
    took = time.perf_counter() - started
    print()
    if done.returncode:
        raise SystemExit(f"the demo job ended with status {done.returncode}")
    report: dict[str, Any] = json.loads(answer.read_text())["tools"]["triton"]
    saved = units.seconds(report["seconds_saved"]) if report["seconds_saved"] else "-"
    numbers = [str(report[name]) for name in ("filled", "used", "new", "published")]
    return (label, units.seconds(took), *numbers, saved)


def _why_not_another_user(base: Path) -> str:
    """Empty if a job can be run as another user here."""
    if os.geteuid() != 0:
        return "because only root can become another user (try: sudo make demo)"
    try:
        subprocess.run(
            [sys.executable, "-c", "import ondol, triton"],
            cwd=base,
            user=_OTHER_UID,
            group=_OTHER_UID,
            extra_groups=[],
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "because that user cannot execute this Python (in a home directory?)"
    return ""


if __name__ == "__main__":
    sys.exit(main())
