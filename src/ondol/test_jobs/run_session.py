"""One run inside pytest: collected session in, verdicts out. The plugin calls it where pytest would have looped
itself.
"""

import atexit
import gc
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ondol.engines.api import NodeOptions
from ondol.fleet import journal, pytest_inside, schedule, xdist
from ondol.fleet.controller import history
from ondol.fleet.controller.controller import Controller, RunSettings
from ondol.fleet.controller.plan import Plan, make_plan
from ondol.fleet.devices import Fleet
from ondol.fleet.interrupts import Interrupts
from ondol.fleet.model import Slot
from ondol.fleet.record import Book
from ondol.fleet.verdict import Final, Policy, Verdict, parse_causes
from ondol.report.run_live import LiveView
from ondol.report.run_replay import PytestShow
from ondol.test_jobs import worker_tmp
from ondol.test_jobs.item_caches import ItemCaches
from ondol.test_jobs.local_agent import LocalAgent

if TYPE_CHECKING:  # a run on this machine needs nothing of engines
    from ondol.test_jobs.far_nodes import Far


def node_options(config: pytest.Config) -> NodeOptions:
    options = config.known_args_namespace
    names = ("engine", "launch", "nodes", "slurm", "srun", "agent")
    given = {name: str(getattr(options, f"ondol_{name}")) for name in names}
    directory = str(options.ondol_node_dir or config.invocation_params.dir)
    return NodeOptions(**given, devices=str(options.ondol_devices or "auto"), directory=directory)


def settings_of(config: pytest.Config) -> RunSettings:
    policy = Policy(
        retries=config.option.ondol_retries,
        retry_on=parse_causes(config.option.ondol_retry_on),
        judge=config.option.ondol_judge == "on",
        flaky_fails=config.option.ondol_flaky == "fail",
    )
    # Somebody may want to stop after any result: then nothing is handed out before it has been shown.
    careful = bool(config.getvalue("maxfail")) or bool(config.getoption("stepwise", False))
    caches = ItemCaches(os.environ)
    return RunSettings(
        policy=policy,
        hygiene=config.option.ondol_hygiene,
        session_timeout=config.option.ondol_session_timeout,
        careful=careful,
        probe_timeout=config.option.ondol_probe_timeout,
        cache_fault=caches.fault,
        heal_cache=caches.heal,
        chosen=bool(config.option.ondol_rerun or config.option.ondol_shard),
        uid=config.getoption("testrunuid", None) or uuid.uuid4().hex,
    )


def make_slots(fleet: Fleet, workers: int, prepares: int) -> list[Slot]:
    slots = [
        Slot(device.name if workers == 1 else f"{device.name}.{n}", device.name)
        for device in fleet.devices
        for n in range(workers)
    ]
    cpus = min(prepares, max(1, os.cpu_count() or 1))
    return slots + [Slot(f"prepare{n}", "") for n in range(cpus if fleet.devices else 0)]


def estimates_path(config: pytest.Config) -> Path | None:
    chosen = config.option.ondol_estimates
    if chosen:
        return Path(chosen)
    cache = getattr(config, "cache", None)
    return Path(cache.mkdir("ondol")) / "history.json" if cache is not None else None


