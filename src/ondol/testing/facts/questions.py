"""Which functions are answered from facts, by the module that holds them."""

from dataclasses import dataclass

#: Asked of every device module of torch; a module that lacks one simply has no such question.
_DEVICES = (
    "is_available",
    "device_count",
    "current_device",
    "get_device_name",
    "get_device_capability",
    "get_device_properties",
    "get_arch_list",
    "get_gencode_flags",
    "is_bf16_supported",
    "is_tf32_supported",
    "can_device_access_peer",
    "mem_get_info",
)
_ACCELERATOR = (
    "is_available",
    "device_count",
    "current_accelerator",
    "current_device_index",
    "current_device_idx",
    "get_device_capability",
    "get_memory_info",
)


@dataclass(frozen=True)
class Questions:
    """The functions of one module; where they are methods of a class made later, its name."""

    module: str
    names: tuple[str, ...]
    holder: str = ""
    #: Called by the library before anything touches the device: whoever calls it is the one.
    gate: str = ""


ALL = (
    # ROCm's torch answers under the same name.
    Questions("torch.cuda", _DEVICES, gate="_lazy_init"),
    Questions("torch.cuda.memory", ("mem_get_info",)),
    Questions("torch.xpu", _DEVICES, gate="_lazy_init"),
    Questions("torch_npu.npu", _DEVICES, gate="_lazy_init"),
    Questions("torch.accelerator", _ACCELERATOR),
    Questions("torch.accelerator.memory", ("get_memory_info",)),
    Questions("triton.backends.nvidia.driver", ("get_device_properties",), holder="CudaUtils"),
    Questions("triton.backends.amd.driver", ("get_device_properties",), holder="HIPUtils"),
)
BY_MODULE = {one.module: one for one in ALL}
#: Answers that change by themselves: asked every time, never kept for the next run.
CHANGING = frozenset({"mem_get_info", "get_memory_info"})


def title(questions: Questions, name: str) -> str:
    """How a question is called between client and helper."""
    return ".".join(filter(None, (questions.module, questions.holder, name)))
