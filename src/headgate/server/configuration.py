"""How a broker is configured: every setting of `headgate serve`, from `headgate.toml` and the command line.

A setting is one line of `ServerOptions`: its default, the check of its value, and the table of the file that it is in. The file
is that of `headgate.settings`, too: what the library reads is at its top, what the broker reads is in tables.

[broker]                 ServerOptions.host, .amqp_port …
amqp_port = 5672
[log]                    ServerOptions.log_format, .log_level: the field is the table, an underscore, the key
format = "json"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from headgate.checks import suggest
from headgate.errors import HeadgateError, SettingsError
from headgate.quantities import parse_duration, parse_size
from headgate.settings import FILE_NAME, PREFIX, Settings, read_toml

# Returns the value in the form that is used; SettingsError says what it must be.
SettingCheck: TypeAlias = Callable[[Any], Any]
AMQP_PORT: Final = 5_672
AMQPS_PORT: Final = 5_671
HTTP_PORT: Final = 15_672
DATA: Final = Path("headgate-data")


def setting(
    default: Any, check: SettingCheck, section: str = "broker", *, live: bool = False
) -> Any:
    """A field of `ServerOptions`; one that is live takes effect on SIGHUP, the others when the broker is started again."""
    return field(default=default, metadata={"check": check, "section": section, "live": live})


# ---- checks


def a_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise SettingsError(f"must be a text that is not empty, not {value!r}")
    return value


def a_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"must be true or false, not {value!r}")
    return value


def a_path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(a_text(value))


def a_path_or_address(value: Any) -> Path | str:
    return value if isinstance(value, str) and "://" in value else a_path(value)


def a_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    return parse_duration(a_text(value))


def a_size(value: Any) -> int:
    """A number of bytes, or a text such as 64MiB."""
    if isinstance(value, str):
        value = parse_size(value)
    return a_number()(value)


def a_number(least: int = 0, most: int = 2**63 - 1) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise SettingsError(f"must be an integer from {least:,} to {most:,}, not {value!r}")
        return value

    return check


def a_share_or_size(value: Any) -> float:
    """A share of the machine's memory such as 0.6, or a size."""
    if isinstance(value, float) and 0 < value <= 1:
        return value
    return a_size(value)


