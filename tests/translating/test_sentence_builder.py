"""Rules in beam search and in sampling: their outputs are exactly those that are allowed."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.corpus.tokenizers.normalization import Normalizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL, WhitespaceTokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.search.rules.rule import SampledCandidates
from nmt_cli.search.sentences import Sampling, samples_of
from nmt_cli.translating.encoding.copies import Part
from nmt_cli.translating.encoding.output_limits import OutputLimits
from nmt_cli.translating.encoding.sentence_builder import SentenceBuilder
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import LineError, Request
from tests.fake_models import EOS, tiny_recipe
from tests.table_search import log_probability, random_table, search, settings

WORDS = ["a", "b", "c", "d"]
TOKENIZER = WhitespaceTokenizer([*CONTROL, *WORDS], Normalizer(tiny_recipe().data), None)
TOKENS = [0, 3, 4, 5, 6]
LONGEST = 4
EVERYTHING = [tokens for length in range(LONGEST + 1) for tokens in product(TOKENS, repeat=length)]


def error_of(builder, request):
    """Return why what a line asks for is impossible; None if it is possible."""
    try:
        builder.wanted(request)
    except LineError as error:
        return str(error)
    return None


def sentence_builder(constraints, extra_length=2, longest=None, *, is_parser=False):
    limits = OutputLimits(extra_length, longest, n_best=1, beam_size=5, longest_prefix=20)
    return SentenceBuilder(TOKENIZER, limits, constraints, end=[EOS], is_parser=is_parser)


def rules_of(builder):
    return builder.rules(EOS)


def choice_of(builder, beam_size):
    return builder.choice(settings(beam_size))


def ids(text):
    return tuple(TOKENIZER.encode(text, "target"))


def occurs(text, tokens):
    phrase = ids(text)
    return any(tokens[i : i + len(phrase)] == phrase for i in range(len(tokens)))


def is_allowed(tokens, constraints, longest=LONGEST):
    """Return what the constraints mean, by the words of their documentation."""
    n = constraints.no_repeat_ngram
    ngrams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)] if n else []
    longest = longest if constraints.max_length is None else constraints.max_length
    return (
        constraints.min_length <= len(tokens) <= longest
        and tokens[: len(ids(constraints.prefix))] == ids(constraints.prefix)
        and len(set(ngrams)) == len(ngrams)
        and all(occurs(phrase, tokens) for phrase in constraints.required)
        and not any(occurs(phrase, tokens) for phrase in constraints.banned)
    )


CASES = [
    Constraints(),
    Constraints(min_length=3),
    Constraints(min_length=4, max_length=4),
    Constraints(max_length=1),
    Constraints(no_repeat_ngram=1),
    Constraints(no_repeat_ngram=2),
    Constraints(no_repeat_ngram=3),
    Constraints(prefix="b"),
    Constraints(prefix="a a d"),
    Constraints(prefix="a b c d"),
    Constraints(banned=["a"]),
    Constraints(banned=["a b", "b a", "c c c", "d"]),
    Constraints(banned=["a b c", "b c"]),
    Constraints(required=["c"]),
    Constraints(required=["a b c d"]),
    Constraints(required=["a b", "b c"]),
    Constraints(required=["a b", "b a", "d"]),
    Constraints(required=["c c", "c", "c c c"]),
    Constraints(required=["a", "b", "c", "d"]),
    Constraints(prefix="a", required=["a b c", "c"]),
    Constraints(prefix="b a", required=["a b"], banned=["a c"]),
    Constraints(1, 3, 1, "d", ["a"], ["d a"]),
    Constraints(3, None, 2, "a b", ["c"], ["c a", "d"]),
    Constraints(2, None, None, "", ["a a"], ["a a a", "b", "c a"]),
    Constraints(4, 4, 1, "", ["a b", "c"], ["b c", "d"]),
]


@pytest.mark.parametrize("constraints", CASES, ids=str)
def test_the_outputs_of_a_wide_beam_are_all_that_are_allowed(constraints):
    builder = sentence_builder(constraints, longest=constraints.max_length)
    wanted = builder.wanted(Request("x"))
    (sentence,) = builder.sentences([Part([3, 4], "")], (), wanted)  # 2 pieces and 2 more
    table = random_table(7)
    beam_size = len(EVERYTHING)
    sentence = sentence._replace(n_best=None)
    (found,) = search(
        table,
        [sentence],
        settings(beam_size, n_best=beam_size),
        rules=rules_of(builder),
        choice=choice_of(builder, beam_size),
    )
    expected = {tokens for tokens in EVERYTHING if is_allowed(tokens, constraints)}
    assert expected
    assert {hypothesis.tokens for hypothesis in found} == expected
    for hypothesis in found[:5]:
        total = log_probability(table, tuple(sentence.tokens), hypothesis.tokens)
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize("constraints", [c for c in CASES[1:] if not c.required], ids=str)
def test_samples_are_outputs_that_are_allowed(constraints):
    def flat(source, prefix):
        return torch.zeros(7)

    builder = sentence_builder(constraints, longest=constraints.max_length)
    (sentence,) = builder.sentences([Part([3, 4], "")], (), builder.wanted(Request("x")))
    sampling = Sampling(seed=3)
    samples = samples_of([sentence], sampling, 1, 400)
    choice = SampledCandidates(sampling)
    found = search(flat, samples, settings(1), 400, rules_of(builder), choice)
    drawn = {hypothesis.tokens for hypotheses in found for hypothesis in hypotheses}
    expected = {tokens for tokens in EVERYTHING if is_allowed(tokens, constraints)}
    assert drawn <= expected
    if len(expected) <= 12:
        assert drawn == expected


def test_sentences_with_and_without_wishes_share_a_search():
    """Slots of different lengths and constraints, in beams too narrow to see all."""
    constraints = Constraints(no_repeat_ngram=2, banned=["c c"])
    builder = sentence_builder(constraints, extra_length=4)
    requests = [
        Request("x"),
        Request("x", prefix="c a"),
        Request("x", required=["a b", ["d", "a"]]),
        Request("x", banned=["a", ["<unk>"], "b c"]),
        Request("x", prefix="d", required=["d c b a"], banned=["b b"]),
        Request("x", prefix="", required=["c"]),
        Request("x", no_repeat_ngram=1),
        Request("x", prefix="d d", no_repeat_ngram=3),
    ] * 3
    sentences = [
        builder.sentences([Part([3] * (n % 5), "")], (), builder.wanted(request))[0]
        for n, request in enumerate(requests)
    ]
    table, rules = random_table(7), rules_of(builder)
    for beam_size in (1, 3):
        choice = choice_of(builder, beam_size)
        alone = [
            search(table, [each], settings(beam_size), 1, rules, choice)[0] for each in sentences
        ]
        assert search(table, sentences, settings(beam_size), 5, rules, choice) == alone
        for request, (best, *_) in zip(requests, alone, strict=True):
            prefix = ids(request.prefix or "")
            assert best.tokens[: len(prefix)] == prefix
            for phrase in request.required:
                assert occurs(" ".join(phrase) if isinstance(phrase, list) else phrase, best.tokens)
            for phrase in [each for each in request.banned if isinstance(each, str)] + ["c c"]:
                assert not occurs(phrase, best.tokens)
            assert 0 not in best.tokens or ["<unk>"] not in request.banned
            own = constraints._replace(no_repeat_ngram=request.no_repeat_ngram or 2, banned=())
            assert is_allowed(best.tokens, own, longest=20)


def test_wishes_of_a_line_join_those_of_all_lines_but_its_prefix_is_its_own():
    builder = sentence_builder(Constraints(prefix="a b", required=["c"], banned=["d"]))
    plain = builder.wanted(Request("x", line=7))
    assert (plain.request.line, plain.prefix[0].ids, plain.shortest) == (7, (3, 4), 3)
    own = builder.wanted(Request("x", prefix="c", required=["a a"], banned=["b b"]))
    assert own.prefix[0].ids == (5,)
    assert own.required_phrases is not None
    assert [[each.ids for each in forms] for forms in own.required_phrases.constraints] == [
        [(5,)],
        [(3, 3)],
    ]
    assert own.banned_phrases is not None
    assert own.banned_phrases.phrases == ((6,), (4, 4))
    assert own.shortest == 3  # c a a
    assert builder.wanted(Request("x", prefix="")).prefix == ()
    assert builder.wanted(Request("x", prefix="a")).banned_phrases is plain.banned_phrases


def test_longest_outputs_make_room_for_what_must_be_written():
    builder = sentence_builder(Constraints(min_length=5), extra_length=1, longest=6)
    assert (
        builder.sentences([Part([3], "")], (), builder.wanted(Request("x")))[0].longest_output == 5
    )
    (first, second) = builder.sentences(
        [Part([3, 4], ""), Part([3], "")], (), builder.wanted(Request("x", prefix="a b a b a b"))
    )
    assert first.longest_output == 6
    assert first.rule_data.keys() == {"forced_prefix"}
    assert not second.rule_data  # the prefix is that of the first part


CONTRADICTIONS = [
    (Request("x", prefix="a b d"), 'the prefix "a b d" contains the banned phrase "b d"'),
    (Request("x", required=["c b d"]), 'the required phrase "c b d" contains the banned'),
    (Request("x", required=["c"], banned=["c"]), 'the required phrase "c" contains the banned'),
    (Request("x", prefix="a b a b"), 'the prefix "a b a b" breaks the rule no_repeat_ngram 2'),
    (Request("x", required=["c c c"]), 'the required phrase "c c c" breaks the rule no_repeat'),
    (
        Request("x", prefix="c a", required=["c c a d"]),
        "the prefix and the required phrases need 6 pieces, but an output has at most 5",
    ),
    (Request("x", banned=["a x"]), 'the vocabulary lacks a piece of the phrase "a x"'),
    (Request("x", required=[["a", "</s>"]]), 'the vocabulary has no piece "</s>"'),
    (Request("x", required=["a " * 501]), "at most 50 phrases of 500 pieces together can"),
    (Request("x", required="ab"), 'a list of phrases is needed in place of "ab"'),
    (Request("x", banned=[" "]), 'the phrase " " has no pieces'),
    (Request("x", prefix="\ud800"), "character 1 is U+D800, half of a surrogate pair in the phr"),
    (Request("x", prefix=['a\n"']), r'the vocabulary has no piece "a\n\""'),
    (
        Request("x", required=[f"{a} {b}" for a in "acd" for b in "abcd"] * 5),
        "at most 50 phrases of 500 pieces together can be required, but there are 60 of 120",
    ),
]


@pytest.mark.parametrize(("asked", "reason"), CONTRADICTIONS)
def test_contradictions_are_an_error_of_the_line(asked, reason):
    rules = Constraints(no_repeat_ngram=2, banned=["b d"])
    assert (error_of(sentence_builder(rules, longest=5), asked) or "").startswith(reason)


@pytest.mark.parametrize(("asked", "reason"), CONTRADICTIONS)
def test_contradictions_of_options_are_refused(asked, reason):
    rules = Constraints(
        no_repeat_ngram=2,
        prefix=asked.prefix or "",
        required=asked.required,
        banned=["b d", *asked.banned],
    )
    with pytest.raises(UserError) as caught:
        sentence_builder(rules, longest=5)
    assert str(caught.value).startswith(reason)
    assert str(caught.value).endswith("; change one of these options.")


def test_a_prefix_is_no_longer_than_a_line_of_the_model():
    builder = sentence_builder(Constraints())
    assert error_of(builder, Request("x", prefix="a " * 20)) is None
    error = error_of(builder, Request("x", prefix="a " * 21))
    assert error == "the prefix has 21 pieces, but only 20 are possible"


def test_numbers_of_numpy_are_in_range():
    lengths: Any = {"min_length": np.int64(1), "max_length": np.int64(4)}
    Constraints(**lengths).refuse_wrong()


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (Constraints(min_length=-1), "--min-length must be at least 0, but is -1"),
        (Constraints(max_length=0), "--max-length must be at least 1, but is 0"),
        (
            Constraints(min_length=5, max_length=4),
            "--max-length 4 is less than --min-length 5; give a larger one",
        ),
        (Constraints(no_repeat_ngram=0), "--no-repeat-ngram must be at least 1, but is 0"),
    ],
)
def test_numbers_out_of_range_are_refused(constraints, message):
    with pytest.raises(UserError, match=message):
        constraints.refuse_wrong()


def test_a_model_that_parses_has_only_a_longest_output():
    for constraints in (Constraints(min_length=1), Constraints(banned=["a"])):
        with pytest.raises(UserError, match="this model parses; the only rule possible"):
            sentence_builder(constraints, is_parser=True)
    parser = sentence_builder(Constraints(max_length=9), is_parser=True)
    assert error_of(parser, Request("x", banned=["a"])) is not None
    assert error_of(parser, Request("x", prefix="")) is None
    with pytest.raises(UserError, match="--min-length asks for 9 pieces, but an output has at mo"):
        sentence_builder(Constraints(min_length=9), longest=8)


@pytest.mark.parametrize("n", [1, 2])
def test_a_line_has_its_own_rule_about_repeated_pieces(n):
    builder = sentence_builder(Constraints())
    plain, asked = builder.wanted(Request("x")), builder.wanted(Request("x", no_repeat_ngram=n))
    sentences = [builder.sentences([Part([3, 4], "")], (), each)[0] for each in (plain, asked)]
    table, beam_size = random_table(7), len(EVERYTHING)
    sentences = [each._replace(n_best=beam_size) for each in sentences]
    found = search(table, sentences, settings(beam_size, n_best=beam_size), 2, rules_of(builder))
    assert [{each.tokens for each in hypotheses} for hypotheses in found] == [
        {tokens for tokens in EVERYTHING if is_allowed(tokens, Constraints())},
        {tokens for tokens in EVERYTHING if is_allowed(tokens, Constraints(no_repeat_ngram=n))},
    ]
    assert error_of(builder, Request("x", prefix="a a", no_repeat_ngram=1)) == (
        'the prefix "a a" breaks the rule no_repeat_ngram 1'
    )
    error = error_of(builder, Request("x", no_repeat_ngram=0))
    assert error == "no_repeat_ngram must be at least 1, but is 0"
    longest = builder.wanted(Request("x", no_repeat_ngram=10**400))  # no float can be that large
    (sentence,) = builder.sentences([Part([3, 4], "")], (), longest)
    found = search(
        table, [sentence._replace(n_best=beam_size)], settings(beam_size), 2, rules_of(builder)
    )
    assert {each.tokens for each in found[0]} == {*EVERYTHING}
    for value in (10**400, -(10**400), math.inf, math.nan):
        error = error_of(builder, Request("x", length_penalty=value))
        assert error == f"length_penalty must be at least 0 and at most 10, but is {value}"
    parser = sentence_builder(Constraints(), is_parser=True)
    assert error_of(parser, Request("x", no_repeat_ngram=n)) is not None
