"""What a wheel holds, what imports what, and what no file may say."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jaxcontam

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "jaxcontam"

ROOMS = ("orders", "members", "replication", "score_gap", "overlap", "ownership")
# In the order of imports: a file may import from its own layer and those below. A room
# answers one question; below `reports` no question is known.
LAYERS = [
    ("cli", "methods"),
    ROOMS,
    *(("proof",), ("reports",), ("scoring",), ("models",), ("data",), ("stats",)),
    ("processes", "progress", "arguments", "amounts", "sources"),
    ("errors", "terminal"),
]
LAYER = {name: i for i, layer in enumerate(LAYERS) for name in layer}


def imported(path):
    """Modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def python(*words, cwd=ROOT, **options):
    """A finished Python process, and what it printed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def tracked(*words):
    """Files that git knows; none in a copy without git."""
    words = ["git", "ls-files", *words]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT))
    (path,) = out.glob("*.whl")
    return path


def test_wheel_holds_every_file_of_the_package_its_licence_and_nothing_else(wheel):
    archive = zipfile.ZipFile(wheel)
    names, info = {*archive.namelist()}, f"{wheel.name.split('-py3')[0]}.dist-info"
    assert {name.split("/")[0] for name in names} == {"jaxcontam", info}
    # Types, templates of pages and stored numbers; of a copy without git, these alone.
    wanted = {"jaxcontam/py.typed", "jaxcontam/reports/page.html.j2"}
    assert names >= wanted | {*tracked("jaxcontam")} | {f"{info}/licenses/LICENSE"}
    metadata = archive.read(f"{info}/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata


@pytest.mark.slow
def test_what_is_released_installs_and_runs_in_a_fresh_environment(tmp_path):
    """The sdist, the wheel that is built from it, and the command that it installs."""
    python("-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    assert sdist.name == f"jaxcontam-{jaxcontam.__version__}.tar.gz"
    with tarfile.open(sdist) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"README.md", "LICENSE", "pyproject.toml", "jaxcontam", "tests"} <= top
    home = tmp_path / "venv"
    python("-m", "venv", str(home))
    # Dependencies of this environment behind those of the fresh one: no network.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [home / "bin/python", "-m", "pip", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    words = [home / "bin/jaxcontam", "methods", "direction"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "reversibility" in done.stdout
    (installed,) = site.glob("jaxcontam-*.dist-info")
    assert "jaxcontam/cli/main.py" in (installed / "RECORD").read_text()


def test_citation_file_has_what_its_format_asks_and_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["title"] == project["name"]
    assert str(citation["version"]) == project["version"] == jaxcontam.__version__
    assert citation["license"] == project["license"]
    for work in [citation, *citation["references"]]:
        assert work["type"]
        assert all({"name", "family-names"} & set(author) for author in work["authors"])


def test_command_of_its_own_process_warns_of_nothing_deprecated():
    # Tests turn warnings of this process into errors; children have their own.
    flags = ["-W", "error::DeprecationWarning", "-W", "error::FutureWarning"]
    assert python(*flags, "-m", "jaxcontam", "methods").stderr == ""


def test_package_imports_nothing_heavy_and_an_audit_few_modules():
    code = (
        "import sys, jaxcontam; package = list(sys.modules); "
        "import jaxcontam.orders.run; print(package, list(sys.modules), sep='\\n')"
    )
    package, audit = map(ast.literal_eval, python("-c", code).stdout.splitlines())
    assert {"jax", "transformers", "torch", "numpy"}.isdisjoint(package)
    assert {"jax", "transformers", "torch", "matplotlib"}.isdisjoint(audit)
    # What must be read to follow an audit; functions import what they alone need.
    own = [name for name in audit if name.partition(".")[0] == "jaxcontam"]
    assert len(own) <= 90


def test_imports_point_one_way_and_no_room_imports_another():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for module in imported(path):
            top, other, *_ = *module.split("."), ""
            # Not in the wheel.
            is_wrong = top in ("train", "eval", "tests")
            if top == "jaxcontam" and {own, other} <= {*LAYER} and other != own:
                is_wrong = LAYER[other] < LAYER[own] or {own, other} <= {*ROOMS}
            if is_wrong:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


# Tables that have a line a command, a report or a method.
TABLES = ("__init__.py", "methods.py", "reports/kinds.py")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_named_in_three_tables_alone(room):
    """So it is taken out with its folder and its lines of these."""
    place = re.compile(rf'(?:"|jaxcontam\.){room}\.(?!npz)')
    named = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if room not in path.relative_to(PACKAGE).parts
        and place.search(path.read_text(encoding="utf-8"))
    }
    # `doctor` alone asks what an audit would say of a file, when it is given one.
    assert sorted(named - {*TABLES}) == ["cli/doctor.py"] * (room == "orders")


def test_no_module_is_named_like_what_the_package_exports():
    # The first import of anything inside it would put it in the function's place.
    modules = {path.stem for path in PACKAGE.iterdir()}
    assert not modules & {*jaxcontam._EXPORTS}


def test_tracked_files_name_no_registry_and_no_unpickling():
    # The words are put together here, so that this file does not hold them.
    forbidden = ["--" + "index-url", "--extra-" + "index-url", "--find-" + "links"]
    unsafe = ["pickle" + ".load", "trust_remote_code=True", "allow_pickle=True"]
    names = tracked() or [str(path) for path in PACKAGE.rglob("*.py")]
    assert "uv.lock" not in names
    for name in names:
        path = ROOT / name
        if path.suffix in {".png", ".npz"} or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        words = forbidden if "tests" in path.parts else forbidden + unsafe
        assert not [word for word in words if word in text], name


def installed_needs(name, extras):
    """Names of all that a package needs here, with its extras, directly or not."""
    found, waiting = set(), [(canonicalize_name(name), frozenset(extras))]
    seen = set(waiting)
    while waiting:
        package, wanted = waiting.pop()
        for line in importlib.metadata.requires(package) or ():
            need = Requirement(line)
            environments = [{"extra": extra} for extra in wanted | {""}]
            if need.marker and not any(map(need.marker.evaluate, environments)):
                continue
            key = canonicalize_name(need.name), frozenset(need.extras)
            found.add(key[0])
            if key not in seen:
                seen.add(key)
                waiting.append(key)
    return found


def pins_of(text):
    """Name -> pinned requirement, of lines that are no comments."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    pins = [Requirement(line) for line in lines]
    found = {canonicalize_name(pin.name): pin for pin in pins}
    assert len(found) == len(pins)
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
    return found


def test_constraints_pin_all_that_the_tests_install():
    pins = pins_of((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    needs = installed_needs("jaxcontam", ["test"])
    assert {"jax", "pytest", "jaxlib", "orbax-checkpoint"} <= needs <= {*pins}
    # Every pin is within its range.
    for line in importlib.metadata.requires("jaxcontam"):
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": "test"}):
            version = str(pins[canonicalize_name(need.name)].specifier)[2:]
            assert version in need.specifier, line


def test_lock_has_hashes_and_the_versions_of_the_constraints():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.findall(
        r"^([^\s#].*?)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.M
    )
    lines = [line for line in text.splitlines() if line[0] not in " #"]
    # Nothing but pins with hashes: no place to load them from.
    assert [line.removesuffix(" \\") for line in lines] == entries
    pins = pins_of("\n".join(entries))
    for name in installed_needs("jaxcontam", []):
        assert pins[name].marker is None or pins[name].marker.evaluate(), name
    wanted = pins_of((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    for name in pins.keys() & wanted.keys():
        assert pins[name].specifier == wanted[name].specifier, name
