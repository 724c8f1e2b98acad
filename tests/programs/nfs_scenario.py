"""Runs inside the NFS test's machine: jobs of several users on several clients of one store. Writes what happened as JSON.

    nfs_scenario.py ANSWER

Judges nothing: that is test_nfs.py's part. Every step has a bound, so that a hang is an answer too.
"""

import glob
import importlib
import json
import os
import random
import runpy
import select
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ALICE, BOB, CAROL = 1001, 1002, 1003
GROUPS = "/sys/fs/cgroup"
NUMBERS = {"one": 1, "two": 2, "three": 3}
PYTHON = [sys.executable, "-S"]
STANDIN = [*PYTHON, os.path.join(HERE, "standin.py")]
STORE_ON_SERVER = "/srv/store"
BOUND = 100
KERNELS_A_ROUND = 4
#: Who wants one new cache at once: on one client, on two, and on three; of one user and of two. An emulated machine takes
#: seconds for each one, and as long again for each that waits for it.
GUARDED = (
    ((ALICE, "one"), (BOB, "one"), (BOB, "two")),
    ((BOB, "one"), (ALICE, "two"), (ALICE, "three")),
)
#: What the commands below import. An emulated machine takes more than a second for it, each time.
COMMANDS = ("run", "guard", "doctor", "store_rules", "store_entries", "store_stats")
IMPORTED = (*(f"ondol.cli.{name}" for name in COMMANDS), "ondol.jobs.run_command", "ondol.guard.guarded_command")


def store(client):
    return f"/mnt/{client}/store"


# -- the machine -------------------------------------------------------------------------------------------------------


def server_up():
    subprocess.run(["rpc.nfsd", "--no-nfs-version", "3", "--port", "2049", "4"], check=True)
    with open("/proc/fs/nfsd/v4_end_grace", "w") as file:
        file.write("Y")


def server_down():
    subprocess.run(["rpc.nfsd", "0"], check=True)


def mount(client):
    """As another host would: in the client's own network, under its own name, with the attribute caching of a plain mount."""
    inside = ["nsenter", f"--net=/run/{client}.net", f"--uts=/run/{client}.uts"]
    command = [*inside, "mount.nfs4", f"10.0.{NUMBERS[client]}.1:/", f"/mnt/{client}", "-o", "vers=4.2,nosharecache"]
    for _ in range(50):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return
        time.sleep(0.2)  # the server is still starting
    raise SystemExit(f"{client} cannot mount: {done.stderr}")


def mounts():
    with open("/proc/mounts") as file:
        lines = [line.split() for line in file]
    return {where: [kind, *options.split(",")] for _, where, kind, options, *_ in lines if where.startswith("/mnt/")}


def known_clients():
    """What the server itself says about who is connected."""
    return [open(path).read() for path in glob.glob("/proc/fs/nfsd/clients/*/info")]


def on_server(pattern="lanes/*/*/*/*/*.pack"):
    """Names in the store as the server's own file system has them: no client's cache in between."""
    return sorted(os.path.relpath(path, STORE_ON_SERVER) for path in glob.glob(f"{STORE_ON_SERVER}/{pattern}"))


# -- jobs --------------------------------------------------------------------------------------------------------------


def in_a_group_of_its_own(pid):
    os.setpriority(os.PRIO_PROCESS, pid, 0)
    os.mkdir(f"{GROUPS}/{pid}")
    with open(f"{GROUPS}/{pid}/cgroup.procs", "w") as file:
        file.write(str(pid))


def run_ondol(arguments):
    sys.argv = ["ondol", *arguments]
    return importlib.import_module("ondol.cli.main").main(sys.argv[1:])


def run_lease_worker(arguments):
    sys.argv = ["lease_worker.py", *arguments]
    runpy.run_path(os.path.join(HERE, sys.argv[0]))
    return 0


