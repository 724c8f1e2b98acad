"""Loads two extensions with PyTorch's own `cpp_extension`: one from a file, one with its source inline.

    torch_extension.py SOURCE [SECONDS]

Neither includes PyTorch's headers, which alone take half a minute. With SECONDS it gives up waiting after that time and
says where it stands.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys

gc.disable()  # a fifth of what importing torch takes

from torch.utils import cpp_extension  # noqa: E402

INLINE = """
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(7); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "inlined", "", -1, methods};
PyMODINIT_FUNC PyInit_inlined() { return PyModule_Create(&module); }
"""


def main(source: str, seconds: str = "") -> None:
    os.environ["BUILDER"] = str(os.getpid())  # for a compiler that kills whoever asked for it
    if seconds:
        faulthandler.dump_traceback_later(float(seconds), exit=True)
    filed = cpp_extension.load("filed", [source], verbose=True)
    inlined = cpp_extension.load_inline("inlined", INLINE, no_implicit_headers=True, verbose=True)
    sys.stdout.flush()
    print(f"answers {filed.answer()} {inlined.answer()} from {filed.__file__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
