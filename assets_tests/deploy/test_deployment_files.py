"""``incremental-assets init --deploy``: the files say what is so in the project, fit one another, and are what systemd and Compose accept.

Belongs here: the files as they are written. Does not belong: the services that they start (``test_deployed_services``), and this
repository's own image and compose file (``test_deploy_files``). There is no container engine here: the image and the services of
``compose.yaml`` were not run.
"""

import configparser
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dotenv
import pytest
import typer
import yaml
from compose_spec import PyCompose
from dockerfile_parse import DockerfileParser
from packaging.requirements import Requirement
from typer.testing import CliRunner

from assets_tests.harness import forget_modules
from incremental_assets.cli import app
from incremental_assets.core.errors import ConfigurationError
from incremental_assets.project.deployment import FILES, OWN
from incremental_assets.project.templates import render

SHOP = """
type: incremental_assets.PostgresDatastore
attributes:
  name: shop
  url: "{{ env.SHOP_URL }}"   # {{ env.NOT_READ }}
"""
CRM = """
# {{ env.NEITHER }}
type: incremental_assets.MySQLDatastore
attributes:
  name: crm
  url: "mysql://lake:{{ env['CRM_PASSWORD'] }}@crm:3306/crm"
  schedule: "{{ env.CRM_SCHEDULE }}"
  profile: {schedule: "0 5 * * 0"}
"""
BY_SOURCES = ("SHOP_URL", "CRM_PASSWORD", "CRM_SCHEDULE")
UNITS = ("code", "daemon", "webserver")
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command, and returns what it printed. An error is raised."""
    for variable in (*OWN, *BY_SOURCES, "INCREMENTAL_ASSETS_PROJECT", "INCREMENTAL_ASSETS_SPARK_STORES"):
        monkeypatch.setenv(variable, "")  # so that what the commands set is undone
        monkeypatch.delenv(variable)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> str:
        done = CliRunner().invoke(app, list(words), catch_exceptions=True, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.output

    forget_modules()
    yield command
    forget_modules()


@pytest.fixture
def project(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project Shop-Lake with two datastores, which is the working directory."""
    run("init", "Shop-Lake")
    root = tmp_path / "Shop-Lake"
    for name, text in (("shop", SHOP), ("crm", CRM)):
        (root / "defs" / name).mkdir()
        (root / "defs" / name / "defs.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def written(run: Run, project: Path) -> Path:
    run("init", "--deploy")
    return project


def variables(project: Path) -> dict[str, str | None]:
    return dotenv.dotenv_values(project / ".env.example")


def compose_of(project: Path) -> dict[str, Any]:
    return yaml.safe_load((project / "compose.yaml").read_text(encoding="utf-8"))


def unit(project: Path, name: str) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] systemd's keys have capitals
    parsed.read(project / "deploy" / f"shop-lake-{name}.service", encoding="utf-8")
    return parsed


def files(project: Path) -> Iterator[Path]:
    return (project / path.format(slug="shop-lake") for path in FILES)


# ---------------------------------------------------------------------- what is written
def test_a_project_is_deployed_with_its_name_its_variables_and_its_packages(run: Run, project: Path) -> None:
    """Otherwise a team fills in variables that nothing reads, or the code server starts without one that the YAML names."""
    output = run("init", "--deploy")
    assert all(f"wrote {file}" in output for file in files(project))
    assert "cp .env.example .env" in output.splitlines()[-1], "the next command"
    found = variables(project)
    assert found.keys() == {*OWN, *BY_SOURCES}
    assert not any(found[name] for name in BY_SOURCES), "no value of this machine"
    assert found["INCREMENTAL_ASSETS_LAKE"] == "/var/lib/shop-lake/lake" and found["DAGSTER_HOME"] == "/var/lib/shop-lake/home"
    [server] = yaml.safe_load((project / "deploy" / "workspace.yaml").read_text())["load_from"]
    assert server["grpc_server"]["location_name"] == "Shop-Lake", "runs name their code location so"
    assert "--location-name Shop-Lake" in unit(project, "code")["Service"]["ExecStart"]
    installed = (project / "deploy" / "requirements.txt").read_text().splitlines()
    [ours] = [Requirement(line) for line in installed if line.startswith("incremental-assets")]
    assert ours.extras == {"deploy", "mysql", "profiles"}, "of what the YAML uses"
    pinned = {Requirement(line).name for line in (project / "deploy" / "constraints.txt").read_text().splitlines() if line[0] != "#"}
    assert {"dagster", "pyspark", "deltalake", "pymysql", "sqlalchemy"} <= pinned and "pytest" not in pinned


