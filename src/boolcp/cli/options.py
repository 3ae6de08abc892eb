"""Options that commands share: dataclasses whose fields become options, the same in every command."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand


def option(text: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """Return a typer option whose default is not printed unless requested."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **({"show_default": False} | settings))


model_option = functools.partial(option, panel="Model", show_default=True)

Out = Annotated[Path | None, option("Folder of the result.", "--out", "-o")]
Force = Annotated[bool, option("Replace earlier results of boolcp.", "--force")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes.")]
Json = Annotated[bool, option("Print the result as JSON, for scripts.", "--json")]
Atoms = Annotated[int, model_option("Number of atoms.", "--n-atoms", "-k")]
AtomsOrAuto = Annotated[
    str, model_option("Number of atoms, or auto for the choice of boolcp select.", "--n-atoms", "-k")
]


@dataclass(frozen=True)
class ModelOptions:
    """The parameters of BMP that a command takes, except the number of atoms."""

    boolean_modes: Annotated[str | None, model_option("Modes allowed to be Boolean, e.g. trial,channel.")] = None
    atom_rank: Annotated[str, model_option("Rank of the real parts: a number, or block.")] = "1"
    loss: Annotated[str, model_option("squared, huber, poisson or bernoulli.")] = "squared"
    nonnegative: Annotated[bool, model_option("Keep real parts at zero or above.", "--nonnegative")] = False
    criterion: Annotated[str, model_option("normalized, or published as in the paper.")] = "normalized"
    refine: Annotated[bool, model_option("Correct all factors after the pursuit.")] = True
    n_init: Annotated[
        int | None, model_option("Maximal number of starts (by default up to 40, fewer if they agree).")
    ] = None
    max_memory: Annotated[str | None, model_option("Memory for data read from disk in slabs, e.g. 3GB.")] = None
    seed: Annotated[int, model_option("Equal seeds give equal results.")] = 0

    def parameters(self) -> dict[str, Any]:
        """Return the parameters as BMP takes them."""
        given = asdict(self)
        given["random_state"] = given.pop("seed")
        modes = given["boolean_modes"]
        if modes is not None:
            given["boolean_modes"] = [int(m) if m.strip().isdigit() else m.strip() for m in modes.split(",")]
        given["atom_rank"] = int(self.atom_rank) if self.atom_rank.isdigit() else self.atom_rank
        return given


def make_model(options: ModelOptions, n_atoms: int) -> Any:
    """Return the BMP to fit; wrong parameters raise an error before the data are read."""
    from boolcp.bmp import BMP

    model = BMP(n_atoms, **options.parameters(), verbose=1)
    model._check_parameters()  # as `fit` does first
    return model


class Grouped(TyperCommand):
    """A command whose help lists its options in groups: its own, those of the model, reading, preparation."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, group by group."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            is_argument = parameter.param_type_name == "argument"
            name = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
            if record is not None:
                groups.setdefault(name, []).append(record)
        for name, records in groups.items():  # none is empty: --help is an option, and commands with data take files
            with formatter.section(name):
                formatter.write_dl(records)


def takes_options(command: Callable) -> Callable:
    """Replace the dataclass parameters of a command by their fields, for typer to read."""
    own = inspect.signature(command).parameters
    shared: dict[str, Any] = {name: p.annotation for name, p in own.items() if is_dataclass(p.annotation)}
    parameters = [p for name, p in own.items() if name not in shared]
    parameters += [_parameter(item) for kind in shared.values() for item in fields(kind)]
    parameters = sorted((p.replace(kind=p.KEYWORD_ONLY) for p in parameters), key=lambda p: not _is_argument(p))

    @functools.wraps(command)
    def wrapper(**given: Any) -> Any:
        for name, kind in shared.items():
            given[name] = kind(**{item.name: given.pop(item.name) for item in fields(kind)})
        return command(**given)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    del wrapper.__wrapped__
    return wrapper


def _parameter(item: Field) -> inspect.Parameter:
    default: Any = inspect.Parameter.empty
    if item.default_factory is not MISSING:
        default = item.default_factory()
    elif item.default is not MISSING:
        default = item.default
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=item.type)


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, typer.models.ArgumentInfo) for part in get_args(parameter.annotation))
