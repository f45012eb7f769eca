"""Other wordings of a sentence: words exchanged by a table, the last clause in front.

The rules are blunt and always the same, so that a study needs no model to paraphrase
with. Names, code and numbers stay as they are, as a careful paraphrase keeps them.
"""

import re

from jaxcontam.data.ngrams import words_of

N_WORDINGS = 4
"""The sentence itself and three others."""

# Each word with what stands for it in wordings 1, 2 and 3; `_` is a space.
_TABLE = """
return give_back hand_over yield
returns gives_back hands_over yields
returned given_back handed_over yielded
set put assign fix
sets puts assigns fixes
get fetch obtain look_up
gets fetches obtains looks_up
create make build form
creates makes builds forms
make build form create
construct build make form
parse analyse work_through take_apart
read take_in load go_through
write put_down store save
send pass_on deliver transmit
delete erase drop remove
remove drop erase take_away
open start_using access bring_up
convert turn change transform
add append attach include
called invoked run triggered
call invoke run trigger
raised thrown signalled issued
raise throw signal issue
run carry_out execute perform
print show display put_out
display show present print
format lay_out arrange shape
encode put_into_code code translate
decode read_out uncode translate_back
handle deal_with treat take_care_of
configure adjust tune set_up
check test verify examine
find locate discover search_for
start begin launch set_off
stop end halt finish
close shut end finish
copy duplicate reproduce clone
move shift carry transfer
change alter modify adjust
query ask_about inquire look_into
register enter sign_up record
generate produce make create
produce generate make create
wait pause hold stay
retrieve fetch get recover
determine find_out work_out decide
extract pull_out take_out draw_out
compute work_out calculate reckon
store keep save hold
test check try examine
use employ apply work_with
used employed applied needed
using employing applying by_way_of
list listing enumeration series
string text piece_of_text characters
number count amount figure
value quantity content setting
name label title designation
function routine procedure callable
method routine procedure operation
object thing entity instance
class kind type category
file document record data_file
path location place route
directory folder catalogue file_folder
message note notice communication
data information content material
text wording writing prose
type kind sort class
current present actual active
specified stated named chosen
given supplied provided stated
new fresh newly_made further
default standard usual preset
true right correct affirmative
all every_one_of each_of the_whole_of
any some whichever at_least_one
first initial leading earliest
last final closing latest
single sole lone one
same identical equal very
available usable at_hand ready
associated connected linked related
containing holding with including
only just merely solely
until up_to till before
whether if_perhaps on_condition_that if
when whenever once as_soon_as
if in_case provided_that supposing
between amid among in_the_middle_of
into to inside towards
for on_behalf_of meant_for in_aid_of
from out_of off taken_from
with having along_with together_with
about concerning regarding on
which that such_as_to and_it
is happens_to_be counts_as stands_as
are happen_to_be count_as stand_as
this the_present that the_one
the that this the_said
a one some a_certain
an one some a_certain
and as_well_as plus along_with
or or_else otherwise alternatively
not never in_no_way by_no_means
event occurrence happening incident
command instruction order directive
item entry element piece
element item part piece
line row text_line single_line
index position place number
server host service machine
window pane frame screen
widget control component element
option choice setting alternative
error fault mistake failure
exception error fault failure
interface front contract surface
base root foundation ground
abstract general theoretical unspecific
"""

_SUBSTITUTES = {
    first: tuple(word.replace("_", " ") for word in others)
    for first, *others in map(str.split, _TABLE.strip().splitlines())
}
# A word of prose: no part of a name, a call, an option or something in quotes.
_WORD = re.compile(r"(?<![\w.'\"<$*/=-])[A-Za-z]+(?![\w('\"*/=>-]|\.\w)")
_CLAUSE = re.compile(
    r" (?=(?:if|when|for|from|with|without|in|into|by|using|as|on|at|to|until) )"
)
_FEWEST_WORDS = 2
# Wordings in which the last clause comes first.
_FRONTED = (1, 3)
_PAIRS = ("()", "[]", "{}", "<>")


def reworded(sentence: str, wording: int) -> str:
    """The sentence in one of `N_WORDINGS` wordings.

    Args:
        sentence: Without its end mark.
        wording: 0 is the sentence as it is.

    Raises:
        ValueError: If there is no such wording.
    """
    if not 0 <= wording < N_WORDINGS:
        raise ValueError(f"wording must be in [0, {N_WORDINGS}), got {wording}")
    if wording == 0:
        return sentence
    turned = _clause_first(sentence) if wording in _FRONTED else sentence
    return _WORD.sub(lambda found: _substitute(found[0], wording), turned)


def wordings(sentence: str) -> tuple[str, ...]:
    """All wordings, the sentence first."""
    return tuple(reworded(sentence, wording) for wording in range(N_WORDINGS))


def longest_run(one: str, other: str) -> int:
    """Words of the longest stretch that stands in both texts, whatever its case."""
    a, b = words_of(one), words_of(other)
    longest = 0
    # Entry j: length of the common stretch that ends with this word of a and b[j - 1].
    ends = [0] * (len(b) + 1)
    for word in a:
        ends = [0] + [
            ends[j] + 1 if word == other_word else 0 for j, other_word in enumerate(b)
        ]
        longest = max(longest, *ends)
    return longest


def _substitute(word: str, wording: int) -> str:
    found = _SUBSTITUTES.get(word.lower())
    # All capitals are a name.
    if found is None or (len(word) > 1 and word.isupper()):
        return word
    other = found[wording - 1]
    return other[0].upper() + other[1:] if word[0].isupper() else other


def _clause_first(sentence: str) -> str:
    """The last clause that can stand alone, a comma, and what was before it."""
    for found in reversed(list(_CLAUSE.finditer(sentence))):
        head, clause = sentence[: found.start()], sentence[found.end() :]
        shortest = min(len(head.split()), len(clause.split()))
        if shortest >= _FEWEST_WORDS and _is_whole(head) and _is_whole(clause):
            return f"{clause[0].upper()}{clause[1:]}, {_lowered(head)}"
    return sentence


def _is_whole(text: str) -> bool:
    """Whether no bracket and no quote opens without its end."""
    return all(text.count(a) == text.count(b) for a, b in _PAIRS) and not any(
        text.count(mark) % 2 for mark in "'\"`"
    )


def _lowered(text: str) -> str:
    """The text as it stands inside a sentence; names keep their capitals."""
    first = text.split()[0]
    is_word = first.isalpha() and (first[1:].islower() or first == "A")
    return text[0].lower() + text[1:] if is_word else text
