"""Asks the helper, remembers what it said, and keeps for the next run what does not change by itself."""

import hashlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from ondol.host import accelerator, files, own_python
from ondol.testing.facts import values
from ondol.testing.facts.questions import CHANGING

#: A driver that does not answer for so long answers nobody: then the real function may try.
PATIENCE = 120.0
_MAX_KEPT = 1 << 20
FORMAT = 1


class Client:
    """One collection's questions; `kept` is the file of earlier answers, or None to keep none."""

    def __init__(self, kept: Path | None) -> None:
        self._path = kept
        self._answers: dict[str, Any] = _load(kept) if kept else {}
        self._new = False
        self._helper: subprocess.Popen[bytes] | None = None
        #: Why nobody answers any more; empty while somebody does.
        self.broken = ""
        self.asked = 0

    def get_ready(self, module: str) -> None:
        """Questions about this module are likely to come, and no earlier run asked any."""
        if self._helper is None and not self._answers:
            self.start(module)

    def start(self, *modules: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
        self._helper = subprocess.Popen(
            [*own_python.python("ondol.testing.facts.helper"), str(os.getpid()), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )  # it ends with its standard input, or with us

    def ask(self, question: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
        """`{"value": …}` or `{"error": …}` as the helper gave it; None: the real function must be asked."""
        try:
            asked = {"ask": question, "arguments": values.to_json(arguments), "named": values.to_json(named)}
        except values.Untold:
            return None
        key = json.dumps(asked, sort_keys=True)
        changing = question.rpartition(".")[2] in CHANGING
        if key in self._answers and not changing:
            return dict(self._answers[key])
        answer = self._from_helper(key)
        if answer is None or "untold" in answer:
            return None
        if not changing:
            self._answers[key] = answer
            self._new = True
        return answer

    def _from_helper(self, line: str) -> dict[str, Any] | None:
        if self.broken:
            return None
        if self._helper is None:
            self.start()
        self.asked += 1
        assert self._helper is not None
        asking, answering = self._helper.stdin, self._helper.stdout
        assert asking is not None
        assert answering is not None
        try:
            asking.write(line.encode() + b"\n")
            asking.flush()
            if not select.select([answering], [], [], PATIENCE)[0]:
                raise TimeoutError(f"no answer for {PATIENCE:g} s")
            said = answering.readline()
            if not said:
                raise BrokenPipeError("it ended")
            return dict(json.loads(said))
        except (OSError, ValueError) as error:
            self.broken = f"the process that answers device questions failed: {error}"
            self.close()
            return None

    def close(self) -> None:
        """Let the device go, and keep what was learnt."""
        if self._helper is not None:
            self._helper.kill()
            self._helper.communicate()
            self._helper = None
        if self._path is not None and self._new and not self.broken:
            _save(self._path, self._answers)


def _load(path: Path) -> dict[str, Any]:
    try:
        data, _ = files.read_regular(str(path), _MAX_KEPT)
        kept = json.loads(data)
        return dict(kept["answers"]) if kept["format"] == FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # none yet, or damaged: asked again


def _save(path: Path, answers: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        files.write_whole(str(path), json.dumps({"format": FORMAT, "answers": answers}).encode(), 0o600)
    except OSError:
        pass  # the next run asks again


#: What answers depend on, beside the devices that are chosen: how these are numbered and what they are taken for.
_CHANGE_ANSWERS = {
    "CUDA_DEVICE_ORDER",
    "HSA_OVERRIDE_GFX_VERSION",
    "ONEAPI_DEVICE_SELECTOR",
    "TRITON_OVERRIDE_ARCH",
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
}


def kept_file(cache: Path) -> Path | None:
    """Where answers for exactly this machine, driver, selection of devices and set of libraries are kept.

    None where the driver cannot be named: answers that nothing ties to it must not outlive the run.
    """
    here = accelerator.here()
    if not here.name:
        return None
    from importlib import metadata

    versions = []
    for package in ("torch", "triton", "torch_npu", "pytorch-triton-rocm"):
        try:
            versions.append(f"{package}={metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    selection = [f"{k}={v}" for k, v in sorted(os.environ.items()) if "VISIBLE_DEVICES" in k or k in _CHANGE_ANSWERS]
    selection += [*accelerator.nvidia_models(), *accelerator.amd_models()]  # device 0 is another if two are swapped
    selection += sorted(name for name in os.listdir("/dev") if name.startswith(("nvidia", "davinci", "kfd", "accel")))
    text = "\n".join([here.name, sys.prefix, *versions, *selection])
    return cache / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
