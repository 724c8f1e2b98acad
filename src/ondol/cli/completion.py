"""`ondol completion bash | zsh | fish`"""

import argparse

from ondol import options
from ondol.cli import flags, output
from ondol.cli.main import names
from ondol.options import Option
from ondol.tools import table

#: Where there is no answer, shells complete file names.
SHELLS = {
    "bash": """\
_ondol() { local IFS=$'\\n'; COMPREPLY=($(ondol completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)); }
complete -o bashdefault -o default -F _ondol ondol""",
    "zsh": """\
_ondol() {
  local -a found; found=("${(@f)$(ondol completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _ondol ondol""",
    "fish": """\
function __ondol_words; ondol completion words (commandline -opc)[2..] (commandline -ct) 2>/dev/null; end
complete -c ondol -f -n 'count (__ondol_words) >/dev/null' -a '(__ondol_words)'""",
}


@flags.command(
    "completion",
    """Print what makes a shell complete commands, options and values of `ondol` when the tab key is pressed.

The shell asks `ondol` itself each time, so that nothing has to be made again after an update.""",
    """\
  source <(ondol completion bash)         in ~/.bashrc
  source <(ondol completion zsh)          in ~/.zshrc, after compinit
  ondol completion fish | source          in ~/.config/fish/config.fish""",
    shell={"choices": (*SHELLS, "words"), "metavar": "|".join(SHELLS)},
    typed={"nargs": argparse.REMAINDER, "help": argparse.SUPPRESS},
)
def main(parsed: argparse.Namespace) -> None:
    if parsed.shell != "words":
        output.data(SHELLS[parsed.shell])
        return
    for word in candidates(parsed.typed or [""]):  # asked by a shell
        output.data(word)


def candidates(typed: list[str]) -> list[str]:
    """What the last word can become."""
    # bash takes `--publish=nev` apart; help about a command is taken for the command.
    before, last = [word for word in typed[:-1] if word not in ("=", "help")], typed[-1].removeprefix("=")
    length = 2 if before[:1] == ["store"] else 1
    command, rest = " ".join(before[:length]), before[length:]
    if "--" in rest:
        return []  # the words of somebody else's command
    taken = {option.flag: option for option in options.of(command)}
    asked = taken.get(rest[-1]) if rest else None
    if asked and asked.kind not in ("flag", "switch"):
        found = _values(asked)
    elif last.startswith("-"):
        switches = [option for option in taken.values() if option.kind in ("flag", "switch")]
        off = [f"--no-{option.flag[2:]}" for option in switches if option.least != options.TYPED]
        found = [*taken, *off, "--help"]
    else:
        found = [] if rest else _first_words(command)
    return sorted(word for word in found if word.startswith(last))


def _values(option: Option) -> list[str]:
    if option.name in ("tools", "tool"):
        return ["auto", *table.BY_NAME] if option.name == "tools" else list(table.BY_NAME)
    return option.metavar.split("|") if option.kind == "choice" else []


def _first_words(command: str) -> list[str]:
    return {
        "": [*names(), "help"],
        "store": names("store "),
        "key": ["list", "new", "revoke", "show", "trust"],
        "store writers": ["add", "list", "remove"],
        "completion": list(SHELLS),
    }.get(command, [])
