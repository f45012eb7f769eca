"""Words of commands that are fuzzed: flags with values that are none."""

import contextlib
import dataclasses
import io

from hypothesis import strategies as st

from jaxcontam.cli.main import COMMANDS, parse
from tests.faults.folders import allowed, contents
from tests.faults.mutations import VALUES


def words_with(values):
    """Flags with values that are none, of every command."""
    flags = {
        name: sorted(
            "--" + field.name.replace("_", "-") for field in dataclasses.fields(command)
        )
        for name, command in COMMANDS.items()
        if dataclasses.fields(command)
    }
    return st.sampled_from(sorted(flags)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.lists(
                st.sampled_from(flags[name])
                | values
                | st.tuples(st.sampled_from(flags[name]), values).map("=".join),
                max_size=5,
            ),
        )
    )


FLAG_VALUES = st.sampled_from(
    [
        *(str(value) for value in VALUES),
        *("nan", "-inf", "1e400", "0x10", "1,2", ",", "--", "-", "\n", "\udc80"),
        *("data=0,model=-1", "api:x", "api:http://x#", "hf:", "hf:a:b:c:d", "tfds:x"),
        *("lm_eval:", "a" * 5000, "\u202e", "[/red]", "%s", "{0}", "all", "auto"),
    ]
) | st.text(max_size=5)


def parse_words(folder, case):
    """Parse a command's words, as `main` does before anything is read."""
    name, words = case
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        allowed(lambda: parse(COMMANDS[name], words, prog=f"jaxcontam {name}"))
    assert contents(folder) == {}
