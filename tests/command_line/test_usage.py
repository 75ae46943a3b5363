"""Wrong use of the command line gets the option, key, argument or command that was meant."""

import shlex

import pytest
from click.testing import CliRunner

from nmt_cli import cli


def refusal(command_line):
    result = CliRunner().invoke(cli.main, shlex.split(command_line), prog_name="nmt-cli")
    assert result.exit_code == 2
    assert result.stdout == ""
    message, *usage = result.stderr.splitlines()
    assert message.startswith("Error: ")
    assert len(usage) >= 2
    assert usage[0].startswith("Usage: nmt-cli ")
    assert usage[-1].startswith("Try 'nmt-cli ")
    return message.removeprefix("Error: ")


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--inter_threads 4", "--workers 4 ("),
        ("--intra_threads 4", "--threads 4"),
        ("--num_hypotheses 4", "--n-best 4 ("),
        ("--max_batch_size 4", "--max-tokens-per-device 4096 ("),
        ("--compute_type int8", "--precision bf16 (chosen for you)"),
        ("--sampling_topk 4", "--sample-top-k 4"),
        ("--quiet-translation", "--quiet?"),
    ],
)
def test_options_of_other_programs_that_translate(option, meant):
    assert f"Did you mean {meant}" in refusal(f"translate runs/base {option}")


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--source en", "--source-language en?"),
        ("--source notes.txt", "--input notes.txt?"),
        ("--source de", "--input de?"),  # there is such a file
        ("--target zh-Hans", "--target-language zh-Hans?"),
        ("--target notes.de", "--output notes.de?"),
        ("--tgt pt_BR", "--target-language pt_BR?"),
        ("--lang tr", "--source-language tr or --target-language tr?"),
    ],
)
def test_languages_and_files_of_a_translation(option, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "de").touch()
    assert refusal(f"translate runs/base {option}").endswith(f". Did you mean {meant}")


@pytest.mark.parametrize("text", ["'Hello there.'", "你好", "notes.txt"])
def test_a_text_comes_from_standard_input_or_a_file(text):
    message = refusal(f"translate runs/base --text {text}")
    assert "echo TEXT | nmt-cli translate MODEL; or from the file that --input names" in message


def test_the_longest_output_of_fairseq_is_a_key():
    message = refusal("translate runs/base --max-len-a 1.2")
    assert "nmt-cli train RECIPE --set decoding.max_extra_length=50 (by how many pieces" in message


IS_A_KEY = "It is a key of the recipe; write --set"


