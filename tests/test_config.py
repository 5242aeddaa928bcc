"""Options: where their values come from, what they may be, and what is said of those that cannot be."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from harebell.cli.server.folders import data_folder
from harebell.config import OPTIONS, Choice, Config, config_file, load, shown
from harebell.errors import InvalidArgument


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "harebell.toml"


def test_the_default_is_weaker_than_the_file_than_the_variable_than_the_flag(file: Path) -> None:
    file.write_text('port = 1\nhost = "f"\nheartbeat = 7\n')
    environ = {"HAREBELL_PORT": "2", "HAREBELL_HOST": "v", "HAREBELL_CONFIG": str(file), "PATH": "/bin"}
    settings = load({"port": "3", "host": None}, environ, file)
    config, sources = settings.config, settings.sources
    assert (config.port, config.host, config.heartbeat, config.tls_port) == (3, ("v",), 7, 5671)
    assert (sources["port"], sources["host"]) == ("--port", "HAREBELL_HOST")
    assert (sources["heartbeat"], sources["tls_port"]) == (str(file), "default")
    assert set(sources) == set(OPTIONS)
    assert settings.remarks == ()


@pytest.mark.parametrize("name", list(OPTIONS))
def test_a_default_is_read_as_itself(name: str) -> None:
    each = OPTIONS[name]
    assert getattr(Config(), name) == each.default
    if each.default_text is None:
        assert each.default is None
    else:
        assert each.kind.read(each.default_text) == each.default
    assert each.about.endswith(".")


@pytest.mark.parametrize(
    "name, text, value",
    [
        ("port", "0", 0), ("port", 65535, 65535),
        ("sync", "no", False), ("sync", False, False), ("sync", "On", True), ("tls_only", "0", False),
        ("disk_free_limit", "50MB", 50_000_000), ("disk_free_limit", "1.5 GiB", 3 << 29), ("disk_free_limit", 7, 7),
        ("memory_high_watermark", "0.4", 0.4), ("memory_high_watermark", 0.4, 0.4),
        ("memory_high_watermark", "40%", 0.4), ("memory_high_watermark", "1GB", 10**9),
        ("memory_high_watermark", "0", 0), ("memory_high_watermark", 0, 0), ("memory_high_watermark", 1.0, 1.0),
        ("max_connections", "unlimited", None), ("max_connections", "0", 0),
        ("handshake_timeout", "500ms", 0.5), ("handshake_timeout", 3, 3.0), ("consumer_timeout", "30m", 1800.0),
        ("heartbeat", "30s", 30), ("heartbeat", "1.5m", 90), ("heartbeat", "0", 0), ("heartbeat", 7, 7),
        ("heartbeat", "2000 ms", 2),
        ("mechanisms", "plain, external", ("PLAIN", "EXTERNAL")), ("mechanisms", ["plain"], ("PLAIN",)),
        ("host", "*", ("*",)), ("host", "127.0.0.1, [::1],::1", ("127.0.0.1", "::1")),
        ("host", ["a,b", "c"], ("a", "b", "c")), ("host", "fe80::1%eth0", ("fe80::1%eth0",)),
        ("data", "/x", Path("/x")), ("tls_verify", "required", "required"),
    ],
)  # fmt: skip
def test_values(name: str, text: object, value: object) -> None:
    read = OPTIONS[name].kind.read(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "name, text, must",
    [
        ("port", "65536", "a whole number from 0 to 65535"), ("port", "x", "a whole number"), ("port", True, "a whole"),
        ("sync", "maybe", "true or false"), ("sync", 1, "true or false"),
        ("host", "", "addresses"), ("host", 1, "addresses"), ("anonymous_user", "", "a text"),
        ("anonymous_user", 1, "a text"),
        ("disk_free_limit", "50 apples", "a size in bytes"), ("disk_free_limit", -1, "a size"),
        ("max_message_size", "1GiB", "1 to 512MiB"), ("frame_max", 100, "4KiB to 16MiB"),
        ("memory_high_watermark", "1.5", "a share of the memory"), ("memory_high_watermark", 0.0, "a share"),
        ("memory_high_watermark", "140%", "a share"), ("max_connections", "-1", 'from 0 on or "unlimited"'),
        ("handshake_timeout", "0", "a time above 0"), ("handshake_timeout", "soon", "a time"),
        ("heartbeat", "soon", "a time with a unit"), ("heartbeat", "500ms", "from 0 to 65535 of seconds"),
        ("heartbeat", "1d", "65535"), ("heartbeat", -1, "from 0"),
        ("mechanisms", [], "names"), ("mechanisms", [1], "names"), ("data", "", "a path"), ("data", 1, "a path"),
        ("host", "localhost:5672", "without a port"), ("host", "[::1]:5672", "without a port"),
        ("host", "[a]", "addresses"), ("host", "a,,b", "addresses"), ("host", [], "addresses"),
        ("host", ["a", 1], "addresses"), ("host", "a b", "addresses"), ("host", "amqp://a", "addresses"),
        ("tls_min_version", "1.1", "one of 1.2, 1.3"), ("log_level", "trace", "one of debug"),
    ],
)  # fmt: skip
def test_values_that_are_none(name: str, text: object, must: str) -> None:
    if text == "":
        assert load({}, {OPTIONS[name].variable: ""}).sources[name] == "default"  # as if it were not set
    with pytest.raises(InvalidArgument) as caught:
        load({name: text}, {})
    assert str(caught.value).startswith(f"{OPTIONS[name].flag} must be ")
    assert must in str(caught.value)
    assert repr(text) in str(caught.value)


ABSURD: list[object] = [
    "nan", "inf", "-inf", "-1", "1e400", "²", "\u0663", "9" * 400, "9" * 5000, f"{'9' * 400}.5", "", " ", "\x01", "\0",
    "\udcff", "~nosuchuser/x", "~", float("nan"), float("inf"), -1, 10**400, -0.0, [], [""], ["\x01"], {}, None, True,
]  # fmt: skip


@pytest.mark.parametrize("text", ABSURD, ids=lambda text: ascii(text)[:20])
@pytest.mark.parametrize("name", list(OPTIONS))
def test_an_absurd_value_is_read_or_refused_in_words(name: str, text: object) -> None:
    kind = OPTIONS[name].kind
    allowed = "^(a |one of|true or|names|addresses|MODULE:NAME)"  # our words, not those of Python
    with suppress(pytest.fail.Exception), pytest.raises(ValueError, match=allowed):
        read = kind.read(text)
        assert kind.read(OPTIONS[name].shown(read)) == read


@pytest.mark.parametrize("environ", [{"HAREBELL_CONFIG": "~nosuchuser/x"}, {"HAREBELL_CONFIG": "/a\0"}])
def test_a_file_that_no_path_names(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="HAREBELL_CONFIG must be a path"):
        config_file(None, environ)
    with pytest.raises(InvalidArgument, match="--config must be a path"):
        config_file(environ["HAREBELL_CONFIG"], {})


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31)  # no user has it, as in a container
    assert config_file(None, {}) is None
    with pytest.raises(InvalidArgument, match="no home folder"):
        data_folder()


def test_the_place_of_a_bad_value_is_named(file: Path) -> None:
    file.write_text("port = 'x'")
    with pytest.raises(InvalidArgument, match=f"{file}: port must be"):
        load({}, {}, file)
    with pytest.raises(InvalidArgument, match="HAREBELL_PORT must be"):
        load({}, {"HAREBELL_PORT": "tcp://10.0.0.1:5672"}, None)  # what Kubernetes sets for a service called harebell


@pytest.mark.parametrize(
    "text, said",
    [
        ("prot = 1", "there is no option prot; did you mean port?"),
        ("disk-free-limit = 1", "did you mean disk_free_limit?"),
        ("zzz = 1", "there is no option zzz; `harebell config` lists them"),
        ("[tls]\ncert = 'x'", "there is no option tls;"),
        ("port = ", "is not TOML"),
        ("port = 1\nport = 2", "is not TOML"),
        (b"\xff", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be(file: Path, text: str | bytes, said: str) -> None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidArgument) as caught:
        load({}, {}, file)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read: No such file"):
        load({}, {}, tmp_path / "nope.toml")


def test_variables_that_look_misspelt_are_remarked() -> None:
    others = {"HAREBELL_URL": "amqp://", "HAREBELL_CONFIG": "x", "HAREBELL_PORT_5672_TCP_ADDR": "10.0.0.1"}
    settings = load({}, {"HAREBELL_PROT": "1", **others})
    assert settings.remarks == ("the variable HAREBELL_PROT is no option; did you mean HAREBELL_PORT?",)


@pytest.mark.parametrize(
    "name, value", [("tls_key", "k"), ("tls_only", "true"), ("tls_verify", "optional"), ("tls_ca", "c")]
)
def test_tls_needs_a_certificate(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} needs TLS.*--tls-cert"):
        load({name: value}, {})
    assert load({"tls_cert": "c", "tls_ca": "a", name: value}, {}).config.tls_cert == Path("c")


def test_a_check_of_client_certificates_needs_authorities() -> None:
    with pytest.raises(InvalidArgument, match=r"tls_verify 'optional' needs the authorities.*--tls-ca"):
        load({"tls_verify": "optional", "tls_cert": "c"}, {})


def test_which_file(tmp_path: Path) -> None:
    own = tmp_path / "harebell" / "harebell.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert config_file(None, environ) is None
    own.parent.mkdir()
    own.write_text("")
    assert config_file(None, environ) == own
    assert config_file(None, {**environ, "HAREBELL_CONFIG": "/v.toml"}) == Path("/v.toml")
    assert config_file("/f.toml", {**environ, "HAREBELL_CONFIG": "/v.toml"}) == Path("/f.toml")
    assert config_file(None, {"XDG_CONFIG_HOME": "relative"}) != Path("relative/harebell/harebell.toml")


@pytest.mark.parametrize("name", [name for name, each in OPTIONS.items() if isinstance(each.kind, Choice)])
def test_a_choice_says_its_values(name: str) -> None:
    each = OPTIONS[name]
    assert isinstance(each.kind, Choice)
    assert all(f"`{value}`" in each.about for value in each.kind.values)


@pytest.mark.parametrize("unit", ["ms", "s", "m", "h", ""])
@pytest.mark.parametrize("name", [name for name in OPTIONS if name.endswith("timeout") or name == "heartbeat"])
def test_every_time_may_have_a_unit(name: str, unit: str) -> None:
    read = OPTIONS[name].kind.read(f"{'5000' if unit == 'ms' else '5'}{unit}")
    assert read == 5 * {"ms": 1, "s": 1, "m": 60, "h": 3600, "": 1}[unit]


def test_shown() -> None:
    values = (None, True, 5, 2000, 50_000_000, 16 << 20, 0.6, ("A", "B"), Path("/x"), 1025)
    assert [shown(value) for value in values] == [
        "none", "true", "5", "2kB", "50MB", "16MiB", "0.6", "A,B", "/x", "1025"
    ]  # fmt: skip


def test_a_file_that_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "harebell.toml"
    file.write_bytes(b"\xef\xbb\xbfport = 7\n")
    assert load({}, {}, file).config.port == 7
