"""The table of other toolkits' names: a page shows it, and what it names exists here."""

import re
import shlex
from itertools import product
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.messages.other_toolkits import names_of_keys, renames
from nmt_cli.messages.proposals import plain
from nmt_cli.recipe.keys import is_value_of, keys_meant, recipe_keys
from nmt_cli.recipe.reading.reader import parse_value

PAGE = Path(__file__).parents[2] / "docs/how-to/moving-from-other-toolkits.md"
HEADING = "| here | fairseq | OpenNMT-py | Sockeye | Marian | CTranslate2 | |"


def as_shown(row):
    here = ", ".join(f"`{place}`" for place in row.places()) or "–"
    cells = [
        here,
        *(", ".join(f"`{name}`" for name in cell.split()) for cell in row.of_toolkits()),
        row.note,
    ]
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def test_the_page_shows_the_table():
    expected = [as_shown(row) for row in renames() if any(row.of_toolkits())]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(HEADING) + 2
    assert lines[start : start + len(expected)] == expected
    assert not any(line.startswith("|") for line in lines[start + len(expected) :])


def test_every_key_option_argument_and_command_of_the_table_exists():
    keys, commands = set(recipe_keys()), cli.main.commands
    for place in (place for row in renames() for place in row.places()):
        command, _, thing = place.partition(" ")
        if "." in place:
            assert place in keys
        elif thing.startswith("--"):
            assert any(thing in param.opts for param in commands[command].params), place
        elif thing:
            names = [param.human_readable_name.rstrip(".") for param in commands[command].params]
            assert thing in names, place
        else:
            assert command in commands


def test_every_example_and_every_value_is_one_of_its_key_or_option():
    for row in renames():
        proposed = [*([row.example] if row.example else []), *row.values.values()]
        for place, value in product(row.places(), proposed):
            command, _, option = place.partition(" ")
            if "." in place:
                assert is_value_of(place, parse_value(value).value), (row, value)
            elif option.startswith("--"):
                params = cli.main.commands[command].params
                param = next(param for param in params if option in param.opts)
                assert isinstance(param, click.Option)
                param.type.convert(value, param, None)


def test_the_keys_of_the_table_are_proposed_in_a_recipe():
    own = {key.rpartition(".")[2] for key in recipe_keys()}
    for name, key in names_of_keys().items():
        if name not in own:
            assert keys_meant(name) == [key]


@pytest.mark.parametrize("row", renames(), ids=lambda row: row.here or row.note)
def test_every_name_of_the_table_is_answered(row):
    """On the command that has it the place is named; what does not exist is explained."""
    for place in row.places() or [""]:
        command, _, thing = place.partition(" ")
        if place and not thing and "." not in place:
            continue  # commands: below
        command = command if thing else "train"
        params = cli.main.commands[command].params
        arguments = ["x" for param in params if isinstance(param, click.Argument)]
        own = {plain(option) for param in params for option in param.opts}
        for name in row.names:
            if name in own or f"_{name}".startswith("_marian") or "onmt_" in name:
                continue
            option = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            result = CliRunner().invoke(cli.main, [command, *arguments, option])
            assert result.exit_code == 2
            assert "Did you mean" in result.stderr or "It is" in result.stderr or (
                "argument without a name" in result.stderr
                or "Here it is" in result.stderr
                or (row.note and row.note in result.stderr)
            ), (command, option, result.stderr)  # fmt: skip


