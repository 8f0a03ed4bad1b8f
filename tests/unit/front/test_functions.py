"""Functions of a notebook or a script, taken to a module of their own: it gives what they give, or they are refused by name."""

from __future__ import annotations

import functools
import json
import linecache
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from checkpoint_protocol.manifest.spec import ManifestInvalid
from checkpointed_writes.functions import TextModule, is_importable

#: Scripts, each with a function `step`; what it gives for 3 is what the module of it must give.
SCRIPTS: Final = {
    "a function alone": "def step(x): return x + 1",
    "a helper that is defined later": "def step(x): return helper(x)\ndef helper(x): return x * 2",
    "two that call each other": "def step(x): return 0 if x == 0 else other(x - 1) + 1\ndef other(x): return step(x)",
    "constants of each kind": (
        "A, B, C = 1.5, 'it\\'s', {'k': [1, (2, None)], 'b': True}\nD = {3, 1}\nE = b'x'\n"
        "def step(x): return [A, B, C, sorted(D), E.decode(), x]"
    ),
    "patterns, paths and loggers": (
        "import re, logging\nfrom pathlib import PurePosixPath\nW = re.compile(r'\\d', re.I)\nP = PurePosixPath('/a/b')\n"
        "L = logging.getLogger('x.y')\ndef step(x): return [bool(W.match(str(x))), W.flags, P.name, L.name]"
    ),
    "imports of each form": (
        "import math\nimport os.path\nimport xml.etree.ElementTree as ET\nimport json as j\nfrom math import sqrt as root\n"
        "from os import path\nimport concurrent.futures\n"
        "def step(x): return [math.pi, os.path.join('a', 'b'), ET.fromstring('<a/>').tag, j.dumps(x), root(9), "
        "path.basename('a/b'), concurrent.futures.__name__]"
    ),
    "names of typing": (
        "from typing import Any, Optional, Literal\n"
        "def step(x: Optional[int]) -> Literal[1]: return [str(Any), str(Optional[int]), x]"
    ),
    "an annotation that means nothing": "def step(x: Unknown) -> 'Missing': return x",
    "an annotation that cannot be taken": "import io\nOPEN = io.StringIO()\ndef step(x: OPEN) -> int: return x",
    "defaults and star arguments": "N = 4\ndef step(x, *more, by=N, **rest): return [x, by, more, rest]",
    "a decorator of its own": (
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def inner(x): return f(f(x))\n    return inner\n"
        "@twice\ndef step(x): return x + 1"
    ),
    "a cached function": "import functools\n@functools.lru_cache(maxsize=None)\ndef step(x): return x * 7",
    "a function inside one": ("K = 3\ndef step(x):\n    def inner(y): return y + K\n    return [inner(one) for one in range(x)]"),
    "a closure over a constant": "def make(n):\n    def step(x): return x + n\n    return step\nstep = make(40)",
    "a text of several lines in a function inside one": (
        "def make():\n    def step(x):\n        return '''one\n          two\n    three'''\n    return step\nstep = make()"
    ),
    "a class with its base, and an enum": (
        "import enum\nclass Kind(enum.Enum):\n    A = 'a'\n"
        "class Base:\n    kind = Kind.A\n    def name(self): return self.kind.value\n"
        "class Step(Base):\n    def __call__(self, x): return [self.name(), x]\ndef step(x): return Step()(x)"
    ),
    "dataclasses, named tuples and models": (
        "from dataclasses import dataclass\nfrom typing import NamedTuple\nfrom pydantic import BaseModel\nLIMIT = 5\n"
        "@dataclass\nclass D:\n    a: int = LIMIT\nclass N(NamedTuple):\n    a: int\nclass M(BaseModel):\n    a: int\n"
        "    b: D = D()\ndef step(x): return [D().a, N(x).a, M(a=x).model_dump()]"
    ),
    "a generator": "def step(x):\n    yield from range(x)",
    "async": (
        "import asyncio\nasync def ask(x):\n    await asyncio.sleep(0)\n    return x\ndef step(x): return asyncio.run(ask(x))"
    ),
    "a match, a walrus and an f-string": (
        "WORD = 'w'\ndef step(x):\n    if (n := x + 1) > 3:\n        return f'{WORD}{n:>{len(WORD) + 3}}'\n    return None"
    ),
    "a global that is set": "count = 0\ndef step(x):\n    global count\n    count += x\n    return count",
    "a builtin that is hidden": "def len(x): return 7\ndef step(x): return len(x)",
    "its own file": "def step(x): return [bool(__file__), x]",
    "super and a class attribute": (
        "class A:\n    def name(self): return 'a'\nclass B(A):\n    tail = 'b'\n"
        "    def name(self): return super().name() + self.tail\ndef step(x): return B().name()"
    ),
    "a comment and a docstring": 'def step(x):\n    # why\n    """What."""\n    return step.__doc__',
    "a comprehension over a constant": "XS = [1, 2]\ndef step(x): return {k: [v for v in XS if v < x] for k in 'ab'}",
}