class Forked:
    """`work(ARGUMENTS)`, in a fork of this process, which has imported Ondol already. To be used like a `Popen`."""

    def __init__(self, work, arguments, uid, env):
        self.returncode = None
        (stdout, to_stdout), (stderr, to_stderr), (held, go) = os.pipe(), os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go)  # or we would wait for ourselves
            os.read(held, 1)
            self._become(work, arguments, uid, env, to_stdout, to_stderr)
        in_a_group_of_its_own(self.pid)
        for fd in (to_stdout, to_stderr, held, go):
            os.close(fd)  # `go`: it is in its group before it does anything
        self._said = {stdout: b"", stderr: b""}
        self._open = [stdout, stderr]

    def _become(self, work, arguments, uid, env, to_stdout, to_stderr):
        """What `exec` of a Python would have done: nothing of this process is left but what it has imported."""
        status = 1
        try:
            for fd, of_its_own in ((os.open("/dev/null", os.O_RDONLY), 0), (to_stdout, 1), (to_stderr, 2)):
                os.dup2(fd, of_its_own)
            os.closerange(3, 256)
            if uid:
                os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.chdir("/")
            os.environ.update(env)
            status = work(arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def poll(self):
        if self.returncode is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def communicate(self, timeout=None):
        """Until nobody can write any more, as `Popen` has it."""
        deadline = time.monotonic() + timeout if timeout else float("inf")
        while self._open or self.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("ondol", timeout)
            for fd in select.select(self._open, [], [], min(left, 0.01 if not self._open else 1))[0]:
                data = os.read(fd, 1 << 16)
                self._said[fd] += data
                if not data:
                    self._open.remove(fd)
                    os.close(fd)
        return [text.decode() for text in self._said.values()]


def kill(process):
    """SIGKILL for all that a job has started, at one moment: what its machine's crash does to it."""
    with open(f"{GROUPS}/{process.pid}/cgroup.kill", "w") as file:
        file.write("1")


def finish(process):
    try:
        stdout, stderr = process.communicate(timeout=BOUND)
    except subprocess.TimeoutExpired:
        kill(process)
        stdout, stderr = process.communicate()
        return {"status": "hung", "stdout": stdout, "stderr": stderr}
    told = json.loads(stdout) if stdout.startswith(("{", "[")) else None
    return {"status": process.returncode, "stdout": stdout, "stderr": stderr, "told": told}


def ondol(*arguments, uid=ALICE, **env):
    return Forked(run_ondol, arguments, uid, env)


def start_job(client, command, uid, *options, **env):
    options = ("--store", store(client), "--tools", "triton", "--trust", str(ALICE), "-q", *options)
    return ondol("run", *options, "--", *command, uid=uid, **env)


def job(client, kernels, uid, *options, **env):
    return finish(start_job(client, [*STANDIN, *kernels], uid, *options, **env))


# -- the scenario ------------------------------------------------------------------------------------------------------


def storm(known, new, hers, sight, typical):
    """Three jobs at once, all compiling `new` with bytes of their own: a user on both clients, and another one beside her.
    And two that are killed.

    One of the same users, at a random moment. One of Carol's, who compiles kernels of her own beside the others', when the
    server first shows in her lane what the pattern `sight` means.
    """
    everybody = [(ALICE, "one"), (ALICE, "two"), (BOB, "two")]
    before = on_server(sight)
    began = time.monotonic()
    running = [start_job(client, [*STANDIN, *known, *new], uid) for uid, client in everybody]
    uid, client = random.choice(everybody)
    # Five jobs share two processors, so that each takes more than twice as long as one alone.
    moment = began + random.uniform(0, 3) * typical
    waiting = {
        "at random": (start_job(client, [*STANDIN, *known, *new], uid), lambda: time.monotonic() > moment),
        "publishing": (start_job("two", [*STANDIN, *hers, *new], CAROL), lambda: on_server(sight) != before),
    }
    killed = {}
    while waiting:
        for name, (process, now) in list(waiting.items()):
            if now() or process.poll() is not None:
                kill(process)
                del waiting[name]
                killed[name] = {"seconds": time.monotonic() - began, **finish(process)}
        time.sleep(0.03)  # looking is work too, and she has more to publish than fits into this
    return {"jobs": [finish(process) for process in running], "killed": killed}


def storms(said, known):
    """Two storms, the second one reading what the first one left; returns all kernels that must be in the store afterwards."""
    said["storms"] = []
    hers = [f"carol-{kernel}" for kernel in range(KERNELS_A_ROUND)]
    # First killed while she writes; then when her first entry has its name and the others have not.
    for number, sight in enumerate((f"lanes/{CAROL}-*/tmp/*", f"lanes/{CAROL}-*/*/*/*/*.pack")):
        new = [f"round-{number}-{kernel}" for kernel in range(KERNELS_A_ROUND)]
        said["storms"].append(storm(known, new, hers, sight, said["cold"]["seconds"]))
        said["storms"][-1]["half_written"] = on_server(f"lanes/{CAROL}-*/tmp/*")
        said["storms"][-1]["published"] = on_server(f"lanes/{CAROL}-*/*/*/*/*.pack")
        known = known + new
    said["killed_twice"] = job("two", hers, CAROL)
    return known + hers


def people_and_clients(said):
    begins = [ondol("store", "init", store(client), "--writers", f"{ALICE},{BOB},{CAROL}") for client in ("one", "two")]
    said["inits"] = [finish(process) for process in begins]
    began = time.monotonic()
    said["cold"] = job("one", ["a", "b"], ALICE)
    said["cold"]["seconds"] = time.monotonic() - began
    same, other = (start_job(client, [*STANDIN, "a", "b"], BOB) for client in ("one", "two"))
    said["warm_same_client"], said["warm_other_client"] = finish(same), finish(other)
    # Client two has looked and remembers what it saw; now there is more.
    said["one_more"] = job("one", ["a", "b", "c"], ALICE)
    said["at_once_on_other_client"] = job("two", ["a", "b", "c"], BOB)
    return ["a", "b", "c"]


def odd_jobs(said, known):
    """root, whom the server takes for nobody; and a job whose TMPDIR is on NFS."""
    os.mkdir("/srv/scratch")
    os.chmod("/srv/scratch", 0o1777)
    before = on_server("lanes/*") + on_server()
    root = start_job("one", [*STANDIN, *known, "root's"], 0)
    elsewhere = start_job("two", [*STANDIN, "a"], BOB, "--publish", "never", TMPDIR="/mnt/two/scratch")
    said["squashed_root"], said["tmpdir_on_nfs"] = finish(root), finish(elsewhere)
    said["squashed_root"]["changed"] = sorted(set(on_server("lanes/*") + on_server()) ^ set(before))
    said["tmpdir_on_nfs"]["left"] = os.listdir("/srv/scratch")


def examinations(said, known):
    """`ondol doctor` on the store, for a user and for root, and on a cache that tools would write into directly."""
    os.mkdir("/srv/scratch/cache")
    os.chown("/srv/scratch/cache", BOB, BOB)
    before = on_server("lanes/*") + on_server()
    # The machine's disk is small, and that is no news.
    user = ondol("doctor", store("one"), "--trust", str(ALICE), "--skip", "space", "--json", uid=BOB)
    root = ondol("doctor", store("two"), "--only", "publishing", "--json", uid=0)
    cache = ondol("doctor", "/mnt/two/scratch/cache", "--skip", "space", "--json", uid=BOB)
    said["doctor"] = {"store": finish(user), "as root": finish(root), "cache": finish(cache)}
    said["doctor"]["changed"] = sorted(set(on_server("lanes/*") + on_server()) ^ set(before))
    said["doctor"]["left"] = os.listdir("/srv/scratch/cache")


def fresh_client(said, known):
    """A client that has never looked has nothing remembered: what it sees is what is there."""
    mount("three")
    said["mounts"] = mounts()
    fresh = start_job("three", [*STANDIN, *known], ALICE, "--publish", "never")
    verify = ondol("store", "verify", "--store", store("three"), "--json")
    said["fresh"], said["verify"] = finish(fresh), finish(verify)
    said["stats"] = finish(ondol("store", "stats", "--store", store("three"), "--json"))
    said["clients"] = known_clients()


def guards(said):
    """Guarded commands of two users on three clients, on one cache; and the lease, for servers that have no locks."""
    for folder in ("/srv/guarded", "/tmp/markers", *(f"/srv/guarded/{number}" for number in range(len(GUARDED)))):
        os.mkdir(folder)
        os.chmod(folder, 0o777)
    alone = [*PYTHON, os.path.join(HERE, "alone.py"), "/tmp/markers/guarded"]
    said["guards"], leases = [], []
    for number in range(len(GUARDED)):
        os.mkdir(f"/srv/guarded/{number}/cache")
        os.chmod(f"/srv/guarded/{number}/cache", 0o777)
    for number, everybody in enumerate(GUARDED):  # each on a new cache, whose lock file all of them want to make
        running = []
        for uid, client in everybody:
            report = f"/tmp/markers/{number}-{client}-{uid}"
            options = ["--cache", f"/mnt/{client}/guarded/{number}/cache", "--json", report, "--wait", "60s"]
            running.append((report, ondol("guard", *options, "--", *alone, uid=uid)))
        said["guards"] += [{**finish(process), "report": json.load(open(report))} for report, process in running]
    for client in NUMBERS:
        arguments = [f"/mnt/{client}/guarded/lease", "/tmp/markers/leased", "4", f"{random.random()}"]
        leases.append(Forked(run_lease_worker, arguments, ALICE, {}))
    said["leases"] = [finish(process) for process in leases]


def server_stops(said, known):
    """One job starts without a server; another has been filled when the server goes, and publishes into nothing."""
    os.mkfifo("/tmp/gate")
    os.chmod("/tmp/gate", 0o666)
    compile_and_wait = ["sh", "-c", '"$@"; read line < /tmp/gate; exit 0', "sh", *STANDIN, *known, "unpublished"]
    compile_and_fail = ["sh", "-c", '"$@"; exit 7', "sh", *STANDIN, "a"]
    caught = start_job("two", compile_and_wait, BOB, "--store-timeout", "30s")
    with open("/tmp/gate", "w") as gate:  # opens when the command reads: the job has been filled and has compiled
        server_down()
        without = start_job("one", compile_and_fail, ALICE, "--store-timeout", "5s")
        said["doctor"]["no server"] = finish(ondol("doctor", store("one"), "--timeout", "5s", "--json"))
        gate.write("\n")
    said["server_went_meanwhile"], said["no_server"] = finish(caught), finish(without)
    server_up()
    said["server_came_back"] = job("one", known, BOB)


def cleaning(said, known):
    """On one client, while a job on the other reads what is being removed."""
    before = on_server(f"lanes/{BOB}-*/*/*/*/*.pack")
    reader = start_job("two", [*STANDIN, *known], BOB, "--publish", "never")
    gc = ondol("store", "gc", "--store", store("one"), "--max-size", "0", "--json")
    said["gc"], said["reader_beside_gc"] = finish(gc), finish(reader)
    said["gc"]["left_of_hers"] = on_server(f"lanes/{ALICE}-*/*/*/*/*.pack")
    said["gc"]["taken_of_his"] = sorted(set(before) - set(on_server()))
    after = start_job("two", [*STANDIN, *known], ALICE, "--publish", "never")
    verify = ondol("store", "verify", "--store", store("three"), "--json")
    said["reader_after_gc"], said["verify_at_end"] = finish(after), finish(verify)


def main(answer):
    seed = int.from_bytes(os.urandom(4), "big")
    random.seed(seed)
    seconds: dict[str, float] = {}
    said: dict[str, object] = {"seed": seed, "seconds": seconds}

    def step(work, *arguments):
        began = time.monotonic()
        result = work(said, *arguments)
        seconds[work.__name__] = round(time.monotonic() - began, 1)
        print(work.__name__, seconds[work.__name__], "s", flush=True)
        return result

    for module in IMPORTED:
        importlib.import_module(module)
    os.nice(-10)  # the one who kills must not wait behind the jobs
    server_up()
    mount("one")
    mount("two")
    known = step(people_and_clients)
    known = step(storms, known)
    step(odd_jobs, known)
    step(examinations, known)
    step(fresh_client, known)
    step(guards)
    step(server_stops, known)
    step(cleaning, known)
    with open("/proc/uptime") as file:
        seconds["machine"] = float(file.read().split()[0])
    said["known"] = known
    with open(answer, "w") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main(sys.argv[1])
