"""A throw-away machine for the NFS test: Debian's cloud kernel, an initramfs made from this host's own files, an ext4 disk.

Emulated (no KVM), so that it boots wherever QEMU runs. Nothing of the host is mounted in it and nothing of it outlives the
call but what it wrote on its second serial line.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

KERNEL_PACKAGE = "linux-image-cloud-amd64"
#: What the machine's kernel does not have built in; what these need is found in the modules themselves.
MODULES = ("virtio_pci", "virtio_blk", "veth", "nfsd", "nfsv4")
#: Programs of the host → the Debian package that has them.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "mkfs.ext4": "e2fsprogs",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "exportfs": "nfs-kernel-server",
    "rpc.nfsd": "nfs-kernel-server",
    "rpc.mountd": "nfs-kernel-server",
    "mount.nfs4": "nfs-common",
}
#: Those that run inside the machine, beside Python.
INSIDE = ("busybox", "ip", "unshare", "nsenter", "exportfs", "rpc.nfsd", "rpc.mountd", "mount.nfs4")
_PATH = os.pathsep.join(("/usr/sbin", "/sbin", "/usr/bin", "/bin"))
#: Large parts of a Python that no job here imports.
_NOT_NEEDED = (
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "config-*",
    "libpython*",
    "_hashlib*",  # Python has its own SHA-2; every emulated process would load OpenSSL for another
    "_ssl*",
)
#: The users of the jobs are not in it, as in most containers.
_PASSWD = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"


class CannotHere(Exception):
    """This host lacks something that the machine needs."""


def which(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def _there(name: str) -> str:
    """Of a program that `missing_packages` has not missed."""
    found = which(name)
    assert found, name
    return found


def missing_packages() -> list[str]:
    return sorted({package for name, package in PROGRAMS.items() if not which(name)})


def boot(root: Path, work: Path, seconds: float) -> tuple[str, str]:
    """Boot, run the scenario, power off: (what it wrote as its answer, its console)."""
    if platform.machine() != "x86_64":
        raise CannotHere("the machine runs this host's programs on an emulated x86-64")
    missing = missing_packages()
    if missing:
        raise CannotHere("Debian packages that are not here: " + ", ".join(missing))
    kernel = _kernel(root / ".build" / "nfs")
    initramfs = _initramfs(root, kernel, work)
    disk = work / "disk"
    with disk.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run([_there("mkfs.ext4"), "-q", "-F", str(disk)], check=True, stdin=subprocess.DEVNULL)
    console, answer = work / "console", work / "answer"
    command = [_there("qemu-system-x86_64"), "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024"]
    command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    command += ["-serial", f"file:{console}", "-serial", f"file:{answer}"]
    command += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"]
    command += ["-kernel", str(next(kernel.glob("boot/vmlinuz-*"))), "-initrd", str(initramfs)]
    # Left to itself the kernel doubts an emulated processor's clock, and asks a device for every time: an exit each.
    fast = "mitigations=off nowatchdog tsc=reliable"
    command += ["-append", f"console=ttyS0 quiet panic=-1 {fast} rdinit=/init"]
    try:
        _run_bounded(command, seconds)
    finally:
        disk.unlink()
        initramfs.unlink()
    return _text(answer), _text(console)


def _run_bounded(command: list[str], seconds: float) -> None:
    """Until it ends or for so long. It never outlives us by more: `timeout` watches it, should we be killed."""
    guard = [which("timeout") or "timeout", "--kill-after=5", str(seconds)]
    process = subprocess.Popen(
        [*guard, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _text(path: Path) -> str:
    return path.read_text(errors="replace").replace("\r", "") if path.exists() else ""


def _kernel(cache: Path) -> Path:
    """Debian's kernel, downloaded and unpacked once; never installed."""
    unpacked = cache / "kernel"
    if unpacked.exists():
        return unpacked
    if not shutil.which("apt-get"):
        raise CannotHere("no apt-get to download a kernel with")
    part = cache / f"kernel.part-{os.getpid()}"
    part.mkdir(parents=True)
    try:
        if not _download(part):
            subprocess.run(["apt-get", "update"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
            if not _download(part):
                raise CannotHere(f"{KERNEL_PACKAGE} could not be downloaded")
        (package,) = part.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), str(part)], check=True)
        package.unlink()
        try:
            part.rename(unpacked)
        except OSError:
            if not unpacked.exists():  # else another run was faster
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return unpacked


