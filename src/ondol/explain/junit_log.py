"""JUnit XML, as pytest, unittest, Gradle, CTest and others write it. Pure: gets bytes, gives parts.

Read as a stream, so that a report of any size needs the memory of one test. A report is a file that anybody may have
written: it may not declare entities (a kilobyte of them can expand to gigabytes), and nothing outside it is ever read.
"""

from collections.abc import Iterable, Iterator
from xml.parsers import expat

from ondol.explain import noise
from ondol.explain.explainer import FailedTest, LogPart

_FAILED = ("failure", "error")
_TEXTS = (*_FAILED, "system-out", "system-err")
#: Of one text; what a test printed after that is not looked at.
_MOST = 4 << 20
#: Of one tag with its attributes. It is read again from its beginning with every chunk that does not end it.
_LONGEST_TAG = 4 << 20


class JUnitLog:
    """A `Log`. A label is the test's number and its name."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.trouble = ""
        self._chunks = chunks
        self._failed: list[FailedTest] = []
        self._ready: list[LogPart] = []
        self._test = ""
        self._label = ""
        self._test_failed = False
        self._test_parts: list[LogPart] = []
        #: (number of its first line, pieces) of the text that is being read.
        self._text: tuple[int, list[str]] | None = None
        self._size = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity

    def parts(self) -> Iterator[LogPart]:
        read = 0
        try:
            for chunk in self._chunks:
                self._parser.Parse(chunk, False)
                yield from self._take()
                read += len(chunk)
                if read - self._parser.CurrentByteIndex > _LONGEST_TAG:
                    raise _Costly("a tag in it is longer than any that a test needs")
            self._parser.Parse(b"", True)
        except (expat.ExpatError, _Costly) as error:
            # The report of a run that was killed ends anywhere; what came before is as good as ever.
            self._finish_test()
            self.trouble = f"the XML could be read only up to line {self._parser.CurrentLineNumber}: {error}"
        yield from self._take()

    def _take(self) -> list[LogPart]:
        ready, self._ready = self._ready, []
        return ready

    def failed(self) -> list[FailedTest]:
        return self._failed

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testcase":
            self._test = "::".join(filter(None, (attributes.get("classname"), attributes.get("name")))) or "?"
            self._label = f"{len(self._failed)} {self._test}"
            self._test_failed, self._test_parts = False, []
        elif tag in _TEXTS:
            self._test_failed |= tag in _FAILED
            message = attributes.get("message", "")
            if message:
                self._keep(self._parser.CurrentLineNumber, message)
            self._text, self._size = (self._parser.CurrentLineNumber, []), 0

    def _characters(self, text: str) -> None:
        if self._text is None:
            return
        if not self._text[1]:  # a tag may go over several lines: its text begins where it begins
            self._text = (self._parser.CurrentLineNumber, [])
        self._size += len(text)
        if self._size <= _MOST:
            self._text[1].append(text)

    def _end(self, tag: str) -> None:
        if tag in _TEXTS and self._text is not None:
            self._keep_text(traceback=tag in _FAILED)
        elif tag == "testcase":
            self._finish_test()

    def _keep_text(self, *, traceback: bool) -> None:
        if self._text is None:
            return
        number, text = self._text[0], "".join(self._text[1])
        if traceback:
            text = "\n".join("" if noise.is_source(line) else line for line in text.split("\n"))
        self._keep(number, text)
        self._text = None

    def _keep(self, number: int, text: str) -> None:
        part = LogPart(self._label, number, noise.without_escapes(text))
        (self._test_parts if self._label else self._ready).append(part)

    def _finish_test(self) -> None:
        if self._label and self._test_failed:
            self._keep_text(traceback=False)
            self._failed.append(FailedTest(self._test, (self._label,)))
            self._ready += self._test_parts
        self._label, self._test_parts, self._text = "", [], None

    def _entity(self, *_: object) -> None:
        raise _Costly("it declares entities, which no test report needs")


class _Costly(Exception):
    """Somebody wants our memory, or our time."""
