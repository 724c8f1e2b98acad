"""What a release consists of, made and tried: `make release`.

Builds wheel and source archive, lets twine check them, and installs each into a clean environment of every Python from
3.10 to 3.14 that is on this machine. There, the program must run a job and a test. Nothing is uploaded: the last line
says what to type.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = [f"python3.{minor}" for minor in range(10, 15)]
TEST = "def test_it_works():\n    assert 1 + 1 == 2\n"


def main() -> int:
    for old in (*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")):
        old.unlink()
    _run(sys.executable, "-m", "build", "--quiet", "--outdir", DIST, ROOT)
    made = sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])
    _run(sys.executable, "-m", "twine", "check", "--strict", *made)
    found = {name: path for name in PYTHONS if (path := _interpreter(name))}
    for name, path in found.items():
        for archive in made:
            with tempfile.TemporaryDirectory(prefix="ondol-release-") as place:
                _try(path, archive, Path(place))
            print(f"{name}: {archive.name} installs, runs a job and a test")
    missing = sorted(set(PYTHONS) - set(found))
    print(f"not tried, because not on this machine: {', '.join(missing)}" if missing else "every Python was tried")
    print(f"to publish: {sys.executable} -m twine upload {' '.join(str(one.relative_to(ROOT)) for one in made)}")
    return 0 if found else 1


def _interpreter(name: str) -> str | None:
    """On the PATH, or of pyenv, whose own programs of these names may lead nowhere."""
    places = [shutil.which(name), *map(str, (Path.home() / ".pyenv" / "versions").glob(f"*/bin/{name}"))]
    return next((one for one in places if one and _starts(one)), None)


def _starts(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _try(python: str, archive: Path, place: Path) -> None:
    _run(python, "-m", "venv", place / "venv")
    inside = place / "venv" / "bin" / "python"
    _run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{archive}[test]")
    (place / "test_it.py").write_text(TEST)
    environment = {**os.environ, "XDG_CACHE_HOME": str(place / "cache"), "XDG_STATE_HOME": str(place / "state")}
    for words in _uses():
        _run(inside, "-m", "ondol", *words, cwd=place, env=environment)


def _uses() -> Iterator[list[str]]:
    yield ["--version"]
    yield ["run", "--", "true"]
    yield ["test", "--devices", "cpu:1", "-q", "test_it.py"]


def _run(*command: str | Path, **how: object) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **how)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"release: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")


if __name__ == "__main__":
    sys.exit(main())