def test_what_is_there_stays_unless_it_is_forced(run: Run, written: Path) -> None:
    """Otherwise a second call takes away what a team has written into its compose file."""
    own = written / "compose.yaml"
    before = own.read_text(encoding="utf-8")
    own.write_text("services: {}\n", encoding="utf-8")
    (written / "Dockerfile").unlink()
    output = run("init", "--deploy")
    assert own.read_text(encoding="utf-8") == "services: {}\n" and f"kept {own}" in output
    assert f"wrote {written / 'Dockerfile'}" in output and output.count("wrote ") == 1
    output = run("init", "--deploy", "--force")
    assert own.read_text(encoding="utf-8") == before and output.count("wrote ") == 1
    assert "all files are there" in run("init", "--deploy")


def test_a_new_project_is_written_and_deployed_by_one_command(run: Run, tmp_path: Path) -> None:
    """Otherwise what the help says of DIR with --deploy is not so; the workflow has nothing to plan, and says nothing of secrets."""
    run("init", "lake", "--deploy")
    assert (tmp_path / "lake" / "definitions.py").is_file() and (tmp_path / "lake" / "compose.yaml").is_file()
    workflow = yaml.safe_load((tmp_path / "lake" / ".github" / "workflows" / "lake.yml").read_text(encoding="utf-8"))
    assert [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step][1:] == ["incremental-assets check"]


@pytest.mark.parametrize("name", ['lake"; rm -rf ~', "lake\nUser=root", "../lake", "${HOME}", "9lake", "lake_", "a" * 31])
def test_a_hostile_name_is_refused_before_anything_is_written(run: Run, project: Path, name: str) -> None:
    """A name stands in commands that a shell, systemd and Docker execute."""
    pyproject = project / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8").replace('"Shop-Lake"   #', f"'''{name}'''   #")
    pyproject.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="code_location_name"):
        run("init", "--deploy")
    assert not any(file.exists() for file in files(project))


@pytest.mark.parametrize("lake", ["s3://bucket/lake' ; id", "/srv/la ke", "/srv/${HOME}", "/srv/lake\nUser=root"])
def test_a_hostile_lake_is_refused(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch, lake: str) -> None:
    """The same holds for the address of the lake."""
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", lake)
    with pytest.raises(ConfigurationError, match="INCREMENTAL_ASSETS_LAKE"):
        run("init", "--deploy")
    assert not any(file.exists() for file in files(project))


def test_a_folder_of_datastores_with_a_line_break_sets_no_variable(run: Run, project: Path) -> None:
    """A folder's name must not end the comment that it stands in: the next line of .env.example would be read as a variable."""
    (project / "defs" / "crm").rename(project / "defs" / "a\nLD_PRELOAD=evil.so")
    run("init", "--deploy")
    assert variables(project).keys() == {*OWN, *BY_SOURCES}


