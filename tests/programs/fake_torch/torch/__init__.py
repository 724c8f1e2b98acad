"""A torch of the devices in $FAKE_GPUS, as far as device questions go. Whoever touches a device writes his pid into
$TOUCHED, and cannot be forked afterwards: its children are refused, as CUDA refuses them.
"""

from torch import cuda


class device:  # noqa: N801 - as torch calls it
    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text


device.__module__ = "torch"


def ones(count, device="cpu"):
    if str(device).startswith("cuda"):
        cuda._lazy_init()
    return [1.0] * count
