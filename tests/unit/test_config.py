"""Settings: precedence, origins, and errors that name the value and where it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ondol import config, options, units
from ondol.cli import flags, run
from ondol.cli import test as test_command
from ondol.doctor.walk import Bounds
from ondol.errors import UsageError
from ondol.fleet.verdict import RETRIED_BY_DEFAULT
from ondol.room.handover import DEFAULT_PLACE
from ondol.room.room import OPEN_AGE
from ondol.trust import settings as files


def test_command_line_beats_environment_beats_file(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text('store = "/file"\nscope = "file"\npublish = "never"\n')
    env = {"ONDOL_STORE": "/env", "ONDOL_SCOPE": "env"}
    settings = files.load({"store": "/flag"}, env, str(tmp_path))
    assert (settings.store, settings.scope, settings.publish) == ("/flag", "env", "never")
    assert settings.origin("store") == "command line"
    assert settings.origin("scope") == "ONDOL_SCOPE"
    assert settings.origin("publish") == str(tmp_path / "ondol.toml")
    assert settings.origin("room-dir") == "default"


def test_every_setting_has_a_variable_and_a_default() -> None:
    settings = config.merge({}, {})
    for option in options.BY_NAME.values():
        assert option.variable == "ONDOL_" + option.name.upper().replace("-", "_")
        assert getattr(settings, option.attribute) == option.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("strict", "yes", True),
        ("strict", "0", False),
        ("tools", "triton, inductor", ["triton", "inductor"]),
        ("fill-max", "2GiB", 2 << 30),
        ("store-timeout", "15m", 900.0),
        ("trust", "1000,1001", [1000, 1001]),
        ("publish", "on-success", "on-success"),
    ],
)
def test_values_from_the_environment(name: str, text: str, value: object) -> None:
    option = options.BY_NAME[name]
    settings = config.merge({}, {option.variable: text})
    assert getattr(settings, option.attribute) == value


def test_values_from_toml_have_their_own_types(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.ondol]\ntools = ["triton"]\nstrict = true\nfill-max = 1000\nstore-timeout = 5\n'
    )
    settings = files.load({}, {}, str(tmp_path))
    assert (settings.tools, settings.strict, settings.fill_max) == (["triton"], True, 1000)
    assert settings.store_timeout == 5.0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("strict", "maybe"),
        ("publish", "sometimes"),
        ("fill-max", "ten"),
        ("fill-max", "10 parsecs"),
        ("store-timeout", "5 fortnights"),
        ("trust", "root"),
        ("trust", "-1"),
        ("scope", "../main"),
        ("scope", "a/b"),
        ("tools", " , "),
    ],
)
def test_impossible_value_is_refused(name: str, text: str) -> None:
    option = options.BY_NAME[name]
    with pytest.raises(UsageError) as caught:
        config.merge({}, {option.variable: text})
    assert repr(text) in caught.value.what
    assert option.variable in caught.value.because
    assert caught.value.hint


@pytest.mark.parametrize(("name", "text"), [("store", ""), ("json", ""), ("store", "s3://bucket")])
def test_an_empty_or_foreign_path_means_the_default(name: str, text: str) -> None:
    """`--store "$STORE"` where STORE is not set."""
    with pytest.raises(UsageError, match=name):
        config.merge({name: text}, {})


def test_relative_paths_are_relative_to_who_says_them(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "ondol.toml").write_text('store = "a"\nroom-dir = "../b"\n')
    found = files.load({"json": "c"}, {"ONDOL_CCACHE_SHARED": "./d"}, str(tmp_path / "sub"))
    assert (found.store, found.room_dir) == (str(tmp_path / "a"), str(tmp_path.parent / "b"))
    assert (found.json, found.ccache_shared) == (str(tmp_path / "sub" / "c"), str(tmp_path / "sub" / "d"))
    assert files.load({"store": "file:///x/y"}, {}, str(tmp_path)).store == "/x/y"


def test_misspelt_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text('stroe = "/x"\nquiet = true\n')
    found = files.load({}, {}, str(tmp_path))
    assert len(found.warnings) == 1
    assert "'stroe'" in found.warnings[0]
    assert "did you mean store?" in found.warnings[0]
    assert found.quiet is True


@pytest.mark.parametrize(
    ("name", "meant"), [("ONDOL_STROE", "ONDOL_STORE"), ("ONDOL_PUBLSH", "ONDOL_PUBLISH"), ("ONDOL_ROOM_FILE", "")]
)
def test_misspelt_variable_is_named(name: str, meant: str) -> None:
    assert config.merge({}, {name: "x"}).remarks == ([f"{name} is no setting; did you mean {meant}?"] if meant else [])


def test_file_of_the_wrong_shape(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text("store = [\n")
    assert "is not used: it is not valid TOML" in files.load({}, {}, str(tmp_path)).warnings[0]
    (tmp_path / "ondol.toml").unlink()
    (tmp_path / "pyproject.toml").write_text('[tool]\nondol = "x"  # tool.ondol\n')
    assert "not a table" in files.load({}, {}, str(tmp_path)).warnings[0]


def test_nearest_file_up_to_the_top_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text('store = "/outside"\n')
    checkout = tmp_path / "checkout"
    deep = checkout / "a" / "b"
    deep.mkdir(parents=True)
    (checkout / ".git").mkdir()
    (checkout / "pyproject.toml").write_text("[project]\n")
    assert files.load({}, {}, str(deep)).origin("store") == "default"
    (checkout / "pyproject.toml").write_text('[tool.ondol]\nstore = "/inside"\n')
    assert files.load({}, {}, str(deep)).store == "/inside"


@pytest.mark.parametrize("text", ["[triton]\nautotune = true\n", "triton.autotune = true\n"])
def test_table_of_a_tool_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "ondol.toml").write_text(text)
    settings = files.load({}, {}, str(tmp_path))
    assert settings.triton_autotune == "on"
    assert settings.origin("triton-autotune") == str(tmp_path / "ondol.toml")
    assert files.load({}, {"ONDOL_TRITON_AUTOTUNE": "no"}, str(tmp_path)).triton_autotune == "off"
    (tmp_path / "ondol.toml").unlink()
    (tmp_path / "pyproject.toml").write_text("[tool.ondol.triton]\nautotune = true\n")
    assert files.load({}, {}, str(tmp_path)).triton_autotune == "on"


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ("[triton]\nautotun = true\n", "triton.autotun", "triton.autotune"),
        ("triton-autotune = true\n", "triton-autotune", "triton.autotune"),
        ("[store]\ntimeout = 5\n", "store.timeout", "store-timeout"),
    ],
)
def test_misspelt_key_in_a_table_is_named(tmp_path: Path, text: str, key: str, meant: str) -> None:
    (tmp_path / "ondol.toml").write_text(text)
    (warning,) = files.load({}, {}, str(tmp_path)).warnings
    assert repr(key) in warning
    assert f"did you mean {meant}?" in warning


def test_search_goes_on_above_a_directory_that_is_no_checkout(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text("quiet = true\n")
    (tmp_path / "sub").mkdir()
    assert files.load({}, {}, str(tmp_path / "sub")).quiet is False
    assert files.load({}, {}, str(tmp_path)).quiet is True


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], "auto"),
        (["--triton-autotune"], "on"),
        (["--no-triton-autotune"], "off"),
        (["--triton-autotune=auto"], "auto"),
        (["--triton-autotune=off"], "off"),
    ],
)
def test_switch_means_one_thing_to_every_command(tmp_path: Path, words: list[str], value: str) -> None:
    """The word behind the flag belongs to the command."""
    file = tmp_path / "ondol.toml"
    file.write_text("[triton]\nautotune = true\n" if words else "")
    given, command = run.parse([*words, "tests/ops"])
    assert files.load(given, {}, str(tmp_path)).triton_autotune == value
    assert command == ["tests/ops"]
    ours, theirs = test_command.parse([*words, "tests/ops"])
    assert files.load(flags.given(ours), {}, str(tmp_path)).triton_autotune == value
    assert theirs == ["tests/ops"]


@pytest.mark.parametrize("word", ["--triton-autotune=maybe", "--no-triton-autotune=off"])
def test_switch_without_sense_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="triton-autotune"):
        files.load(run.parse([word, "true"])[0], {}, "/")
    with pytest.raises(UsageError, match="triton-autotune"):
        test_command.parse([word])


def test_the_table_has_the_defaults_of_those_who_know_better() -> None:
    """It stands below them all, and cannot ask."""
    default = {
        (option.commands.split()[0], option.name): option.default for option in options.OPTIONS if option.commands
    }
    assert default["test", "retry-on"] == ",".join(sorted(cause.value for cause in RETRIED_BY_DEFAULT))
    assert Bounds(default["doctor", "limit"], default["doctor", "walk-time"]) == Bounds()
    assert units.duration(OPEN_AGE) in next(o.help for o in options.of("gc") if o.name == "older-than")
    assert DEFAULT_PLACE in next(o.help for o in options.of("open") if o.name == "at")