def one_of(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in words:
            raise SettingsError(f"must be one of {', '.join(words)}, not {value!r}")
        return str(value)

    return check


def some_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise SettingsError(f"must be a list of texts, not {value!r}")
    return tuple(value)


def some_hosts(value: Any) -> tuple[tuple[str, Path, Path], ...]:
    """Hosts, each with the files of its certificate and key."""
    if isinstance(value, Mapping):
        value = [(host, *some_texts(files)) for host, files in value.items()]
    if not all(len(host) == 3 for host in value):
        raise SettingsError('must be a table: host = ["certificate.pem", "key.pem"]')
    return tuple((str(host).lower(), a_path(file), a_path(key)) for host, file, key in value)


def some_aliases(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Names, each with the scopes that it stands for: a list, or a text with spaces."""
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise SettingsError('must be a table: alias = ["scope", "scope"]')
    return tuple(
        (str(name), some_texts(scopes.split() if isinstance(scopes, str) else scopes))
        for name, scopes in pairs
    )


def optional(check: SettingCheck) -> SettingCheck:
    """The check of a setting that need not have a value."""
    return lambda value: None if value is None else check(value)


a_port: Final = a_number(0, 65_535)


# ---- the settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where a broker listens, where its data is, and how it behaves; without a directory everything is in memory."""

    data: Path | None = setting(None, optional(a_path))
    host: str = setting("127.0.0.1", a_text)
    amqp_port: int = setting(AMQP_PORT, a_port)  # 0 takes a free one
    http_port: int | None = setting(HTTP_PORT, optional(a_port), "http")  # None for no HTTP
    # The database whose queues on SQL the pages show.
    database: str | None = setting(None, optional(a_text), "http")
    synchronous: str = setting("FULL", one_of("FULL", "NORMAL", "OFF"))
    page_out_after: int = setting(20_000, a_number(1))  # messages of a queue that stay in memory
    # Clients choose their behaviour by product and version.
    product: str = setting("RabbitMQ", a_text)
    version: str = setting("4.0.5", a_text)
    consumer_timeout: timedelta = setting(timedelta(minutes=30), a_duration, live=True)  # 0s: none
    handshake_timeout: timedelta = setting(timedelta(seconds=10), a_duration, live=True)
    # None: no limit.
    max_connections: int | None = setting(None, optional(a_number(0)), live=True)
    loopback_users: tuple[str, ...] = setting(("guest",), some_texts, live=True)
    admin_user: str = setting("admin", a_text)  # made at the first start with a password for it
    admin_password_file: Path | None = setting(None, optional(a_path))
    certificate_name: str = setting(
        "distinguished_name", one_of("distinguished_name", "common_name")
    )  # the part of a certificate that is the user of mechanism EXTERNAL
    http_tls: bool = setting(False, a_flag, "http")  # with the certificate of [tls]
    # For AMQP over TLS; listens only with a certificate.
    tls_port: int = setting(AMQPS_PORT, a_port, "tls")
    tls_certificate: Path | None = setting(None, optional(a_path), "tls", live=True)
    # None: the key is in the file of the certificate.
    tls_key: Path | None = setting(None, optional(a_path), "tls", live=True)
    tls_authorities: Path | None = setting(None, optional(a_path), "tls", live=True)
    tls_verify: str = setting("none", one_of("none", "optional", "required"), "tls")
    tls_hosts: tuple[tuple[str, Path, Path], ...] = setting((), some_hosts, "tls", live=True)
    # None: tokens are not accepted.
    oauth2_resource_server_id: str | None = setting(None, optional(a_text), "oauth2")
    oauth2_keys: Path | str | None = setting(None, optional(a_path_or_address), "oauth2")
    # None: the resource server id and a dot.
    oauth2_scope_prefix: str | None = setting(None, optional(str), "oauth2")
    oauth2_username_claims: tuple[str, ...] = setting(("sub", "client_id"), some_texts, "oauth2")
    oauth2_issuer: str | None = setting(None, optional(a_text), "oauth2")
    oauth2_verify_audience: bool = setting(True, a_flag, "oauth2")
    oauth2_additional_scopes: str | None = setting(None, optional(a_text), "oauth2")
    oauth2_scope_aliases: tuple[tuple[str, tuple[str, ...]], ...] = setting(
        (), some_aliases, "oauth2"
    )
    # A share of the machine's memory, or bytes; 0: no alarm.
    alarms_memory: float = setting(0.6, a_share_or_size, "alarms", live=True)
    alarms_disk_free: int = setting(50_000_000, a_size, "alarms", live=True)
    log_format: str = setting("keyvalue", one_of("text", "keyvalue", "json"), "log")
    log_level: str = setting("info", one_of("debug", "info", "warning", "error"), "log", live=True)

    def __post_init__(self) -> None:
        for known in fields(self):
            try:
                value = known.metadata["check"](getattr(self, known.name))
            except HeadgateError as problem:
                raise SettingsError(f"{name_in_file(known)} {_shorten(problem)}") from problem
            object.__setattr__(self, known.name, value)

    @classmethod
    def load(cls, file: Path | None = None, **overrides: Any) -> ServerOptions:
        """The settings of a file, overridden by those given; None counts as not given, except for `data`."""
        path = file or find_file()
        given = {} if path is None else read_file(path)
        given |= {key: v for key, v in overrides.items() if v is not None or key == "data"}
        return cls(**{"data": DATA, **given})

    def changes(self, other: ServerOptions) -> dict[str, bool]:
        """The settings in which another configuration differs, and whether each takes effect while the broker runs."""
        return {
            known.name: known.metadata["live"]
            for known in fields(self)
            if getattr(self, known.name) != getattr(other, known.name)
        }


def find_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that is read by default, if it exists."""
    if named := environment.get(PREFIX + "CONFIG"):
        return Path(named)
    return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None


def read_file(path: Path) -> dict[str, Any]:
    """The settings of the broker in a file, by field; paths in it begin at its directory."""
    known = {name_in_file(known): known for known in fields(ServerOptions)}
    found: dict[str, Any] = {}
    for name, value in _flatten(path, read_toml(path)).items():
        if name not in known:
            raise SettingsError(f"{path}: there is no setting {name!r}; {suggest(name, known)}")
        try:
            checked = known[name].metadata["check"](value)
        except HeadgateError as problem:
            raise SettingsError(f"{path}: {name} {_shorten(problem)}") from problem
        found[known[name].name] = _begin_at(path.parent, checked)
    return found


def _begin_at(directory: Path, value: Any) -> Any:
    """Resolve the relative paths in a value from a directory."""
    if isinstance(value, tuple):
        return tuple(_begin_at(directory, part) for part in value)
    return directory / value if isinstance(value, Path) else value


def parse_assignment(text: str) -> tuple[str, Any]:
    """`log.level=debug` as the field `log_level` and its value, which is written as in the file; quotes may be left out."""
    name, equals, value = text.partition("=")
    known = {name_in_file(known): known.name for known in fields(ServerOptions)}
    if not equals:
        raise SettingsError(f"a setting is written table.key=value, not {text!r}")
    if name.strip() not in known:
        raise SettingsError(f"there is no setting {name!r}; {suggest(name, known)}")
    try:
        found = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        found = value.strip()
    return known[name.strip()], found


def name_in_file(known: Field[Any]) -> str:
    """`broker.amqp_port`, `log.level`: the table and the key of a setting."""
    section = known.metadata["section"]
    return f"{section}.{known.name.removeprefix(section + '_')}"


def _flatten(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the tables, by `table.key`; what is at the top belongs to `headgate.settings`."""
    library = [known.name for known in fields(Settings)]
    sections = {known.metadata["section"] for known in fields(ServerOptions)}
    found: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict) and name in sections:
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name not in library:
            what = "table" if isinstance(value, dict) else "setting"
            hint = suggest(name, sorted(sections) if what == "table" else library)
            raise SettingsError(f"{path}: there is no {what} {name!r}; {hint}")
    return found


def _shorten(problem: HeadgateError) -> str:
    """The problem of a value, as the end of a sentence that begins with the name of its setting."""
    text = str(problem)
    return text if text.startswith("must") else f"is wrong: {text}"
