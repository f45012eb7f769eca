"""What `jaxcontam replicate` asks: instances, prompts, models, and their answers."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontam.commands.progress import progress_bar
from jaxcontam.commands.replicate_completers import Completers, open_completers
from jaxcontam.commands.replicate_estimate import Planned, PlannedRequest
from jaxcontam.commands.replicate_judged import (
    Found,
    check_sheet,
    human_labels,
    judged,
    measured,
    open_measures,
)
from jaxcontam.commands.replicate_partition import Arm, Partition
from jaxcontam.data.benchmark import Benchmark, fingerprint, load_benchmark
from jaxcontam.data.options import read_items
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.cdd import TEMPERATURE as CDD_TEMPERATURE
from jaxcontam.methods.replication.fields import find_fields
from jaxcontam.methods.replication.instance import Completer, Completion
from jaxcontam.methods.replication.prompts import load_prompts
from jaxcontam.methods.replication.split import Drawn, draw_instances
from jaxcontam.report.document import make_folder
from jaxcontam.results import DeviceInfo, ModelInfo
from jaxcontam.results.replication import ComparisonResult
from jaxcontam.terminal import Terminal

if TYPE_CHECKING:
    from jaxcontam.commands.replicate import Replicate


# Most tokens of an answer to each method of --compare that has short ones.
_CDD_TOKENS, _WORD_TOKENS, _OPTION_TOKENS = 100, 20, 50


class Asked:
    """One run that asks a model; drawn and planned, not yet asked."""

    def __init__(self, command: "Replicate"):
        """Load, draw and cut; open the model, which may cost a request or two.

        Raises:
            InputError: If a file, a field, a flag or the model is at fault.
        """
        assert command.model is not None and command.benchmark is not None
        self._command = command
        self._prompts = load_prompts(command.task, command.prompts)
        self._benchmark = self._load(command.benchmark)
        self._drawn = self._draw(self._benchmark)
        self._control: Drawn | None = None
        if command.control is not None:
            self._control = self._draw(self._load(command.control))
            self._check_control()
        if "ts_guessing_option" in command.comparisons:
            items = read_items(load_benchmark(command.benchmark))
            order = np.random.default_rng(command.seed).permutation(len(items))
            self._items = [items[i] for i in order[: command.k]]
        self._names = {
            "dataset_name": command.dataset_name or self._benchmark.name,
            "split_name": command.split_name,
        }
        drawn = [self._drawn, *([] if self._control is None else [self._control])]
        self._guided = [self._guided_prompts(one) for one in drawn]
        self._general = (
            [
                self._prompts.general_prompt(instance)
                for instance in self._drawn.instances
            ]
            if self._prompts.has_arms
            else None
        )
        # Faults of what is needed last are found before anything is paid for.
        check_sheet(command)
        self._measures = [] if command.dry_run else open_measures(command)
        # Opened once the input is known to be good.
        self._completers: Completers = open_completers(
            command,
            digest=self._drawn.fingerprint[7:15],
            prompts=[*(p for part in self._guided for p in part), *self._all_general],
            seconds=[one.second_piece for part in drawn for one in part.instances],
        )

    @property
    def model_info(self) -> ModelInfo:
        """What the report says of the model."""
        return self._completers.info

    @property
    def device_info(self) -> DeviceInfo | None:
        """None where the model is behind a server."""
        return self._completers.device

    @property
    def out(self) -> Path:
        """Folder of the report."""
        return self._completers.out

    def print_estimate(self) -> None:
        """Say what would be asked; ask nothing."""
        judged = [*self._drawn.instances]
        if self._control is not None:
            judged += self._control.instances
        self._completers.print_estimate(
            Planned(
                completions=tuple(
                    PlannedRequest(prompt=prompt, stop=self._stop)
                    for prompt in self._all_prompts
                ),
                more=tuple(self._planned_comparisons()),
                judged=() if self._command.judge == "local" else tuple(judged),
            ),
            Terminal(),
        )

    def _planned_comparisons(self) -> Iterator[PlannedRequest]:
        """Requests of --compare: those of cdd exactly, of the others about as long."""
        most = self._completers.new_tokens
        prompts = self._general or self._guided[0]
        for name in self._command.comparisons:
            if name == "first_instances":
                yield PlannedRequest(prompt=prompts[0])
            elif name == "cdd":
                n_samples, tokens = self._command.cdd_samples, min(_CDD_TOKENS, most)
                for prompt in prompts:
                    one = PlannedRequest(
                        prompt=prompt, max_tokens=tokens, stop=self._stop
                    )
                    yield one
                    for i in range(n_samples):
                        yield dataclasses.replace(
                            one, temperature=CDD_TEMPERATURE, sample=i
                        )
                # Four requests show whether a server heeds the temperature.
                for i in range(4):
                    yield PlannedRequest(prompt=f"{name} {i}", max_tokens=tokens)
            elif name == "ts_guessing_word":
                for prompt, one in zip(prompts, self._drawn.instances, strict=True):
                    yield PlannedRequest(
                        prompt=f"{name} {prompt} {one.second_piece}",
                        max_tokens=min(_WORD_TOKENS, most),
                    )
            else:
                for item in self._items:
                    yield PlannedRequest(
                        prompt=f"{prompts[0]} {item.text(range(len(item.options)))}",
                        max_tokens=min(_OPTION_TOKENS, most),
                    )

    def answers(self) -> Found:
        """Ask for everything, judge it and measure it."""
        command = self._command
        make_folder(self.out)
        with self._completers as completer:
            guided = [
                self._complete(completer, prompts, "guided completions")
                for prompts in self._guided
            ]
            general = None
            if self._general is not None:
                general = self._complete(
                    completer, self._general, "general completions"
                )
            comparisons, rows = self._compared(completer)
            warnings = [*self._warnings(), *self._completers.notes()]
        arm = Arm(instances=self._drawn.instances, guided=guided[0], general=general)
        control = None
        if self._control is not None:
            control = Arm(instances=self._control.instances, guided=guided[1])
        found = measured(command, arm, self._measures, control=control)
        partition = Partition(
            name=self._benchmark.name,
            fingerprint=self._drawn.fingerprint,
            prompt_version=self._prompts.version,
            arm=arm,
            control=control,
            overlaps=found.overlaps,
            has_bleurt_20=found.has_bleurt_20,
            control_bleurt=found.control_bleurt,
            control_warnings=() if self._control is None else self._control.warnings,
            humans=human_labels(command, arm),
            warnings=(*warnings, *found.notes),
        )
        spending = self._completers.spending
        return judged(command, partition, self.out, spending), comparisons, rows

    def _load(self, path: Path) -> Benchmark:
        command = self._command
        return load_benchmark(
            path,
            template=command.template,
            text_field=command.text_field,
            check_fields=True,
        )

    def _draw(self, benchmark: Benchmark) -> Drawn:
        command = self._command
        fields = find_fields(
            benchmark,
            task=command.task,
            text_field=command.text_field,
            has_template=command.template is not None,
            first_field=command.first_field,
            second_field=command.second_field,
            label_field=command.label_field,
        )
        return draw_instances(
            benchmark,
            fields,
            k=command.k,
            seed=command.seed,
            label_names=command.label_names,
        )

    def _check_control(self) -> None:
        assert self._control is not None
        own = {(one.first_piece, one.second_piece) for one in self._drawn.instances}
        shared = own & {
            (one.first_piece, one.second_piece) for one in self._control.instances
        }
        if shared:
            raise InputError(
                f"{self._command.control}: {len(shared)} of its instances are those of "
                f"{self._command.benchmark}",
                hint="a control holds instances that cannot have been seen",
            )

    def _guided_prompts(self, drawn: Drawn) -> list[str]:
        return [
            self._prompts.guided_prompt(instance, **self._names)
            for instance in drawn.instances
        ]

    @property
    def _all_general(self) -> list[str]:
        return self._general or []

    @property
    def _all_prompts(self) -> list[str]:
        guided = [prompt for part in self._guided for prompt in part]
        return [*guided, *self._all_general]

    def _complete(
        self, completer: Completer, prompts: Sequence[str], title: str
    ) -> tuple[Completion, ...]:
        with progress_bar(title, unit="answers/s") as progress:
            found = completer.complete(
                prompts,
                max_tokens=self._completers.new_tokens,
                seed=self._command.seed,
                stop=self._stop,
                progress=progress,
            )
        return tuple(one for (one,) in found)

    @property
    def _stop(self) -> tuple[str, ...]:
        """What ends a completion: a base model goes on with the next line."""
        command = self._command
        if command.stop or command.task != "plain":
            return tuple(words.replace("\\n", "\n") for words in command.stop)
        has_lines = any("\n" in one.second_piece for one in self._drawn.instances)
        return () if has_lines else ("\n",)

    def _compared(
        self, completer: Completer
    ) -> tuple[list[ComparisonResult], list[dict[str, Any]]]:
        """Answers to the methods of --compare."""
        from jaxcontam.methods.replication.cdd import cdd
        from jaxcontam.methods.replication.first_instances import first_instances
        from jaxcontam.methods.replication.ts_guessing import (
            ts_guessing_option,
            ts_guessing_word,
        )

        command, drawn = self._command, self._drawn
        names: dict[str, Any] = {
            "dataset": self._names["dataset_name"],
            "split": self._names["split_name"],
        }
        which: dict[str, Any] = {
            "benchmark": self._benchmark.name,
            "fingerprint": drawn.fingerprint,
            "seed": command.seed,
        }
        most = self._completers.new_tokens
        found: list[ComparisonResult] = []
        rows: list[dict[str, Any]] = []
        for name in command.comparisons:
            with progress_bar(name, unit="answers/s") as progress:
                if name == "first_instances":
                    result, own = first_instances(
                        self._benchmark,
                        completer,
                        **names,
                        max_tokens=most,
                        seed=command.seed,
                        progress=progress,
                    )
                elif name == "cdd":
                    result, own = cdd(
                        drawn.instances,
                        self._general or self._guided[0],
                        completer,
                        **which,
                        tokenize=self._completers.tokenize,
                        n_samples=command.cdd_samples,
                        max_tokens=min(_CDD_TOKENS, most),
                        stop=self._stop,
                        progress=progress,
                    )
                elif name == "ts_guessing_word":
                    result, own = ts_guessing_word(
                        drawn.instances,
                        completer,
                        **which,
                        **names,
                        max_tokens=min(_WORD_TOKENS, most),
                        progress=progress,
                    )
                else:
                    result, own = ts_guessing_option(
                        self._items,
                        completer,
                        **which | {"fingerprint": self._items_fingerprint},
                        **names,
                        max_tokens=min(_OPTION_TOKENS, most),
                        progress=progress,
                    )
            found.append(result)
            rows += [
                {"benchmark": self._benchmark.name, "arm": name, **row} for row in own
            ]
        return found, rows

    @property
    def _items_fingerprint(self) -> str:
        return fingerprint([one.text(range(len(one.options))) for one in self._items])

    def _warnings(self) -> list[str]:
        """What the reader should know of the draw and of the prompts."""
        drawn = self._drawn
        words = [*drawn.warnings, *self._completers.warnings]
        if drawn.n_duplicates:
            words.append(
                f"{drawn.n_duplicates} of {drawn.n_rows} instances repeat another one "
                "and were not drawn"
            )
        if drawn.n_too_short:
            words.append(
                f"{drawn.n_too_short} of {drawn.n_rows} instances are empty or too "
                "short to be cut and were not drawn"
            )
        if not self._prompts.has_arms:
            words.append(
                "both instructions are the same, so completions are not compared "
                "between them"
            )
        return words
