"""The adapter: the project's own functions, under the names that a task file calls."""

from chip.batch import compile_task, discover_tasks, run_single_task
from chip.interface import ChipWorker


def find(root):
    specs = discover_tasks(root)
    return [{"name": s.name, "runtime": s.runtime_name, "timeout": s.timeout_s, "spec": s} for s in specs]


class Chip:
    def prepare(self, task):
        return compile_task(task["spec"], task.built)

    def open(self, device, task):
        bins = task.prepared.runtime_bins
        self.worker = ChipWorker()
        self.worker.init(
            int(device.visible), str(bins.host_path), bins.aicpu_path.read_bytes(), bins.aicore_path.read_bytes()
        )

    def run(self, task):
        run_single_task(task.prepared, self.worker)