@pytest.mark.parametrize(
    ("command_line", "message"),
    [
        ("train base --max-steps 5", f"{IS_A_KEY} training.max_steps=5."),
        ("train base --max-steps=5", f"{IS_A_KEY} training.max_steps=5."),
        ("train base --max-update 100", f"{IS_A_KEY} training.max_steps=100."),
        ("train base -train_steps 100", f"{IS_A_KEY} training.max_steps=100."),
        ("train base --dropout 0.3", f"{IS_A_KEY} model.dropout=0.3."),
        ("train base --dropout 3", f"{IS_A_KEY} model.dropout=VALUE."),
        ("train base --warmup-updates 400", f"{IS_A_KEY} training.warmup_steps=400."),
        ("train base --training.seed 4", f"{IS_A_KEY} training.seed=4."),
        ("train base --sed 4", f"{IS_A_KEY} training.seed=4."),
        ("preprocess base --vocab-sise 99", f"{IS_A_KEY} tokenizer.vocabulary_size=99 "),
        ("recipes show base --seed 7", f"{IS_A_KEY} training.seed=7."),
        (
            "train base --every-steps 9",
            f"{IS_A_KEY} validation.every_steps=9 or --set checkpoints.every_steps=9.",
        ),
        (
            "train base --adam-betas '[0.8, 0.9]'",
            f"{IS_A_KEY} 'training.adam_betas=[0.8, 0.9]'.",
        ),
        (
            "train base --adam-betas '(0.8, 0.9)'",
            f"{IS_A_KEY} 'training.adam_betas=[0.8, 0.9]'.",
        ),
        ("train base --lr 5e-4", f"{IS_A_KEY} training.peak_learning_rate=5e-4 (at the end of"),
        ("train base --optimizer adam", f"{IS_A_KEY} training.optimizer=adam."),
        ("train base --optimizer adam --weight-decay 0.0", f"{IS_A_KEY} training.optimizer=adam."),
        (
            "train base --optimizer adam --weight-decay=0.0001",
            f"{IS_A_KEY} training.optimizer=adamw (fairseq's adam with weight decay is adamw).",
        ),
        (
            "train base --optimizer adam --set training.weight_decay=0.0001",
            f"{IS_A_KEY} training.optimizer=adamw (fairseq's adam with weight decay is adamw).",
        ),
        (
            "train base --weight-decay 0.0001",
            f"{IS_A_KEY} training.weight_decay=0.0001 (fairseq's adam with it is adamw here; norms",
        ),
        ("train base --clip-norm 0.0", f"{IS_A_KEY} training.clip_norm=null."),
        ("train base --clip-norm 25", f"{IS_A_KEY} training.clip_norm=25."),
        (
            "train base --share-decoder-input-output-embed --share-all-embeddings",
            f"{IS_A_KEY} model.tied_embeddings=decoder (all if the source has the same matrix).",
        ),
        ("train base --share-all-embeddings", f"{IS_A_KEY} model.tied_embeddings=all."),
        (
            "train base --weight-tying-type trg_softmax",
            f"{IS_A_KEY} model.tied_embeddings=decoder.",
        ),
        (
            "train base --weight-tying-type src_trg",
            f"{IS_A_KEY} model.tied_embeddings=VALUE, where VALUE is all, decoder or none.",
        ),
        (
            "train base --lr-scheduler polynomial_decay",
            f"{IS_A_KEY} training.schedule=VALUE, where VALUE is noam, inverse_sqrt, cosine, wsd",
        ),
        ("train base --activation-fn relu", f"{IS_A_KEY} model.activation=relu."),
        ("train base --num-layers 6:6", f"{IS_A_KEY} model.num_layers=6."),
        ("train base --num-layers 6:2", f"{IS_A_KEY} model.num_layers=VALUE."),
        ("train base --type whitespace", f"{IS_A_KEY} tokenizer.type=whitespace."),
        ("train base -learning_rate 5e-4", f"{IS_A_KEY} training.peak_learning_rate=5e-4 (at"),
        ("train base -learning_rate 2", f"{IS_A_KEY} training.learning_rate_factor=2 (of the pap"),
        ("train base --peak-learning-rate 2", f"{IS_A_KEY} training.peak_learning_rate=2."),
        ("train base -adam_beta2 0.998", f"{IS_A_KEY} training.adam_betas=VALUE (both in a list,"),
        (
            "train base --alignment-layer 3",
            f"{IS_A_KEY} training.guided_alignment.layer=4 (",
        ),
        (
            "train base --save-interval 1",
            f"{IS_A_KEY} checkpoints.every_epochs=1 (checkpoints.every_steps must be null beside",
        ),
        (  # sentences elsewhere, so the user's number would be wrong
            "train base --batch-size 64",
            f"{IS_A_KEY} training.tokens_per_step=25000 (tokens of either side in a whole step",
        ),
    ],
)
def test_an_option_that_is_a_key_becomes_a_set_of_it(command_line, message):
    assert f" {message}" in refusal(command_line)


def test_a_proposed_set_is_taken(tmp_path):
    proposed = refusal("recipes show base --max-update 1234").split("write ")[1].rstrip(".")
    arguments = ["recipes", "show", "base", *shlex.split(proposed)]
    assert "max_steps: 1234\n" in CliRunner().invoke(cli.main, arguments).stdout


@pytest.mark.parametrize(
    ("command_line", "belongs"),
    [
        ("translate m --dropout 0.1", "train: nmt-cli train RECIPE --set model.dropout=0.1."),
        ("average-checkpoints r --seed 3", "train: nmt-cli train RECIPE --set training.seed=3."),
        (
            "average-checkpoints r --max-length 9",
            "preprocess and train: nmt-cli train RECIPE --set data.max_length=9.",
        ),
    ],
)
def test_a_key_on_a_command_without_recipe_is_sent_to_the_one_that_has_it(command_line, belongs):
    assert f"give it to {belongs}" in refusal(command_line)


