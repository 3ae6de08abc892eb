"""Every public name has a docstring with an example, a method in that of its class; `make test` runs the examples."""

import inspect
import pydoc
import re
from pathlib import Path

API = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")


def listed_names():
    """Return the names of the API page, with the module they are listed under."""
    names = []
    for block in re.findall(r"^```{eval-rst}\n(.*?)^```", API, flags=re.DOTALL | re.MULTILINE):
        home, _, listed = block.partition(".. autosummary::")
        module = re.search(r"module:: ([\w.]+)", home)[1]
        names += [f"{module}.{name}" for name in re.findall(r"^   ([\w.]+)$", listed, flags=re.MULTILINE)]
    return names


def public_objects():
    """Yield the name and the object of all listed functions and classes, and of the public methods of the classes."""
    for name in listed_names():
        value = pydoc.locate(name)
        if inspect.isclass(value):
            for method, member in vars(value).items():
                member = getattr(member, "__func__", member)
                if method[0] != "_" and inspect.isfunction(member):
                    yield f"{name}.{method}", member
        if callable(value):
            yield name, value


OBJECTS = dict(public_objects())


def test_there_is_something_to_look_at():
    assert len(OBJECTS) > 110 and {"boolcp.BMP.fit", "boolcp.BMP.as_published", "boolcp.metrics.rmse"} <= set(OBJECTS)


def test_each_has_an_example_and_begins_with_a_sentence():
    texts = {name: value.__doc__ or "" for name, value in OBJECTS.items()}
    example = re.compile(r"^\s*Examples\n\s*--------\n\s*>>> ", flags=re.MULTILINE)
    bare = [name for name, text in texts.items() if not example.search(text)]
    classes = {name: texts.get(name.rpartition(".")[0], "") for name in bare}  # its example shows what the methods do
    assert not [name for name, text in classes.items() if f".{name.rpartition('.')[2]}(" not in text]
    assert not [name for name, text in texts.items() if not text.strip().partition("\n")[0].endswith(".")]