# Options of recipes that these toolkits publish, as they stand there.
IWSLT = """
    --arch transformer_iwslt_de_en --share-decoder-input-output-embed
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000
    --dropout 0.3 --weight-decay 0.0001
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096
    --eval-bleu --eval-bleu-args '{"beam": 5, "max_len_a": 1.2, "max_len_b": 10}'
    --eval-bleu-detok moses --eval-bleu-remove-bpe --eval-bleu-print-samples
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric
    --no-epoch-checkpoints --left-pad-source False --max-update 50000 --patience 10
    --keep-last-epochs 10 --source-lang de --target-lang en --task translation
"""
SCALING = """
    --arch transformer_vaswani_wmt_en_de_big --share-all-embeddings
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0
    --lr-scheduler inverse_sqrt --warmup-init-lr 1e-07 --warmup-updates 4000 --lr 0.0005
    --min-lr 1e-09 --stop-min-lr 1e-09 --weight-decay 0.0
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 3584
    --update-freq 16 --fp16 --ddp-backend no_c10d --fp16-init-scale 128 --no-progress-bar
    --log-format json --log-interval 50 --save-interval-updates 1000
    --keep-interval-updates 20 --distributed-port 9218 --relu-dropout 0.1
    --attention-dropout 0.1 --encoder-normalize-before --decoder-normalize-before
    --encoder-learned-pos --activation-fn gelu --upsample-primary 16 --max-epoch 30
    --reset-optimizer --max-source-positions 1024 --max-target-positions 1024 --sentence-avg
    --skip-invalid-size-inputs-valid-test --load-alignments --alignment-layer 1
    --alignment-heads 1 --num-workers 2 --train-subset train
    --distributed-world-size 8 --restore-file x --finetune-from-model m
    --layernorm-embedding --no-scale-embedding --disable-validation --no-save
"""
OPENNMT = """
    -layers 6 -rnn_size 512 -word_vec_size 512 -transformer_ff 2048 -heads 8
    -encoder_type transformer -decoder_type transformer -position_encoding
    -train_steps 200000 -max_generator_batches 2 -dropout 0.1 -batch_size 4096
    -batch_type tokens -normalization tokens -accum_count 2 -optim adam -adam_beta2 0.998
    -decay_method noam -warmup_steps 8000 -learning_rate 2 -max_grad_norm 0
    -param_init 0 -param_init_glorot -label_smoothing 0.1 -valid_steps 10000
    -save_checkpoint_steps 10000 -share_decoder_embeddings -share_embeddings
    -world_size 4 -gpu_ranks 0 -valid_batch_size 16 -bucket_size 262144
    -keep_checkpoint 10 -early_stopping 4 -report_every 100 -seed 1234 -queue_size 200
    -early_stopping_criteria ppl -src_vocab_size 32000 -share_vocab -attention_dropout 0.1
"""
SOCKEYE = """
    --prepared-data p --validation-source v --validation-target v --shared-vocab
    --weight-tying-type src_trg_softmax --num-words 32000:32000 --word-min-count 1:1
    --encoder transformer --decoder transformer --num-layers 6:6
    --transformer-model-size 512 --transformer-attention-heads 8 --num-embed 512
    --transformer-feed-forward-num-hidden 2048 --transformer-preprocess n
    --transformer-postprocess dr --transformer-dropout-attention 0.1
    --transformer-dropout-act 0.1 --transformer-dropout-prepost 0.1 --embed-dropout 0.1
    --transformer-positional-embedding-type fixed --label-smoothing 0.1 --max-seq-len 95
    --optimizer adam --optimizer-betas 0.9:0.98 --gradient-clipping-type none
    --gradient-clipping-threshold -1 --batch-type max-word --batch-size 5000
    --update-interval 10 --checkpoint-interval 500 --decode-and-evaluate 500
    --max-num-checkpoint-not-improved 60 --optimized-metric perplexity
    --learning-rate-scheduler-type inv-sqrt-decay --learning-rate-warmup 4000
    --initial-learning-rate 0.06325 --keep-last-params 60 --seed 1 --amp --dist
    --weight-init xavier --weight-init-scale 3.0 --bucket-width 8 --max-num-epochs 30
"""
MARIAN = """
    --model m --type transformer --train-sets a b --max-length 100 --vocabs v v
    --mini-batch-fit --workspace 10000 --maxi-batch 1000 --early-stopping 10
    --valid-freq 5000 --save-freq 5000 --disp-freq 500 --valid-sets a b
    --valid-metrics ce-mean-words --valid-mini-batch 64 --beam-size 6 --normalize 0.6
    --log x --valid-log x --enc-depth 6 --dec-depth 6 --transformer-heads 8
    --transformer-postprocess dan --transformer-dropout 0.1 --label-smoothing 0.1
    --learn-rate 0.0003 --lr-warmup 16000 --lr-decay-inv-sqrt 16000 --optimizer adam
    --optimizer-params 0.9 --clip-norm 5 --tied-embeddings-all --devices 0 --sync-sgd
    --seed 1111 --exponential-smoothing --keep-best --dim-vocabs 32000
    --guided-alignment x --cost-type ce-mean-words --optimizer-delay 2
    --valid-translation-output x --task transformer-base --dim-emb 512
    --transformer-postprocess-emb d --shuffle-in-ram --tempdir x
"""
PREPROCESS = """
    --source-lang en --target-lang de --trainpref a --validpref a --testpref a
    --destdir x --joined-dictionary --nwordssrc 32768 --nwordstgt 32768 --thresholdsrc 0
    --thresholdtgt 0 --workers 20 --alignfile x --dataset-impl mmap --padding-factor 8
    --srcdict x --user-dir x
"""
GENERATE = """
    --path m --beam 5 --lenpen 0.6 --remove-bpe --max-len-a 1.2 --max-len-b 10
    --gen-subset test --source-lang en --nbest 2 --batch-size 128 --scoring sacrebleu
    --tokenizer moses --bpe fastbpe --bpe-codes x --unkpen 0 --print-alignment
    --sampling-topk 10 --diverse-beam-groups 2 --lm-path x --score-reference
    --replace-unk --fp16 --cpu --num-shards 2 --prefix-size 1 --sacrebleu --unnormalized
    --buffer-size 1024 --results-path x --no-progress-bar --max-tokens 4096
    -model m -src a -output b -beam_size 5 -batch_size 64 -gpu 0 -n_best 5 -alpha 0.6
    -fp32 -int8 -min_length 1 -random_sampling_topk 5 -block_ngram_repeat 3 -shard_size 9
    -coverage_penalty none -report_align --models m --mini-batch 64 --maxi-batch 100
    --maxi-batch-sort src --cpu-threads 4 --normalize 0.6 --word-penalty 0.1 --allow-unk
    --max-length-factor 2 --max-length-crop --quiet-translation --workspace 4000
    --alignment hard --beam-size 6 --max-input-length 95 --nbest-size 5 --chunk-size 9
"""
SETTINGS = re.compile(r"--set ('[^']*'|\S+?)(?=[.,]? \(|\.$|, | or )")