@pytest.mark.parametrize(
    ("command_line", "proposal"),
    [
        ("translate m --beam 5", "--beam-size 5"),
        ("translate m --beam five", "--beam-size"),
        ("translate m --beam_size 5", "--beam-size 5"),
        ("translate m -beam_size 5", "--beam-size 5"),
        ("translate m -b 5", "--beam-size 5"),
        ("translate m --set decoding.beam_size=5", "--beam-size 5"),
        ("translate m --gpu 0", "--device cuda:0"),
        ("translate m --gpus 1", "--device cuda:0"),
        ("train base --gpus 2", "--devices 2 (how many; all GPUs by default)"),
        ("train base --cpu", "--device cpu"),
        ("translate m -i 'a b.en'", "--input 'a b.en'"),
        ("translate m -o out.de", "--output out.de"),
        ("translate m --quite", "--quiet"),
        ("train base --save-dir x", "--run-dir x"),
        ("train base -o x", "--run-dir x"),
        ("preprocess base --destdir x", "--prepared x"),
        ("average-checkpoints r -n 5", "--last 5"),
        ("average-checkpoints r --overwrite", "--force"),
        ("run base --save-dir x", "--run-dir x"),
        ("compare base --use-cpu", "--device cpu"),
        ("score out.de ref.de --glossary t.tsv", "--terms t.tsv"),
    ],
)
def test_a_wrong_name_of_an_option_gets_the_right_one(command_line, proposal):
    assert refusal(command_line).endswith(f". Did you mean {proposal}?")


@pytest.mark.parametrize(
    ("command_line", "message"),
    [
        ("train base --last 5", "It is an option of average-checkpoints."),
        ("train base --nbest 5", "Here it is translate --n-best."),
        ("train --config a.yaml", "RECIPE is an argument without a name: nmt-cli train a.yaml"),
        (
            "train --config=-a.yaml",
            "RECIPE is an argument without a name: nmt-cli train ./-a.yaml",
        ),
        ("score --hyp a", "HYPOTHESES is an argument without a name: nmt-cli score a REFERENCES"),
        (
            "score --refs='my b' c --ter",
            "REFERENCES is an argument without a name: nmt-cli score c 'my b' --ter",
        ),
        (
            "score --target a b",
            "REFERENCES is an argument without a name: nmt-cli score b a",
        ),
        (
            "score r -i h --ref=-s --tokenize intl",
            "HYPOTHESES is an argument without a name: nmt-cli score h ./-s r --tokenize intl",
        ),
        (
            "score --sys h --unknown 3 --ref r",
            "HYPOTHESES is an argument without a name: nmt-cli score h REFERENCES",
        ),
        (
            "score a b --target-language de",
            "score finds the tokenizer by the references; leave the language out.",
        ),
        (
            "score a b -l en-de",
            "score finds the tokenizer by the references; leave the language out.",
        ),
        ("score a b -m chrf", "Did you mean --ter (BLEU and chrF are always printed)?"),
        ("score a b -b", "Did you mean --format json (it has all figures unrounded)?"),
        ("score a b -f json", "Did you mean --format json?"),
        (
            "score a b --paired-bs",
            "Did you mean --compare SYSTEM (each other system once; --test chooses the test)?",
        ),
        (
            f"preprocess {__file__} {__file__}",
            "A recipe names its texts; this command writes one for yours: "
            f"nmt-cli init mine {__file__} {__file__}",
        ),
        (
            "run base --force",
            "Did you mean --force-from preprocess (that stage and all after it anew)?",
        ),
        (
            "run base --from train",
            "Did you mean --force-from train (that stage and all after it anew)?",
        ),
        ("--quiet train base", "Options come after their command: nmt-cli COMMAND --quiet."),
    ],
)
def test_what_stands_elsewhere_is_sent_there(command_line, message):
    assert refusal(command_line).endswith(f". {message}")


@pytest.mark.parametrize("metric", ["chrf", "TER"])
def test_metrics_that_are_always_there_are_no_metric_to_choose(metric):
    assert refusal(f"score a b --metric {metric}").endswith(
        "bleu prints BLEU and chrF; add --ter for TER."
    )


def test_the_key_of_a_corpus_is_proposed_for_the_first_one():
    written = "data.train.0.weight=2 or --set training.guided_alignment.weight=2."
    assert f"write --set {written}" in refusal("train base --weight 2")