def loaded(text: str, folder: Path, name: str) -> Any:
    """Return a script that has run as `__main__`, and is that until the next one is, or the test has ended."""
    file = folder / f"{name}.py"
    file.write_text(text)
    module: Any = ModuleType("__main__")
    module.__file__, module.__spec__ = str(file), None
    linecache.checkcache(str(file))
    sys.modules["__main__"] = module
    exec(compile(text, str(file), "exec"), module.__dict__)  # noqa: S102 our own text
    return module


@pytest.fixture(autouse=True, scope="module")
def _keep_main() -> Iterator[None]:
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


def value_of(step: Callable[[int], Any]) -> Any:
    found = step(3)
    return json.loads(json.dumps(list(found) if hasattr(found, "__next__") else found, default=str))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """What each script's function gives here, and that of its module in another process."""
    folder = tmp_path_factory.mktemp("functions")
    here = {}
    for number, (title, text) in enumerate(SCRIPTS.items()):
        script = loaded(text, folder, f"script_{number}")
        module = TextModule(f"taken_{number}")
        assert module.add(script.step, "spec.steps.0.call") == "step"
        here[title] = value_of(script.step)
        module.write(folder)
    program = (
        "import importlib, json\nfound = []\n"
        f"for number in range({len(SCRIPTS)}):\n"
        "    made = importlib.import_module(f'taken_{number}').step(3)\n"
        "    found.append(list(made) if hasattr(made, '__next__') else made)\n"
        "print(json.dumps(found, default=str))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(SCRIPTS, zip(here.values(), json.loads(done.stdout), strict=True), strict=True))


@pytest.mark.parametrize("title", SCRIPTS)
def test_the_module_gives_what_the_function_of_the_script_gives(given: dict[str, tuple[Any, Any]], title: str) -> None:
    here, there = given[title]

    assert there == here


REFUSED: Final = {
    "an open file": (
        "import io\nF = io.StringIO()\ndef step(x): return F",
        "step: it uses F, a _io.StringIO, which another process",
    ),
    "a lock": ("import threading\nL = threading.Lock()\ndef step(x): return L", "it uses L, a _thread.lock"),
    "a list with one": ("import io\nF = [io.StringIO()]\ndef step(x): return F", "it uses F, a list"),
    "an array": ("import numpy as np\nV = np.zeros(3)\ndef step(x): return V", "it uses V, a numpy.ndarray"),
    "an object of a class of its own": ("class A: pass\nO = A()\ndef step(x): return O", "it uses O, a "),
    "one that a helper uses": (
        "O = object()\ndef helper(): return O\ndef step(x): return helper()",
        "helper: it uses O, a object",
    ),
    "a closure over one": (
        "def make(o):\n    def step(x): return o\n    return step\nstep = make(object())",
        "it uses o, a object",
    ),
    "a lambda": ("step = lambda x: x", "it is a lambda, which has no text of its own; write a function"),
    "a lambda that it uses": ("f = lambda x: x\ndef step(x): return f(x)", "the text of f is not known here"),
    "a method": ("class A:\n    def step(self, x): return x\nstep = A().step", "it is a method"),
    "an object that is called": ("class A:\n    def __call__(self, x): return x\nstep = A()", "it is a A"),
    "a partial": ("import functools\nstep = functools.partial(int)", "it is a partial"),
    "a function without a file": ("exec('def step(x): return x')", "the text of step is not known here"),
    "a large constant": ("T = 'x' * 70_000\ndef step(x): return T", "it uses T, a str of more than 65,536 characters"),
    "numbers that have no text": ("N = float('nan')\ndef step(x): return N", "it uses N, a float"),
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_has_no_text_is_refused_by_its_name_with_the_way_out(title: str, tmp_path: Path) -> None:
    text, said = REFUSED[title]
    script = loaded(text, tmp_path, "script")

    with pytest.raises(ManifestInvalid) as refused:
        TextModule("taken").add(script.step, "spec.steps.0.call")

    assert refused.value.message.startswith("spec.steps.0.call: ")
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("import os\nKEY = os.environ['OWN_API_KEY']\ndef step(x): return KEY", True),
        ("import os\nHEADERS = {'a': ['Bearer ' + os.environ['OWN_API_KEY']]}\ndef step(x): return HEADERS", True),
        ("API_TOKEN = 'sk-0123456789abcdef'\ndef step(x): return API_TOKEN", True),
        ("URL = 'https://me:pass@host/'\ndef step(x): return URL", True),
        ("import os\ndef step(x): return os.environ['OWN_API_KEY']", False),
        ("MAX_TOKENS, KEY = 100, 'id'\ndef step(x): return MAX_TOKENS, KEY", False),
    ],
)
def test_a_secret_is_not_written_to_a_file(text: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_API_KEY", "of-the-environment")
    script, module = loaded(text, tmp_path, "script"), TextModule("taken")
    if is_refused:
        with pytest.raises(ManifestInvalid, match=r"which looks like a secret, .*; read it in the function, as os\.environ"):
            module.add(script.step, "spec.steps.0.call")
    else:
        module.add(script.step, "spec.steps.0.call")
    assert "of-the-environment" not in module.text


def test_two_things_of_one_name_are_refused(tmp_path: Path) -> None:
    one, other = (loaded(f"N = {n}\ndef step_{n}(x): return N", tmp_path, f"script_{n}") for n in (1, 2))
    module = TextModule("taken")
    module.add(one.step_1, "spec.steps.0.call")

    with pytest.raises(ManifestInvalid, match="two things are called 'N'"):
        module.add(other.step_2, r"spec.steps.1.call")


def test_the_same_functions_give_the_same_text_and_the_file_is_not_touched(tmp_path: Path) -> None:
    script = loaded("import os, re\nN = 1\ndef step(x): return [re.escape('a'), os.sep, N]\nOTHER = object()", tmp_path, "script")

    def written() -> Path:
        module = TextModule("taken")
        module.add(script.step, "spec.steps.0.call")
        return module.write(tmp_path)

    before = written().stat()
    script.OTHER = None
    assert written().stat().st_mtime_ns == before.st_mtime_ns
    script.N = 2
    assert "N = 2" in written().read_text()


def test_a_file_of_the_users_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "taken.py").write_text("mine = 1\n")
    script = loaded("def step(x): return x", tmp_path, "script")
    module = TextModule("taken")
    module.add(script.step, "spec.steps.0.call")

    with pytest.raises(ManifestInvalid, match=r"taken\.py is a file of yours"):
        module.write(tmp_path)
    assert (tmp_path / "taken.py").read_text() == "mine = 1\n"


def test_what_any_process_can_import_is_told_from_what_it_cannot(tmp_path: Path) -> None:
    script = loaded("def step(x): return x", tmp_path, "script")

    assert is_importable(json.dumps)
    assert not is_importable(script.step)
    assert not is_importable(functools.partial(json.dumps))
