"""The process that really has the device: a question a line on standard input, an answer a line on standard output.

It imports a library when the first question about it comes, or at once those that it was started with.
"""

import importlib
import json
import os
import sys
from typing import Any

from ondol.host import proctree
from ondol.testing.facts import values
from ondol.testing.facts.questions import ALL, title

_KNOWN = {title(questions, name): (questions, name) for questions in ALL for name in questions.names}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """`value`, or the `error` that the real function raised, or `untold`: ask the real function yourself."""
    questions, name = _KNOWN[question["ask"]]
    arguments = values.from_json(question["arguments"])
    named = values.from_json(question["named"])
    try:
        owner: Any = importlib.import_module(questions.module)
        if questions.holder:
            owner = getattr(owner, questions.holder)()
        return {"value": values.to_json(getattr(owner, name)(*arguments, **named))}
    except values.Untold as error:
        return {"untold": str(error)}
    except Exception as error:
        return {"error": values.error_to_json(error)}


def main(arguments: list[str]) -> None:
    proctree.die_with_parent(int(arguments[0]))
    # Libraries print what they like while they are imported: only answers may stand on our standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for module in arguments[1:]:
        try:
            importlib.import_module(module)
        except ImportError:
            continue
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