@pytest.mark.parametrize("command_line", ["train base -v", "train base -b 3", "score a b -m bleu"])
def test_a_single_letter_means_no_key(command_line):
    assert "--set" not in refusal(command_line)


def test_what_does_not_exist_is_explained():
    assert "--overwrite: train never replaces a run." in refusal("train base --overwrite")
    assert "--unkpen: unknown words have no penalty" in refusal("translate m --unkpen 3")
    assert "--type: always the Transformer" in refusal("train base --type transformer")
    too_long = "--skip-invalid-size-inputs-valid-test"
    assert "preprocess drops training pairs that are longer" in refusal(f"train base {too_long}")
    assert "Did you mean --too-long truncate (the limit" in refusal(f"translate m {too_long}")
    assert refusal("marian-server") == "No such command marian-server. Did you mean serve?"


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("translate m", "stats verbose name topk cache raw timeout sort width"),
        ("train base", "name profile amp-level loss power debug dry-run lora"),
        ("preprocess base", "clean merges dedup min-freq joint coverages-of"),
    ],
)
def test_nothing_is_proposed_where_nothing_is_near(command, names):
    for name in names.split():
        assert refusal(f"{command} --{name} 3") == f"No such option --{name}."


@pytest.mark.parametrize(
    ("command_line", "proposal"),
    [
        ("translate m test.en", "--input test.en"),
        ("translate m test.en out.de", "--input test.en --output out.de"),
        ("average-checkpoints r 5", "--last 5"),
        ("average-checkpoints r a b", "--checkpoints a --checkpoints b"),
        ("train base max_steps=5", "--set training.max_steps=5"),
        ("train base --set max_steps 5", "--set training.max_steps=5"),
        ("train base --set max_steps: 5", "--set training.max_steps=5"),
    ],
)
def test_a_stray_argument_gets_the_option_it_needs(command_line, proposal):
    assert f". Did you mean {proposal}?" in refusal(command_line)


@pytest.mark.parametrize("command_line", ["train base big", "translate m a b c", "doctor x"])
def test_any_other_stray_argument_is_only_named(command_line):
    strays = command_line.split()[2:] if "doctor" not in command_line else ["x"]
    assert refusal(command_line) == f"Unexpected argument {' '.join(strays)}."


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("generate", "translate"),
        ("interactive", "translate"),
        ("average", "average-checkpoints"),
        ("binarize", "preprocess"),
        ("fairseq-train", "train"),
        ("onmt_translate", "translate"),
        ("marian-decoder", "translate"),
        ("trian", "train"),
        ("trans", "translate"),
        ("evaluate", "score"),
        ("recipes shwo", "show"),
    ],
)
def test_a_wrong_name_of_a_command_gets_the_right_one(name, meant):
    last = name.split()[-1]
    assert refusal(name) == f"No such command {last}. Did you mean {meant}?"


@pytest.mark.parametrize("name", ["base", "foo", "recipes print"])
def test_no_command_is_proposed_where_none_is_near(name):
    assert refusal(name) == f"No such command {name.split()[-1]}."


def test_a_duration_without_a_unit_is_refused():
    message = "Invalid value for '--max-time': 90 needs a unit; write 90h, 90m or 90s."
    assert refusal("train base --max-time 90") == message


def test_an_empty_path_is_not_the_folder():
    for command_line in (
        "translate ''",
        "translate m --input ''",
        "lexicon '' a b",
        "train x --run-dir ''",
    ):
        assert refusal(command_line).endswith(": the path is empty; give a name.")


def test_a_model_behind_its_text_is_proposed_in_front(tmp_path):
    assert refusal(f"translate in.txt {tmp_path}").endswith(
        f"Did you mean nmt-cli translate {tmp_path} --input in.txt?"
    )


def test_proposed_commands_work_with_names_like_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-model").mkdir()
    for name in ("-a.en", "a.fr", "mine.yaml"):
        (tmp_path / name).touch()
    message = refusal("translate -- -a.en -model")
    assert message.endswith("Did you mean nmt-cli translate ./-model --input ./-a.en?")
    assert refusal("train -- -a.en a.fr").endswith(": nmt-cli init mine-2 ./-a.en a.fr")