# ---------------------------------------------------------------------- systemd
def test_systemd_accepts_the_units(written: Path, tmp_path: Path) -> None:
    """Otherwise systemd ignores a line, such as one of the hardening, or does not start the service at all."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed; that the units can be parsed is a test of its own")
    (written / ".venv").symlink_to(Path(sys.executable).parent.parent)
    places = tmp_path / "units"
    places.mkdir()
    for name in UNITS:
        text = (written / "deploy" / f"shop-lake-{name}.service").read_text(encoding="utf-8")
        (places / f"shop-lake-{name}.service").write_text(text.replace("/opt/shop-lake", str(written)), encoding="utf-8")
    done = subprocess.run([program, "verify", *map(str, places.iterdir())], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), "it warns of what it ignores, and exits with 0"


def test_the_units_run_as_their_user_with_the_variables_and_start_again(written: Path) -> None:
    """Otherwise a service runs as root, without the secrets, or stays away after it has failed."""
    units = {name: unit(written, name) for name in UNITS}
    assert {each["Service"]["User"] for each in units.values()} == {"shop-lake"}
    assert {each["Service"]["EnvironmentFile"] for each in units.values()} == {"/opt/shop-lake/.env"}
    assert {each["Service"]["WorkingDirectory"] for each in units.values()} == {"/opt/shop-lake"}
    assert {each["Service"]["Restart"] for each in units.values()} == {"on-failure"}
    assert {each["Service"]["ProtectSystem"] for each in units.values()} == {"strict"}
    assert not any("MemoryDenyWriteExecute" in each["Service"] for each in units.values()), "Java compiles while it runs"
    assert all("shop-lake-code.service" in units[name]["Unit"]["After"] for name in ("daemon", "webserver"))
    writable = units["code"]["Service"]["ReadWritePaths"].split()
    assert writable == ["/tmp", "-/opt/shop-lake/defs/.local_defs_state"], "beside its StateDirectory, where home and lake are"


# ---------------------------------------------------------------------- Docker
def test_the_compose_file_of_a_project_fits_its_schema(written: Path) -> None:
    """Otherwise `docker compose` refuses it at the first line."""
    text = yaml.safe_dump(compose_of(written))  # its parser knows neither merge keys nor variables, which Compose does
    parsed = PyCompose.from_yaml(re.sub(r"\$\{\w+:-(\w*)\}", r"\1", text))
    parsed.validate()
    assert set(parsed.service_names()) == {"postgres", *UNITS}


def test_services_wait_for_one_another_are_asked_and_start_again(written: Path) -> None:
    """Otherwise the daemon starts before its storage is there, or stays away after it has failed."""
    services = compose_of(written)["services"]
    waits = {name: set(each.get("depends_on", ())) for name, each in services.items()}
    assert waits == {"postgres": set(), "code": {"postgres"}, "daemon": {"postgres", "code"}, "webserver": {"postgres", "code"}}
    assert all(each["restart"] == "unless-stopped" and each["healthcheck"]["test"] for each in services.values())
    assert services["webserver"]["ports"] == ["127.0.0.1:${DAGSTER_WEBSERVER_PORT:-3000}:3000"], "it asks for no password"
    assert "env_file" not in services["daemon"] and "env_file" not in services["webserver"], "sources' passwords are for the runs alone"


def test_volumes_are_declared_and_hold_what_the_variables_name(written: Path) -> None:
    """Otherwise locks, the lake or the catalogs are gone with the next container."""
    made, found = compose_of(written), variables(written)
    mounts = {name: dict(volume.split(":")[:2] for volume in each["volumes"]) for name, each in made["services"].items()}
    named = {volume for each in mounts.values() for volume in each if not volume.startswith(".")}
    assert named == set(made["volumes"])
    assert mounts["code"]["home"] == found["DAGSTER_HOME"] == made["services"]["code"]["environment"]["DAGSTER_HOME"]
    assert mounts["code"]["lake"] == found["INCREMENTAL_ASSETS_LAKE"]
    assert mounts["code"]["catalogs"] == mounts["webserver"]["catalogs"] == "/opt/shop-lake/defs/.local_defs_state"
    assert {mounts[name]["home"] for name in UNITS} == {found["DAGSTER_HOME"]}, "the webserver shows there what runs have printed"
    assert {mounts[name]["./deploy/dagster.yaml"] for name in UNITS} == {f"{found['DAGSTER_HOME']}/dagster.yaml"}


def test_every_variable_that_the_files_use_is_in_the_example(written: Path) -> None:
    """Otherwise nobody sets it, and a service fails, or is started with an empty port."""
    found = set(variables(written))
    texts = {file: file.read_text(encoding="utf-8") for file in files(written)}
    used = {name: re.findall(r"(?<!\$)\$\{([A-Z_]+)", text) for name, text in texts.items() if name.suffix in (".yaml", ".service")}
    assert len({name for names in used.values() for name in names}) >= 5
    asked = re.findall(r"\{env: (\w+)\}", texts[written / "deploy" / "workspace.yaml"] + texts[written / "deploy" / "dagster.yaml"])
    assert len(asked) == 3
    assert {*asked, *(name for names in used.values() for name in names)} <= found
    services = compose_of(written)["services"]
    assert all(set(asked) <= set(services[name]["environment"]) for name in UNITS), "containers have other addresses than the host"


def test_the_image_has_the_project_runs_as_nobody_in_particular_and_takes_no_secret(written: Path) -> None:
    """Otherwise a password is in the image, or a fault in a run is one of root."""
    parser = DockerfileParser(str(written))
    instructions = [(each["instruction"], each["value"]) for each in parser.structure if each["instruction"] != "COMMENT"]
    assert re.fullmatch(r"python:3\.\d+-slim-bookworm", parser.baseimage or "")
    assert [value for name, value in instructions if name == "USER"] == ["shop-lake"]
    runs = " ".join(value for name, value in instructions if name == "RUN")
    assert "openjdk-17-jre-headless" in runs and "--requirement deploy/requirements.txt" in runs and "server fetch" in runs
    assert all(folder in runs for folder in ("/var/lib/shop-lake/home", "/var/lib/shop-lake/lake", "defs/.local_defs_state"))
    ignored = (written / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {".env", ".git", "defs/.local_defs_state"} <= set(ignored)


def test_a_lake_on_a_store_has_no_volume_and_its_connector_is_in_the_image(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the lake's address becomes a folder of a container, or Spark lacks the connector where there is no network."""
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", "s3://shop-lake/tables")
    run("init", "--deploy")
    assert variables(project)["INCREMENTAL_ASSETS_LAKE"] == "s3://shop-lake/tables"
    assert "lake" not in compose_of(project)["volumes"]
    assert "INCREMENTAL_ASSETS_SPARK_STORES=s3" in (project / "Dockerfile").read_text(encoding="utf-8")
    assert "s3:" not in unit(project, "code")["Service"]["ReadWritePaths"]


