"""The settings in force: shared through the file, kept when the file is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omniroute_litellm.errors import BackendUnavailableError, ValidationError
from omniroute_litellm.live_settings import LiveSettings
from omniroute_litellm.settings import Origin
from omniroute_litellm.sqlite import Database
from tests.fakes import FakeClock


def live(database: Database, **environ: str) -> LiveSettings:
    """Return the settings of one process under some variables."""
    return LiveSettings(database, environ=environ, clock=FakeClock())


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Database]:
    """Hand out the same file as another process has it."""
    made = Database(tmp_path / "omniroute.db")
    yield made
    made.close()


def test_unread_is_unknown(database: Database) -> None:
    """Before the file was read nobody knows whether memory is on."""
    assert not live(database).is_known


def test_read_is_known(database: Database) -> None:
    """After one reading the settings are known."""
    settings = live(database)
    settings.refresh()
    assert settings.is_known


def test_pin_holds_before_reading(database: Database) -> None:
    """The environment is read at once."""
    assert live(database, OMNIROUTE_MEMORY_MAX_TOKENS="7").current.values.max_tokens == 7


def test_change_is_in_force_at_once(database: Database) -> None:
    """Who changed a setting has it."""
    settings = live(database)
    settings.change({"maxTokens": 5})
    assert settings.current.values.max_tokens == 5


def test_change_survives_a_restart(database: Database, elsewhere: Database) -> None:
    """A later process finds what was set."""
    live(database).change({"enabled": True, "noSystemModels": ["a"]})
    values = live(elsewhere).refresh().values
    assert (values.enabled, values.no_system_models) == (True, ("a",))


def test_change_reaches_the_other_process(database: Database, elsewhere: Database) -> None:
    """Another process has a change when it refreshes."""
    here, there = live(database), live(elsewhere)
    there.refresh()
    here.change({"maxTokens": 5})
    assert there.refresh().values.max_tokens == 5


def test_other_process_keeps_its_values_until_refresh(
    database: Database, elsewhere: Database
) -> None:
    """Between two refreshes the settings stand still."""
    here, there = live(database), live(elsewhere)
    there.refresh()
    here.change({"maxTokens": 5})
    assert there.current.values.max_tokens == 2_000


def test_changes_of_two_processes_join(database: Database, elsewhere: Database) -> None:
    """A change of one field leaves what another process set meanwhile."""
    here, there = live(database), live(elsewhere)
    here.refresh()
    there.change({"traceDays": 3})
    values = here.change({"maxTokens": 5}).values
    assert (values.trace_days, values.max_tokens) == (3, 5)


def test_refused_change_stores_nothing(database: Database) -> None:
    """Of a change with one bad field no field is stored."""
    settings = live(database)
    with pytest.raises(ValidationError):
        settings.change({"traceDays": 3, "maxTokens": -1})
    assert settings.refresh().values.trace_days == 7


def test_change_keeps_a_pin(database: Database) -> None:
    """A change beside a pin leaves the pin."""
    settings = live(database, OMNIROUTE_MEMORY_MAX_TOKENS="7")
    assert settings.change({"traceDays": 3}).origins["max_tokens"] is Origin.ENVIRONMENT


def test_bad_stored_value_is_a_problem(database: Database) -> None:
    """A value that somebody wrote into the file by hand keeps memory off."""
    settings = live(database, OMNIROUTE_MEMORY_ENABLED="true")
    with database.writing() as connection:
        connection.execute("INSERT INTO settings VALUES ('maxTokens', '\"many\"', '2030-01-01')")
    assert not settings.refresh().is_active


def test_bad_stored_value_can_be_mended(database: Database) -> None:
    """Setting the field anew takes the problem away."""
    settings = live(database)
    with database.writing() as connection:
        connection.execute("INSERT INTO settings VALUES ('maxTokens', '\"many\"', '2030-01-01')")
    assert settings.change({"maxTokens": 5}).problems == ()


def test_lost_file_raises(tmp_path: Path) -> None:
    """A file that cannot be read is told to who refreshes."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendUnavailableError):
        live(Database(tmp_path / "file" / "x.db")).refresh()


def test_lost_file_keeps_the_last_values(database: Database) -> None:
    """What was read last stays in force while the file is away."""
    settings = live(database)
    settings.change({"maxTokens": 5})
    database.close()
    with pytest.raises(BackendUnavailableError):
        settings.refresh()
    assert settings.current.values.max_tokens == 5
