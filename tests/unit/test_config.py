"""Settings: read once, wrong or right as a whole; secrets stay out of sight."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from scheduler.config import Settings
from scheduler.config_client import OWNED_CLIENT_PROPERTIES
from scheduler.config_load import fields, load_settings, settings_file, variables
from scheduler.errors import ConfigInvalid


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine the tests run on takes part."""
    for name in list(os.environ):
        if name.upper().startswith("SCHEDULER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "given.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(file: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as raised:
        load_settings(file)
    return raised.value.problems


def test_defaults_are_the_documented_ones() -> None:
    """Without file and variables every setting has its default, and the defaults agree with each other."""
    settings = load_settings()
    assert (settings.shards, settings.lanes, settings.processes) == (16, ("default",), 1)
    assert (settings.join_ms, settings.join_due_ms, settings.horizon_ms) == (50, 20, 30_000)
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (6_000, 1_500)
    assert settings.horizon_bytes == 64 * 1024 * 1024


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a section too: what the file alone gives stays."""
    file = write(tmp_path, '[kafka]\nbootstrap_servers = "a:1"\nreplication_factor = 3\n')
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", "b:2,c:3")
    settings = load_settings(file)
    assert settings.kafka.bootstrap_servers == "b:2,c:3"
    assert settings.kafka.replication_factor == 3


def test_the_command_line_wins_over_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An override is validated like any other value and named as what it is."""
    monkeypatch.setenv("SCHEDULER_PROCESSES", "3")
    assert load_settings(write(tmp_path, "processes = 2"), {"processes": 4}).processes == 4
    with pytest.raises(ConfigInvalid, match="command line: processes = 0: expected a whole number of processes"):
        load_settings(None, {"processes": 0})


def test_a_list_in_the_environment_is_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON works as well; blanks around a name are not part of it."""
    monkeypatch.setenv("SCHEDULER_LANES", "default, reports")
    assert load_settings().lanes == ("default", "reports")
    monkeypatch.setenv("SCHEDULER_LANES", '["default","bulk"]')
    assert load_settings().lanes == ("default", "bulk")


def test_which_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, else SCHEDULER_CONFIG, else ./scheduler.toml if it is there, else none."""
    assert settings_file() is None
    (tmp_path / "scheduler.toml").touch()
    assert settings_file() == Path("scheduler.toml")
    monkeypatch.setenv("SCHEDULER_CONFIG", "named.toml")
    assert settings_file() == Path("named.toml")
    assert settings_file(Path("option.toml")) == Path("option.toml")


def test_every_mistake_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File and environment, values, names and contradictions: one line each, with place, given value and example."""
    file = write(
        tmp_path,
        """
        shards = "many"
        procceses = 3
        heartbeat_interval_ms = 5000
        [kafka]
        bootstrap_servers = "nohost"
        client = { acks = 1, "ssl.key.pem" = { file = "/absent/key" } }
        [http]
        prt = 1
        """,
    )
    monkeypatch.setenv("SCHEDULER_HTTP__PORT", "99999")
    monkeypatch.setenv("SCHEDULER_NAMESPCE", "x.")
    found = problems(file)
    assert len(found) == 9
    expected = [
        f'{file}: shards = "many": expected a whole number of partitions from 1 to 1024, for example 16',
        f"{file}: procceses: is no setting; did you mean processes?",
        f"{file}: http.prt: is no setting; did you mean port?",
        'SCHEDULER_HTTP__PORT = "99999": expected a whole number from 0 to 65535, for example 0',
        "SCHEDULER_NAMESPCE: is no setting; did you mean SCHEDULER_NAMESPACE?",
        "kafka.client.acks is set by the scheduler (always all); remove it",
    ]
    assert [line for line in expected if line not in found] == []
    assert any("heartbeat_interval_ms = 5000 is more than a third" in line for line in found)
    assert any("/absent/key" in line for line in found)


def test_a_default_in_place_of_a_wrong_value_contradicts_nothing(tmp_path: Path) -> None:
    """Only what was given can be wrong: the session timeout is unreadable, so its third is unknown."""
    found = problems(write(tmp_path, 'session_timeout_ms = "long"\nheartbeat_interval_ms = 5000'))
    assert [line.split(": ")[1].split(" =")[0] for line in found] == ["session_timeout_ms"]


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("shards = [", "is not valid TOML"),
        ("shards = true", "shards = true: expected a whole number"),
        ("shards = 0", "from 1 to 1024"),
        ('lanes = ["Default"]', "lanes = "),
        ('lanes = ["a", "a"]', "lanes names a twice"),
        ("lanes = []", "1 to 20 different names"),
        ("kafka = 3", "expected a table with bootstrap_servers"),
        ("join_due_ms = 60", "join_due_ms = 60 is more than join_ms = 50"),
        ("processes = 20", "a process without a shard does nothing"),
        ("processes = 3\nhttp.port = 65534", "leaves no ports for 3 processes"),
        ("kafka.min_insync_replicas = 2", "no write would ever succeed"),
        ('log_format = "xml"', "expected json or text"),
        ('namespace = "a b"', "end it with a dot"),
        ("shards = 1e99", "from 1 to 1024"),
        ("shards = nan", "from 1 to 1024"),
        ("retention.scheduler.live = 9999999999", "'scheduler.live', which is no topic with a retention"),
        ("retention.scheduler.replies = 5", "expected at least an hour"),
        ("retention.scheduler.replies = 'long'", "retention.scheduler.replies = "),
    ],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path: Path, text: str, fragment: str) -> None:
    """The line names the place and says what is expected."""
    found = problems(write(tmp_path, text))
    assert len(found) == 1
    assert fragment in found[0]


def test_a_third_of_the_session_is_often_enough(tmp_path: Path) -> None:
    """The bound itself is allowed, as the demo's 400 of 2,500 is."""
    assert load_settings(write(tmp_path, "heartbeat_interval_ms = 2000")).heartbeat_interval_ms == 2_000


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """And the way to name another one."""
    (line,) = problems(tmp_path / "absent.toml")
    assert "absent.toml: can't be read" in line
    assert "--config" in line


def test_client_properties_may_be_written_in_any_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quoted, bare (TOML nests them) or as a variable: the client gets librdkafka's dotted names."""
    file = write(
        tmp_path,
        """
        [kafka]
        bootstrap_servers = "b:1"
        [kafka.client]
        security.protocol = "SSL"
        "enable.ssl.certificate.verification" = true
        """,
    )
    monkeypatch.setenv("SCHEDULER_KAFKA__CLIENT__SSL_CA_LOCATION", "/etc/ca.pem")
    config = load_settings(file).client_config()
    assert config["security.protocol"] == "SSL"
    assert config["enable.ssl.certificate.verification"] == "true"
    assert config["ssl.ca.location"] == "/etc/ca.pem"
    assert config["bootstrap.servers"] == "b:1"


def test_secrets_reach_the_client_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By file, by variable or in plain text: never in a repr, a dump or an error."""
    (tmp_path / "pw").write_text("s3cret-file\n", encoding="utf-8")
    monkeypatch.setenv("KEY_PW", "s3cret-env")
    file = write(
        tmp_path,
        f"""
        [kafka]
        bootstrap_servers = "b:1"
        [kafka.client]
        "sasl.password" = {{ file = "{tmp_path}/pw" }}
        "ssl.key.password" = {{ env = "KEY_PW" }}
        "sasl.oauthbearer.client.secret" = "s3cret-plain"
        """,
    )
    settings = load_settings(file)
    config = settings.client_config()
    assert config["sasl.password"] == "s3cret-file"
    assert config["ssl.key.password"] == "s3cret-env"
    assert config["sasl.oauthbearer.client.secret"] == "s3cret-plain"
    shown = repr(settings) + str(settings) + settings.model_dump_json()
    assert "s3cret" not in shown


def test_a_mistaken_secret_is_not_repeated(tmp_path: Path) -> None:
    """A reference with both places is refused without showing what was written."""
    found = problems(write(tmp_path, '[kafka.client]\n"sasl.password" = { file = "/a", env = "B" }'))
    assert len(found) == 1
    assert "(hidden)" in found[0]


def test_a_broken_table_of_properties_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a password anywhere."""
    monkeypatch.setenv("SCHEDULER_KAFKA__CLIENT", '{"sasl.password": "s3cret"')
    (line,) = problems()
    assert line.startswith("SCHEDULER_KAFKA__CLIENT = (hidden): expected librdkafka names")
    assert "s3cret" not in line


@pytest.mark.parametrize("name", sorted(OWNED_CLIENT_PROPERTIES))
def test_properties_the_guarantees_rest_on_are_refused(tmp_path: Path, name: str) -> None:
    """A user can't turn off what makes the promises true."""
    (line,) = problems(write(tmp_path, f'[kafka.client]\n"{name}" = "x"'))
    assert f"kafka.client.{name} is set by the scheduler" in line


def test_without_a_broker_the_next_step_is_named() -> None:
    """Commands that need no broker work; those that do say what to set or start."""
    with pytest.raises(ConfigInvalid, match="scheduler broker start"):
        Settings().client_config()


def test_settings_are_a_frozen_value_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests and children build it as a value; nothing outside changes it, and it crosses processes."""
    monkeypatch.setenv("SCHEDULER_SHARDS", "3")
    settings = Settings(lanes=("a", "b"))
    assert settings.shards == 16
    assert pickle.loads(pickle.dumps(settings)) == settings
    with pytest.raises(ValidationError):
        settings.shards = 4  # type: ignore[misc] # that it is refused is the point


def test_the_catalogue_is_built_from_the_settings(tmp_path: Path) -> None:
    """Names, counts and retention of the topics follow the one value."""
    settings = load_settings(
        write(
            tmp_path,
            'namespace = "x."\nshards = 4\n[retention]\nscheduler.replies = 7200000\n"dispatch.default" = 3600000',
        )
    )
    specs = {spec.name: spec for spec in settings.catalogue().specs()}
    assert specs["x.scheduler.commands"].partitions == 4
    assert specs["x.scheduler.replies"].retention_ms == 7_200_000
    assert specs["x.dispatch.default.high"].retention_ms == 3_600_000


def test_every_setting_says_what_it_is() -> None:
    """Reason, what is expected and an example that is itself accepted."""
    for loc, field in fields():
        about = field.json_schema_extra
        assert isinstance(about, dict), loc
        assert str(about["reason"]).endswith("."), loc
        value: object = about["example"]
        for name in reversed(loc[1:]):
            value = {name: value}
        if loc != ("kafka", "client"):
            Settings.model_validate({loc[0]: value})
    assert variables()["SCHEDULER_HTTP__PORT"] == ("http", "port")


def test_a_variable_inside_a_section_wins_over_one_of_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of the names, and in capitals or not."""
    monkeypatch.setenv("scheduler_kafka__bootstrap_servers", "b:2")
    monkeypatch.setenv("SCHEDULER_KAFKA", '{"bootstrap_servers": "b:1", "replication_factor": 1}')
    kafka = load_settings().kafka
    assert (kafka.bootstrap_servers, kafka.replication_factor) == ("b:2", 1)


def test_a_variable_inside_what_is_no_section_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name begins like a setting, and nothing is done with it."""
    monkeypatch.setenv("SCHEDULER_SHARDS__MANY", "7")
    (line,) = problems()
    assert line.startswith("SCHEDULER_SHARDS__MANY")


@pytest.mark.parametrize(
    ("section", "inside"),
    [
        ("SCHEDULER_KAFKA", "SCHEDULER_KAFKA__REPLICATION_FACTOR"),
        ("SCHEDULER_KAFKA__CLIENT", "SCHEDULER_KAFKA__CLIENT__CLIENT_ID"),
    ],
)
def test_a_section_that_is_no_table_is_not_dropped_for_what_is_inside(
    section: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have said how to encrypt: whoever mistyped it hears of it."""
    monkeypatch.setenv(section, '{"security.protocol": "SASL_SSL"')
    monkeypatch.setenv(inside, "3")
    assert any(line.startswith((f"{section} ", f"{section}:")) for line in problems())


def test_text_that_looks_like_json_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may be called so; what is nested too deep is told as any other mistake."""
    monkeypatch.setenv("SCHEDULER_DATA_DIR", str(tmp_path / "[1]"))
    assert load_settings().data_dir == tmp_path / "[1]"
    monkeypatch.setenv("SCHEDULER_DATA_DIR", "[1]")
    assert load_settings().data_dir == Path("[1]")
    monkeypatch.setenv("SCHEDULER_RETENTION", "[" * 100_000)
    assert len(problems()) == 1