def answers(command, options):
    """Return what each option in ``options`` is answered, with those behind it still there."""
    words = shlex.split(options)
    starts = [n for n, word in enumerate(words) if word[0] == "-" and not word[1].isdigit()]
    own = {name for param in cli.main.commands[command.split()[0]].params for name in param.opts}
    for start in starts:
        if words[start] not in own:
            line = [*command.split(), *words[start:]]
            result = CliRunner().invoke(cli.main, line)
            assert result.exit_code == 2
            yield words[start], result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            IWSLT,
            "tied_embeddings: decoder|optimizer: adamw|adam_betas: [0.9, 0.98]|clip_norm: null|"
            "peak_learning_rate: 0.0005|schedule: inverse_sqrt|warmup_steps: 4000|dropout: 0.3|"
            "weight_decay: 0.0001|label_smoothing: 0.1|bleu: beam|best_by: bleu|max_steps: 50000|"
            "patience: 10|keep_for_average: 10|source_language: de|target_language: en",
        ),
        (
            SCALING,
            "tied_embeddings: all|optimizer: adam|clip_norm: null|warmup_start: 1.0e-07|norm: pre|"
            "positions: learned|activation: gelu|relu_dropout: 0.1|attention_dropout: 0.1|"
            "max_epochs: 30|keep_for_average: 20|label_smoothing: 0.1|layer: 2|max_length: 1024|"
            "embedding_norm: true|scale_embeddings: false",
        ),
        (
            OPENNMT,
            "num_layers: 6|d_model: 512|d_ff: 2048|num_heads: 8|positions: sinusoidal|"
            "max_steps: 200000|optimizer: adam|schedule: noam|clip_norm: null|warmup_steps: 8000|"
            "learning_rate_factor: 2.0|peak_learning_rate: null|"
            "tied_embeddings: all|keep_for_average: 10|best_by: loss|vocabulary_size: 32000",
        ),
        (
            SOCKEYE,
            "tied_embeddings: all|norm: pre|positions: sinusoidal|adam_betas: [0.9, 0.98]|"
            "clip_norm: null|schedule: inverse_sqrt|best_by: loss|bleu: beam|patience: 60|"
            "num_layers: 6|vocabulary_size: 32000",
        ),
        (
            MARIAN,
            "norm: post|clip_norm: 5.0|tied_embeddings: all|peak_learning_rate: 0.0003|"
            "schedule: inverse_sqrt|warmup_steps: 16000|beam_size: 6|length_penalty: 0.6|"
            "embedding_norm: false",
        ),
    ],
    ids=["iwslt14", "wmt16", "opennmt", "sockeye", "marian"],
)
def test_a_recipe_with_all_that_is_proposed_for_a_published_one_is_right(options, expected):
    """Each option is answered, and the keys that are proposed make a valid recipe together."""
    settings = []
    for option, answer in answers("train base", options):
        assert answer.removeprefix(f"Error: No such option {option}") != ".", answer
        for setting in SETTINGS.findall(answer):
            (written,) = shlex.split(setting)
            # Left out: what the user fills in, and files in place of other keys.
            if not re.search(r"=VALUE$|^data\.train=|^tokenizer\.model=", written):
                settings += ["--set", written]
    result = CliRunner().invoke(cli.main, ["recipes", "show", "base", *settings])
    assert result.exit_code == 0, result.output
    lines = {line.strip(" -") for line in result.stdout.splitlines()}
    assert set(expected.split("|")) <= lines, set(expected.split("|")) - lines


@pytest.mark.parametrize(
    ("command", "options"), [("preprocess base", PREPROCESS), ("translate m", GENERATE)]
)
def test_options_of_published_commands_are_answered(command, options):
    params = {name: p for p in cli.main.commands[command.split()[0]].params for name in p.opts}
    for option, answer in answers(command, options):
        assert answer.removeprefix(f"Error: No such option {option}") != ".", answer
        for name, value in re.findall(r"Did you mean (--[\w-]+) ([^ ?(]+)", answer):
            params[name].type.convert(value, params[name], None)


def test_the_commands_of_other_toolkits_are_answered():
    for row in renames():
        if row.here not in cli.main.commands:
            continue
        for name in " ".join(row.of_toolkits()[:4]).split():
            result = CliRunner().invoke(cli.main, [name])
            assert f"Error: No such command {name}. Did you mean {row.here}?\n" in result.stderr