def run_session(
    session: pytest.Session,
    fleet: Fleet,
    book: Book,
    dist: str,
    far: "Far | None",
    muted: journal.Known,
    notes: Sequence[str],
) -> None:
    """Run every collected item; returns when each has its verdict, in the book's record."""
    config = session.config
    durations = estimates_path(config)
    known = history.load(durations)
    plan = make_plan(
        session,
        known,
        timeout=config.option.ondol_timeout,
        grace=config.option.ondol_grace,
        isolate=config.option.ondol_isolate == "item",
        dist=dist,
    )
    # Far devices are not known yet: what none of them can run is reported when all nodes have answered.
    impossible = [] if far else schedule.infeasible(plan.works, {d.name: d for d in fleet.devices})
    settings = settings_of(config)
    scheduler = _scheduler(config, plan, fleet, settings, {u.work for u in impossible})
    scheduler.expecting = far is not None
    _leave_to_other_models_what_is_skipped_here(session, scheduler)
    tmpdir = worker_tmp.make(tempfile.gettempdir())
    try:
        with Interrupts() as interrupts:
            private = [book.fileno(), *interrupts.descriptors()]
            links: Far | LocalAgent
            if far:
                links = far.join(config, plan, settings.chosen)
            else:
                links = LocalAgent(session, fleet, tmpdir, private, isolated=sum(work.isolate for work in plan.works))
            _record_plan(book, config, fleet, scheduler, plan, links.mode)
            book.write(*([muted] if any(muted) else []), *map(journal.Note, notes))
            live = _live_view(config, known)
            known_ones = {int(item): why for item, why in muted.muted.items()}
            show = PytestShow(session, live, lambda text: book.write(journal.Note(text)), known_ones)
            if far or sum(1 for state in scheduler.slots.values() if state.slot.device) > 1:
                show.name_workers(cache(lambda slot: xdist.name(slot, scheduler.slots)), settings.uid)
            for state in scheduler.slots.values():
                if state.slot.device:  # refused before anything runs
                    show.given(xdist.environment(state.slot.name, scheduler.slots, settings.uid))
            try:
                controller = Controller(fleet, scheduler, links.start, book, show, settings, interrupts, plan.prepares)
                for one in impossible:
                    controller.settle(one.work, Final(Verdict.ERROR, why=one.why))
                controller.run()
                show.end()
            finally:
                if live is not None:
                    live.close()  # whatever ends the run, the log stands complete on the terminal
                links.close()
    finally:
        shutil.rmtree(tmpdir, ignore_errors=True)
    for aside in book.record.quarantines:
        pytest_inside.add_suite_property(config, f"quarantine.{aside.device}", aside.why)
    _settle_garbage()
    history.save(durations, history.merge(known, book.record.measured()))


def _leave_to_other_models_what_is_skipped_here(session: pytest.Session, scheduler: schedule.Scheduler) -> None:
    """By the facts of the model that was collected for; it skips them itself if the others do so too."""
    here = frozenset(device.name for device in scheduler.devices.values() if not device.of_other_model)
    if any(state.slot.device and state.slot.device not in here for state in scheduler.slots.values()):
        skipped = {item.nodeid for item in pytest_inside.skipped_by_condition(session.items)}
        scheduler.differs(here, (), [work.index for work in scheduler.works.values() if work.nodeid in skipped])


def _settle_garbage() -> None:
    """pytest looks for garbage five times over before it ends: once is enough to find what there is, and with 20,000
    items each time takes a second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    if _leaks_are_looked_for():
        atexit.register(gc.unfreeze)


def _leaks_are_looked_for() -> bool:
    """Extensions made with nanobind (Triton 3.9, JAX) print pages about what Python did not free at the very end.
    Only they pay for it: with 10,000 items it takes a second.
    """
    loaded = [module for module in list(sys.modules.values()) if str(getattr(module, "__file__", "")).endswith(".so")]
    return any(type(thing).__module__ == "nanobind" for module in loaded for thing in vars(module).values())


def _scheduler(
    config: pytest.Config, plan: Plan, fleet: Fleet, settings: RunSettings, refused: set[int]
) -> schedule.Scheduler:
    works = [w for w in plan.works if plan.prepares.get(w.index, w.index) not in refused]
    prepares = [w for w in works if w.index in plan.prepares]
    order = (("failedfirst", False), ("newfirst", False), ("loadscopereorder", True))
    slots = make_slots(fleet, config.option.ondol_workers_per_device, len(prepares))
    if config.getoption("stepwise", False):
        # One after the other, up to the first failure: that is one worker's work.
        slots = [slot for n, slot in enumerate(slots) if n == 0 or not slot.device]
    return schedule.build(
        works,
        slots,
        fleet.devices,
        keep_order=any(config.getoption(name, usual) != usual for name, usual in order),
        retries_first=settings.careful,
        depth=1 if settings.careful else 2,
    )


def _record_plan(
    book: Book, config: pytest.Config, fleet: Fleet, scheduler: schedule.Scheduler, plan: Plan, mode: str
) -> None:
    book.write(
        journal.Run(
            arguments=[str(a) for a in config.invocation_params.args],
            root=str(config.rootpath),
            devices=[device.told for device in fleet.devices],
            slots={name: state.slot.device for name, state in scheduler.slots.items()},
            found=fleet.how,
            mode=mode,
            python=sys.version.split()[0],
            pytest=pytest.__version__,
        ),
        journal.Planned(plan.ids),
    )


def _live_view(config: pytest.Config, known: dict[str, float]) -> LiveView | None:
    wanted = config.option.ondol_live == "auto" and not os.environ.get("CI") and config.getoption("capture") != "no"
    wanted = wanted and os.environ.get("TERM") != "dumb"  # which cannot go back to draw anew
    terminal = pytest_inside.Terminal(config)
    return LiveView(terminal, known) if wanted and terminal.isatty else None