def _download(into: Path) -> bool:
    """The package that the always-newest one stands for."""
    asked = subprocess.run(["apt-cache", "depends", KERNEL_PACKAGE], capture_output=True, text=True, check=False)
    named = re.search(r"Depends: (linux-image-\S+)", asked.stdout)
    if not named:
        return False
    command = ["apt-get", "download", named.group(1)]
    done = subprocess.run(command, cwd=into, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def _initramfs(root: Path, kernel: Path, work: Path) -> Path:
    """Python, Ondol, the NFS tools and the libraries of all, at the paths where the host has them."""
    tree = work / "tree"
    for name in (
        "bin",
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "srv",
        "etc",
        "mnt/one",
        "mnt/two",
        "mnt/three",
        "modules",
        "host",
    ):
        (tree / name).mkdir(parents=True)
    for number, module in enumerate(_in_order(kernel, MODULES)):
        shutil.copy(module, tree / "modules" / f"{number:02}-{module.name}")
    _copy_python(root, tree)
    programs = [Path(path).resolve() for path in map(which, INSIDE) if path]
    for name, program in zip(INSIDE, programs, strict=True):
        shutil.copy(program, tree / ("bin" if name == "busybox" else "host") / name)
    objects = [*programs, Path(sys.executable).resolve(), *tree.rglob("*.so")]
    for library in _libraries(objects):
        _put(library, tree)
    (tree / "etc" / "passwd").write_text(_PASSWD)
    (tree / "etc" / "netconfig").write_text("tcp tpi_cots_ord v inet tcp - -\nudp tpi_clts v inet udp - -\n")
    shutil.copy(root / "tests" / "programs" / "nfs_machine.sh", tree / "init")
    (tree / "init").chmod(0o755)
    subprocess.run(["chmod", "-R", "a+rX", str(tree)], check=True)
    return _pack(tree, work / "initramfs")


def _pack(tree: Path, into: Path) -> Path:
    names = b"".join(os.fsencode(path.relative_to(tree)) + b"\n" for path in sorted(tree.rglob("*")))
    with into.open("wb") as file:
        subprocess.run(
            [_there("busybox"), "cpio", "-o", "-H", "newc"],
            cwd=tree,
            input=names,
            stdout=file,
            check=True,
            stderr=subprocess.DEVNULL,
        )
    shutil.rmtree(tree)
    return into


def _copy_python(root: Path, tree: Path) -> None:
    """The interpreter that runs this, its library, Ondol and what Ondol imports, compiled here: emulation is slow."""
    interpreter = Path(sys.executable).resolve()
    _put(interpreter, tree)
    (tree / "bin" / "python3").symlink_to(interpreter)
    library = Path(sysconfig.get_paths()["stdlib"])
    unwanted = shutil.ignore_patterns(*_NOT_NEEDED)
    _copy_tree(library, tree / library.relative_to("/"), unwanted)
    _copy_tree(root / "src", tree / "ondol", shutil.ignore_patterns("__pycache__"))
    _copy_tree(root / "tests" / "programs", tree / "ondol", shutil.ignore_patterns("__pycache__", "*.c"))
    spec = importlib.util.find_spec("zstandard")
    if spec is None or spec.origin is None:
        raise CannotHere("no zstandard beside this Python")
    _copy_tree(Path(spec.origin).parent, tree / "ondol" / "zstandard", shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-s", str(tree), str(tree / "ondol")], check=True)


def _copy_tree(source: Path, target: Path, ignore: Callable[[Any, list[str]], Iterable[str]]) -> None:
    shutil.copytree(source, target, ignore=ignore, ignore_dangling_symlinks=True, dirs_exist_ok=True)


def _put(path: Path, tree: Path) -> None:
    target = tree / path.relative_to("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _libraries(objects: Iterable[Path]) -> list[Path]:
    """What the dynamic linker would load for all of these, and itself."""
    command = ["ldd", *map(str, objects)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return sorted({Path(found) for found in re.findall(r"(/\S+) \(0x", listed)})


def _in_order(kernel: Path, wanted: Iterable[str]) -> list[Path]:
    """The modules and what they depend on, each after what it needs. A name without a file is built in."""
    files = {path.stem.replace("-", "_"): path for path in kernel.rglob("*.ko")}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in order or name not in files:
            return
        said = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for needed in said.group(1).decode().split(",") if said and said.group(1) else ():
            add(needed.replace("-", "_"))
        order[name] = files[name]

    for name in wanted:
        add(name)
    return list(order.values())
