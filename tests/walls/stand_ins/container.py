"""What `docker run` does for a job with a room, without a daemon: mounts are paths, and the paths in files are mapped.

Also answers as `srun` with pyxis. Fails as docker does for a flag that it does not know, or a mount without a mode.
"""

import json
import os
import pathlib
import subprocess
import sys

WITH_VALUE = {"--volume", "--env", "--gpus", "--user", "--network", "--workdir"}
called, *words = sys.argv[1:]
mounts: list[tuple[str, str, str]] = []
variables: dict[str, str] = {}
if called == "docker":
    assert words.pop(0) == "run", sys.argv
while words and words[0].startswith("-"):
    word = words.pop(0)
    name, has_value, value = word.partition("=")
    if name in WITH_VALUE:
        value = value if has_value else words.pop(0)
    if name in ("--volume", "--container-mounts"):
        source, target, mode = value.split(":")
        assert mode in ("ro", "rw"), value
        assert os.path.isdir(source), source
        mounts.append((source, target, mode))
    elif name == "--env":
        variables |= dict([value.split("=", 1)])
    elif name == "--export":
        variables |= dict(pair.split("=", 1) for pair in value.split(",") if pair != "ALL")
    elif name not in {*WITH_VALUE, "--rm", "--container-env", "--container-image", "--no-container-mount-home"}:
        sys.exit(f"unknown flag: {word}")
if called == "docker":
    words.pop(0)  # the image


def groups_say(old: str, new: str) -> None:
    for source, _, _ in mounts:
        for group in pathlib.Path(source).glob("cache/triton/*/__grp__*.json"):
            text = group.read_text()
            if old in text:
                group.write_text(text.replace(old, new))


rooms = [(source, target) for source, target, mode in mounts if mode == "rw"]
for source, target in rooms:
    groups_say(json.dumps(target)[1:-1] + "/", source + "/")
    variables = {name: value.replace(target, source) for name, value in variables.items()}
status = subprocess.run(words, env={**os.environ, **variables}, check=False).returncode
for source, target in rooms:
    groups_say(source + "/", target + "/")
sys.exit(status)
