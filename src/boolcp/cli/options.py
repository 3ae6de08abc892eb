"""Options that commands share: dataclasses whose fields become options, the same in every command."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

TRIALS = ("trial", "trials", "epoch", "epochs")  # modes whose mean a fit keeps apart from the atoms


def option(text: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """Return a typer option whose default is not printed unless requested."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **({"show_default": False} | settings))


model_option = functools.partial(option, panel="Model", show_default=True)

Force = Annotated[bool, option("Replace earlier results of boolcp.", "--force")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes.")]
Json = Annotated[bool, option("Print the result as JSON, for scripts.", "--json")]
Atoms = Annotated[int, model_option("Number of atoms.", "--n-atoms", "-k")]


@dataclass(frozen=True)
class ModelOptions:
    """The parameters of BMP that a command takes, except the number of atoms."""

    boolean_modes: Annotated[str | None, model_option("Modes allowed to be Boolean, e.g. trial,channel.")] = None
    atom_rank: Annotated[str, model_option("Rank of the real parts: 1, 2, .. or block.")] = "1"
    mean: Annotated[
        bool | None, option("Fit the mean over the Boolean mode; by default over trials.", panel="Model")
    ] = None
    loss: Annotated[str, model_option("squared, huber, poisson or bernoulli.")] = "squared"
    nonnegative: Annotated[bool, model_option("Keep real parts at zero or above.", "--nonnegative")] = False
    refine: Annotated[bool, model_option("Correct all factors after the pursuit.")] = True
    n_init: Annotated[int | None, option("Maximal number of starts, 40 by default.", panel="Model")] = None
    max_memory: Annotated[str | None, model_option("Memory for data read from disk in slabs, e.g. 3GB.")] = None
    seed: Annotated[int, model_option("Equal seeds give equal results.")] = 0

    def parameters(self, dims: Sequence[Any] = ()) -> dict[str, Any]:
        """Return the parameters as BMP takes them, for data with these modes."""
        given = asdict(self) | {"random_state": self.seed}
        if self.atom_rank != "block" and not self.atom_rank.isdigit():
            raise ValueError(f"--atom-rank takes a number or block, got {self.atom_rank!r}.")
        given["atom_rank"] = "block" if self.atom_rank == "block" else int(self.atom_rank)
        if self.boolean_modes is not None:
            names = [name.strip() for name in self.boolean_modes.split(",")]
            given["boolean_modes"] = [int(name) if name.isdigit() else name for name in names]
        del given["seed"], given["mean"]
        return given | ({"mean": True} if self.mean or (self.mean is None and self.trials(dims)) else {})

    def trials(self, dims: Sequence[Any]) -> str | None:
        """Return the mode of the trials if it is the only Boolean one."""
        by_position = {str(n): str(dim) for n, dim in enumerate(dims)}
        chosen = by_position.get(self.boolean_modes or "", self.boolean_modes)
        return chosen if chosen in dims and chosen in TRIALS else None


def make_model(options: ModelOptions, n_atoms: int, dims: Sequence[Any] = ()) -> Any:
    """Return the BMP to fit; wrong parameters raise an error, without dims before the data are read."""
    from boolcp.bmp import BMP
    from boolcp.cli.answers import note

    model = BMP(n_atoms, **options.parameters(dims), verbose=1)
    model._check_parameters()  # as `fit` does first
    if options.mean is None and options.trials(dims):
        note(f"The mean over {options.trials(dims)} is fitted apart from the atoms (--no-mean to leave it out).")
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
    default = item.default_factory() if item.default_factory is not MISSING else item.default
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=item.type)


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, typer.models.ArgumentInfo) for part in get_args(parameter.annotation))