def test_a_lake_in_a_folder_of_its_own_may_be_written(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the hardening of the unit keeps each sync from writing."""
    monkeypatch.setenv("INCREMENTAL_ASSETS_LAKE", "/srv/lake")
    run("init", "--deploy")
    assert unit(project, "code")["Service"]["ReadWritePaths"].split()[-1] == "-/srv/lake"
    assert "lake:/srv/lake" in compose_of(project)["services"]["code"]["volumes"]


# ---------------------------------------------------------------------- the rest
def test_own_constraints_and_dependencies_of_a_project_are_kept(run: Run, project: Path) -> None:
    """Otherwise what a team has pinned is installed in another version, or its own library is missing in the image."""
    pyproject = project / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    pyproject.write_text(text.replace('["incremental-assets"]', '["incremental-assets>=0.1", "rich>=13"]'), encoding="utf-8")
    (project / "constraints.txt").write_text("rich==15.0.0\n", encoding="utf-8")
    run("init", "--deploy")
    installed = (project / "deploy" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert "--constraint ../constraints.txt" in installed and "rich>=13" in installed
    assert sum(line.startswith("incremental-assets") for line in installed) == 1
    assert not (project / "deploy" / "constraints.txt").exists()
    assert "COPY constraints.txt" in (project / "Dockerfile").read_text(encoding="utf-8")


def test_the_workflow_plans_a_sync_only_with_the_secrets_of_all_sources(written: Path) -> None:
    """Otherwise each push of a fork fails, as it has no secrets."""
    workflow = yaml.safe_load((written / ".github" / "workflows" / "shop-lake.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["check"]
    assert [name for name in BY_SOURCES if f"secrets.{name} != ''" not in job["env"]["HAS_SECRETS"]] == []
    steps = {step["run"]: step for step in job["steps"] if "run" in step}
    planned = steps.pop("incremental-assets sync --dry-run")
    assert planned["if"] == "env.HAS_SECRETS == 'true'"
    assert planned["env"] == {name: f"${{{{ secrets.{name} }}}}" for name in BY_SOURCES}
    assert "incremental-assets check" in steps and not any(step.get("env") for step in steps.values()), "what installs packages sees none"


def test_every_command_in_the_files_exists(written: Path) -> None:
    """Otherwise somebody types what DEPLOY.md says, on a Monday, and it is refused."""
    commands = set(getattr(typer.main.get_command(app), "commands"))  # noqa: B009 typer's group is not typed
    text = "\n".join(file.read_text(encoding="utf-8") for file in files(written))
    named = set(re.findall(r"(?:^|code |bin/|run: |`)incremental-assets ([a-z]+)", text, re.M))
    assert {"check", "catalog", "status", "sync"} <= named <= commands


def test_the_instance_of_a_project_and_of_this_repository_are_one() -> None:
    """The repository is a project itself: its dagster.yaml must not fall behind what `init` writes, nor the deployed one behind both."""
    own = render("dagster.yaml", deployed=False)
    assert (Path(__file__).resolve().parents[2] / "dagster.yaml").read_text(encoding="utf-8") == own
    local, deployed = yaml.safe_load(own), yaml.safe_load(render("dagster.yaml", deployed=True))
    assert deployed.pop("storage") == {"postgres": {"postgres_url": {"env": "DAGSTER_PG_URL"}}}
    assert deployed["concurrency"].pop("runs") == {"max_concurrent_runs": 2}
    assert {name: local[name] for name in deployed} == deployed
