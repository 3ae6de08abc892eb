"""Options that commands share: dataclasses whose fields become options, the same in every command."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

import boolcp
from boolcp.cli.answers import note

# modes that are taken as the Boolean one, their mean apart, unless the options say otherwise
REPEATS = [f"{name}{s}" for name in "trial epoch sweep subject participant patient animal".split() for s in ("", "s")]
ALL = "all"
FEW = 10  # mean of whole numbers below which they are taken for counts; not tuned
VOLTAGES = ("EEG", "MEG", "ECoG", "sEEG")  # names of quantities whose noise is correlated in space and time
VALUES = {Path: "FILE", str: "TEXT", int: "N", float: "NUMBER"}  # what the help calls the value of an option


def option(text: str, *names: str, panel: str | None = None, words: Sequence[str] = (), **settings: Any) -> Any:
    """Return a typer option whose default is not printed unless requested; shells complete it with the words."""
    given = {"show_default": False} | settings | ({"autocompletion": lambda: words} if words else {})
    return typer.Option(*names, help=text, rich_help_panel=panel, **given)


NOISES, LOSSES = ("white", "separable"), ("squared", "huber", "poisson", "bernoulli")
model_option = partial(option, panel="Model", show_default=True)

Force = Annotated[bool, option("Replace earlier results of boolcp.", "--force")]
Json = Annotated[bool, option("Print the result as JSON, for scripts.", "--json")]
Atoms = Annotated[int, model_option("Number of atoms.", "--n-atoms", "-k")]
Result = Annotated[Path, typer.Argument(metavar="RESULT", help="A folder that fit wrote, or a saved result, .nc.")]
Tensor = Annotated[Path, option("The new file, .nc or .npy.", "--out", "-o")]


@dataclass(frozen=True)
class ModelOptions:
    """The parameters of BMP that a command takes, except the number of atoms."""

    boolean_modes: Annotated[str | None, model_option("Where atoms are on/off, e.g. trial; or all.")] = None
    atom_rank: Annotated[str, model_option("Rank of the real parts: 1, 2, .. or block.")] = "1"
    mean: Annotated[bool | None, model_option("Fit the mean over the Boolean mode; default for trials.")] = None
    noise: Annotated[str | None, model_option("white; separable (default for EEG, MEG, ECoG).", words=NOISES)] = None
    adjacency: Annotated[str | None, model_option("Modes where neighbors agree, e.g. channel,time.")] = None
    smoothness: Annotated[str, model_option("How much neighbors count, in noise variances, or auto.")] = "auto"
    loss: Annotated[str, model_option("squared, huber, poisson or bernoulli.", words=LOSSES)] = "squared"
    nonnegative: Annotated[bool, model_option("Keep real parts at zero or above.", "--nonnegative")] = False
    refine: Annotated[bool, model_option("Correct all factors after the pursuit.")] = True
    n_init: Annotated[int | None, model_option("Maximal number of starts, 16; of a matrix 40.")] = None
    max_memory: Annotated[str | None, model_option("Memory for data read from disk in slabs, e.g. 3GB.")] = None
    seed: Annotated[int, model_option("Equal seeds give equal results.")] = 0

    def parameters(self, X: Any = None) -> dict[str, Any]:
        """Return the parameters as BMP takes them; Boolean mode and mean by default depend on the data X."""
        given = asdict(self)
        given["random_state"] = given.pop("seed")
        if self.atom_rank != "block" and not self.atom_rank.isdigit():
            raise ValueError(f"--atom-rank takes a number or block, got {self.atom_rank!r}.")
        given["atom_rank"] = "block" if self.atom_rank == "block" else int(self.atom_rank)
        given["smoothness"] = "auto" if self.smoothness == "auto" else float(self.smoothness)
        given["boolean_modes"] = self.modes(X)
        given["adjacency"] = self.adjacency and dict.fromkeys(map(str.strip, self.adjacency.split(",")), "auto")
        given["mean"] = self.trials(X) is not None if self.mean is None else self.mean
        return given | {"noise": self.noise or ("separable" if self.is_smooth(X) else "white")}

    def is_smooth(self, X: Any) -> bool:
        """Return True if a fit takes a noise model without being told: complete trials of EEG, MEG or ECoG."""
        is_known = X is not None and str(X.name) in VOLTAGES and self.trials(X) is not None
        return is_known and self.noise is None and not bool(X.isnull().any())

    def modes(self, X: Any) -> list[int | str] | None:
        """Return the Boolean modes: those given or, by default, the trials or subjects of X."""
        if self.boolean_modes is None and self.adjacency is None:
            found = [] if X is None else [str(dim) for dim in X.dims if dim in REPEATS and X.sizes[dim] > 1]
            return [found[0]] if found else None
        names = [name.strip() for name in (self.boolean_modes or self.adjacency or "").split(",")]
        return None if names == [ALL] else [int(name) if name.isdigit() else name for name in names]

    def trials(self, X: Any) -> str | None:
        """Return the mode of the trials of X if it is the one Boolean mode of a fit that can have a mean and noise."""
        modes = self.modes(X) or []
        is_able = self.loss == "squared" and self.refine and not self.nonnegative
        if X is None or len(modes) != 1 or not is_able:
            return None
        from boolcp.storage import stays_out

        mode = X.dims[modes[0]] if isinstance(modes[0], int) and modes[0] < X.ndim else modes[0]
        return mode if mode in X.dims and mode in REPEATS and not stays_out(X.data, self.max_memory) else None


def make_model(options: ModelOptions, n_atoms: int, X: Any = None) -> Any:
    """Return the BMP to fit to X; without X, only raise if a parameter is invalid, before the data are read."""
    model = boolcp.BMP(n_atoms, **options.parameters(X), verbose=1)
    model._check_parameters()  # as `fit` does first
    if X is not None and options.boolean_modes is None and model.boolean_modes:
        note(f"Atoms are on or off along {' or '.join(model.boolean_modes)} (--boolean-modes all allows every mode).")
    if options.mean is None and (mode := options.trials(X)):
        note(f"The mean over {mode} is fitted apart from the atoms (--no-mean leaves it out).")
    if options.is_smooth(X):
        note("Noise correlated along the other modes is estimated and whitened (--noise white leaves it as it is).")
    if X is not None and X.chunks is None and options.loss == "squared":
        known = X.values[X.notnull().values]
        if known.size and known.min() == 0 and known.mean() < FEW and (known == known.astype(int)).all():
            kind, loss = ("counts", "poisson") if known.max() > 1 else ("zeros and ones", "bernoulli")
            note(f"The entries are {kind}: --loss {loss} takes their noise into account.")
    return model


class Grouped(TyperCommand):
    """A command whose help lists its options in groups: its own, those of the model, reading, preparation."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, group by group."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in list[Any](self.get_params(ctx)):
            record, is_argument = parameter.get_help_record(ctx), parameter.param_type_name == "argument"
            name = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
            if record is not None:
                groups.setdefault(name, []).append((parameter.metavar, record[1]) if is_argument else record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the line of usage."""
        return ["[OPTIONS]", *(str(p.metavar) for p in self.get_params(ctx) if p.param_type_name == "argument")]


def name_value(annotation: Any) -> None:
    """Name the value of an option for the help, which has its Python type otherwise."""
    kind, *settings = get_args(annotation) or (None,)
    found = [VALUES[part] for part in get_args(kind) or (kind,) if part in VALUES]
    if found and settings[0].metavar is None:
        settings[0].metavar = found[0]


def takes_options(command: Callable) -> Callable:
    """Replace the dataclass parameters of a command by their fields, for typer to read; arguments come first."""
    own = inspect.signature(command).parameters
    shared: dict[str, Any] = {name: p.annotation for name, p in own.items() if is_dataclass(p.annotation)}
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for name, p in own.items() if name not in shared]
    for item in (item for kind in shared.values() for item in fields(kind)):
        default = item.default if item.default_factory is MISSING else item.default_factory()
        default = inspect.Parameter.empty if default is MISSING else default
        new = inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=item.type)
        parameters.append(new)
    for parameter in parameters:
        name_value(parameter.annotation)
    parameters.sort(key=lambda p: not any(isinstance(a, typer.models.ArgumentInfo) for a in get_args(p.annotation)))

    @wraps(command)
    def wrapper(**given: Any) -> Any:
        for name, kind in shared.items():
            given[name] = kind(**{item.name: given.pop(item.name) for item in fields(kind)})
        return command(**given)

    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    del wrapper.__wrapped__
    return wrapper
