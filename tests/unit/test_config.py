"""Settings: precedence, origins, and errors that name the value and where it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ondol import config
from ondol.errors import UsageError


def test_command_line_beats_environment_beats_file(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text('store = "/file"\nscope = "file"\npublish = "never"\n')
    env = {"ONDOL_STORE": "/env", "ONDOL_SCOPE": "env"}
    settings = config.load({"store": "/flag"}, env, str(tmp_path))
    assert (settings.store, settings.scope, settings.publish) == ("/flag", "env", "never")
    assert settings.origin("store") == "command line"
    assert settings.origin("scope") == "ONDOL_SCOPE"
    assert settings.origin("publish") == str(tmp_path / "ondol.toml")
    assert settings.origin("room-dir") == "default"


def test_every_setting_has_a_variable_and_a_default() -> None:
    settings = config.merge({}, {}, {}, "")
    for option in config.OPTIONS:
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
    option = config.BY_NAME[name]
    settings = config.merge({}, {option.variable: text}, {}, "")
    assert getattr(settings, option.attribute) == value


def test_values_from_toml_have_their_own_types(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.ondol]\ntools = ["triton"]\nstrict = true\nfill-max = 1000\nstore-timeout = 5\ntrust = [7]\n'
    )
    settings = config.load({}, {}, str(tmp_path))
    assert (settings.tools, settings.strict, settings.fill_max) == (["triton"], True, 1000)
    assert (settings.store_timeout, settings.trust) == (5.0, [7])


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
def test_impossible_value_is_accepted(name: str, text: str) -> None:
    option = config.BY_NAME[name]
    with pytest.raises(UsageError) as caught:
        config.merge({}, {option.variable: text}, {}, "")
    assert repr(text) in caught.value.what
    assert option.variable in caught.value.because
    assert caught.value.hint


def test_misspelt_key_goes_unnoticed(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text('stroe = "/x"\n')
    with pytest.raises(UsageError) as caught:
        config.load({}, {}, str(tmp_path))
    assert "'stroe'" in caught.value.what
    assert "'store'" in caught.value.hint


def test_file_of_the_wrong_shape(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text("store = [\n")
    with pytest.raises(UsageError, match="cannot be read"):
        config.load({}, {}, str(tmp_path))
    (tmp_path / "ondol.toml").unlink()
    (tmp_path / "pyproject.toml").write_text('[tool]\nondol = "x"  # tool.ondol\n')
    with pytest.raises(UsageError, match="not a table"):
        config.load({}, {}, str(tmp_path))


def test_nearest_file_up_to_the_top_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "ondol.toml").write_text('store = "/outside"\n')
    checkout = tmp_path / "checkout"
    deep = checkout / "a" / "b"
    deep.mkdir(parents=True)
    (checkout / ".git").mkdir()
    (checkout / "pyproject.toml").write_text("[project]\n")
    assert config.load({}, {}, str(deep)).origin("store") == "default"
    (checkout / "pyproject.toml").write_text('[tool.ondol]\nstore = "/inside"\n')
    assert config.load({}, {}, str(deep)).store == "/inside"


@pytest.mark.parametrize("text", ["[triton]\nautotune = true\n", "triton.autotune = true\n"])
def test_table_of_a_tool_is_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "ondol.toml").write_text(text)
    settings = config.load({}, {}, str(tmp_path))
    assert settings.triton_autotune is True
    assert settings.origin("triton-autotune") == str(tmp_path / "ondol.toml")
    assert config.load({}, {"ONDOL_TRITON_AUTOTUNE": "no"}, str(tmp_path)).triton_autotune is False
    (tmp_path / "ondol.toml").unlink()
    (tmp_path / "pyproject.toml").write_text("[tool.ondol.triton]\nautotune = true\n")
    assert config.load({}, {}, str(tmp_path)).triton_autotune is True


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ("[triton]\nautotun = true\n", "triton.autotun", "triton.autotune"),
        ("triton-autotune = true\n", "triton-autotune", "triton.autotune"),
        ("[store]\ntimeout = 5\n", "store.timeout", "store-timeout"),
    ],
)
def test_misspelt_key_in_a_table_goes_unnoticed(tmp_path: Path, text: str, key: str, meant: str) -> None:
    (tmp_path / "ondol.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        config.load({}, {}, str(tmp_path))
    assert repr(key) in caught.value.what
    assert repr(meant) in caught.value.hint
