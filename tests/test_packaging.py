"""The house: what a wheel holds, what imports what, and what no file may say."""

import ast
import functools
import importlib.metadata
import re
import shutil
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
PACKAGES = ("jaxcontam", "train", "eval")
SOURCES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))

# In the order of imports: a file may import from its own layer and those below.
ROOMS = ("orders", "members", "replication", "score_gap", "overlap", "ownership")
LAYERS = [
    ("cli", "methods"),
    # A room answers one question, and knows of no other room.
    ROOMS,
    ("proof",),
    ("reports",),
    # The engine: no question is known below this line.
    ("scoring",),
    ("models",),
    ("data",),
    ("stats",),
    ("processes", "progress", "arguments", "sources"),
    ("errors", "terminal"),
]
LAYER = {name: i for i, layer in enumerate(LAYERS) for name in layer}
MOST_LINES = 6_500


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path):
    names = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
    return names


def room_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run(
        [*build, "--outdir", str(out), str(ROOT)], check=True, capture_output=True
    )
    (path,) = out.glob("*.whl")
    return path


def test_wheel_holds_jaxcontam_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"jaxcontam", f"{wheel.name.split('-py3')[0]}.dist-info"}
    assert "jaxcontam/cli/main.py" in names


def test_wheel_holds_every_file_of_the_package_and_its_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    files = subprocess.run(
        ["git", "ls-files", "jaxcontam"], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    # Types, templates of pages and stored numbers; of a copy without git, these alone.
    wanted = {"jaxcontam/py.typed", "jaxcontam/reports/page.html.j2", *files}
    assert wanted <= names
    (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    assert f"{info}/licenses/LICENSE" in names
    metadata = zipfile.ZipFile(wheel).read(f"{info}/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata


@pytest.mark.slow
def test_what_is_released_installs_and_runs_in_a_fresh_environment(tmp_path):
    """The sdist, the wheel that is built from it, and the command that it installs."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    subprocess.run([*build, tmp_path, ROOT], check=True, capture_output=True)
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    assert sdist.name == f"jaxcontam-{jaxcontam.__version__}.tar.gz"
    with tarfile.open(sdist) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"README.md", "LICENSE", "pyproject.toml", "jaxcontam", "tests"} <= top
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    # Dependencies of this environment behind those of the fresh one: no network.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [home / "bin/python", "-m", "pip", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    done = subprocess.run(
        [home / "bin/jaxcontam", "methods", "direction"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
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
    done = subprocess.run(
        [sys.executable, *flags, "-m", "jaxcontam", "methods"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_command_of_the_wheel_answers_help_without_jax(wheel, tmp_path):
    # The wheel itself on the path, not the checkout.
    code = (
        "import sys; from jaxcontam.cli.main import main; code = main(['--help']); "
        "assert not {'jax', 'transformers', 'matplotlib'} & sys.modules.keys(); "
        "import jaxcontam; assert '.whl' in jaxcontam.__file__; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(wheel), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "audit" in done.stdout


def test_package_imports_nothing_heavy_and_an_audit_few_modules():
    code = (
        "import sys, jaxcontam; package = list(sys.modules); "
        "import jaxcontam.orders.run; print(package, list(sys.modules), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    package, audit = map(ast.literal_eval, done.stdout.splitlines())
    assert {"jax", "transformers", "torch", "numpy"}.isdisjoint(package)
    assert {"jax", "transformers", "torch", "matplotlib"}.isdisjoint(audit)
    # What must be read to follow an audit; functions import what they alone need.
    own = [name for name in audit if name.partition(".")[0] == "jaxcontam"]
    assert len(own) <= 85


def test_library_never_imports_training_or_studies():
    for path in (ROOT / "jaxcontam").rglob("*.py"):
        tops = {module.split(".")[0] for module in imported(path)}
        assert tops.isdisjoint({"train", "eval", "tests"}), path


def test_imports_point_one_way_and_no_room_imports_another():
    wrong = []
    for path in (ROOT / "jaxcontam").rglob("*.py"):
        own = path.relative_to(ROOT / "jaxcontam").parts[0].removesuffix(".py")
        if own.startswith("__"):
            continue
        for module in imported(path):
            other = room_of(module) if module.startswith("jaxcontam.") else None
            if other not in LAYER or other == own:
                continue
            is_other_room = own in ROOMS and other in ROOMS
            if is_other_room or LAYER[other] < LAYER[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


@pytest.mark.parametrize("room", [*ROOMS, "proof", "reports", "cli"])
def test_a_room_can_be_read_in_a_day(room):
    files = (ROOT / "jaxcontam" / room).glob("*.py")
    texts = [path.read_text(encoding="utf-8") for path in files]
    assert sum(text.count("\n") for text in texts) <= MOST_LINES


# Tests of a room that need no other one.
OF_ROOM = {
    "orders": "test_sharded_t.py",
    "members": "test_frequencies.py",
    "replication": "test_overlap.py",
    "score_gap": "test_judging.py",
    "overlap": "test_overlap.py",
    "ownership": "test_variants.py",
}
# Tables that have a line a command, a report or a method.
TABLES = ("__init__.py", "methods.py", "reports/kinds.py")


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_taken_out_with_its_folder_and_its_lines_of_three_tables(
    room, tmp_path
):
    package = tmp_path / "jaxcontam"
    for name in ("jaxcontam", "tests", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    shutil.rmtree(package / room)
    for name in TABLES:
        lines = (package / name).read_text(encoding="utf-8").splitlines(keepends=True)
        left = "".join(line for line in lines if f"{room}." not in line)
        (package / name).write_text(left, encoding="utf-8")
    # `doctor` alone asks what an audit would say of a file, when it is given one.
    named = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(f"jaxcontam.{room}." in module for module in imported(path))
    ]
    assert named == ["cli/doctor.py"] * (room == "orders")
    code = (
        "import jaxcontam; from jaxcontam.cli.main import main; "
        "[getattr(jaxcontam, name) for name in jaxcontam._EXPORTS]; "
        "assert jaxcontam.__file__.startswith({!r}); "
        "assert main(['--help']) == main(['methods']) == 0"
    )
    others = [other for other in ROOMS if other != room][:2]
    tests = [f"tests/{other}/{OF_ROOM[other]}" for other in others]
    for words in (
        ["-c", code.format(str(tmp_path))],
        ["-m", "pytest", "-q", "-n", "0", *tests],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_the_init_of_a_room_holds_its_docstring_alone(room):
    # A name here would pull JAX into `--help`, and hide a function of the package.
    (node,) = tree_of(ROOT / "jaxcontam" / room / "__init__.py").body
    assert isinstance(node, ast.Expr)


@pytest.mark.parametrize("name", sorted({*jaxcontam._EXPORTS} - {"METHODS"}))
def test_no_module_is_named_like_what_the_package_exports(name):
    # The first import of anything inside it would put it in the function's place.
    place = ROOT / "jaxcontam" / name
    assert not place.is_dir() and not place.with_suffix(".py").exists()


def test_tracked_files_name_no_registry_and_no_unpickling():
    # The words are put together here, so that this file does not hold them.
    forbidden = ["--" + "index-url", "--extra-" + "index-url", "--find-" + "links"]
    unsafe = ["pickle" + ".load", "trust_remote_code=True", "allow_pickle=True"]
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    names = names or [str(p.relative_to(ROOT)) for p in SOURCES]
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


def test_constraints_pin_all_that_the_tests_install():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[\w.]+", str(pin.specifier)) for pin in pins)
    names = [canonicalize_name(pin.name) for pin in pins]
    assert len(set(names)) == len(names)
    needs = installed_needs("jaxcontam", ["test"])
    assert {"jax", "pytest", "jaxlib", "orbax-checkpoint"} <= needs
    assert needs <= set(names)
    # Every pin is within its range.
    versions = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}
    for line in importlib.metadata.requires("jaxcontam"):
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": "test"}):
            assert versions[canonicalize_name(need.name)] in need.specifier, line


def test_lock_has_hashes_and_the_versions_of_the_constraints():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.findall(
        r"^([^\s#].*?)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.M
    )
    lines = [line for line in text.splitlines() if line[0] not in " #"]
    # Nothing but pins with hashes: no place to load them from.
    assert [line.removesuffix(" \\") for line in lines] == [pin for pin, _ in entries]
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, dict(entries))}
    here = {
        name for name, pin in pins.items() if not pin.marker or pin.marker.evaluate()
    }
    assert installed_needs("jaxcontam", []) <= here
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            name = canonicalize_name(pin.name)
            assert name not in pins or pins[name].specifier == pin.specifier, line
