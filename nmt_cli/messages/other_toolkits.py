"""The names of fairseq, OpenNMT-py, Sockeye, Marian and CTranslate2 for things, and the names here.

docs/how-to/moving-from-other-toolkits.md shows this table, and a test compares the two. Messages
propose names from it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from nmt_cli.messages.proposals import plain


class Renamed(NamedTuple):
    """One thing and the names that each toolkit gives it, separated by spaces."""

    # "training.max_steps" is a recipe's key, "translate --input" an option, "train RECIPE" an
    # argument, "train" a command; several are separated by ", ". Empty: nmt-cli does not have it.
    here: str
    fairseq: str = ""
    opennmt: str = ""
    sockeye: str = ""
    marian: str = ""
    note: str = ""  # what is different here
    also: str = ""  # further names that people try, which the page does not show
    example: str = ""  # a value to propose if the user's has another unit or form
    ctranslate2: str = ""  # of its Python interface, which its programs also use

    def of_toolkits(self) -> tuple[str, ...]:
        """Return the names of each toolkit, in the order of the page's table."""
        return self.fairseq, self.opennmt, self.sockeye, self.marian, self.ctranslate2

    def names(self) -> Iterator[str]:
        """Yield every other name, without dashes in front."""
        for names in (*self.of_toolkits(), self.also):
            yield from map(plain, names.split())

    def places(self) -> list[str]:
        """Return each key, option, argument or command that nmt-cli has for it."""
        return self.here.split(", ") if self.here else []


# fmt: off
RENAMED = (
    # Commands.
    Renamed("preprocess", "fairseq-preprocess", "onmt_build_vocab", "sockeye-prepare-data",
            "marian-vocab",
            also="binarize prepare prep tokenize encode build-vocab prepare-data vocab"),
    Renamed("train", "fairseq-train", "onmt_train", "sockeye-train", "marian", also="fit learn"),
    Renamed("average-checkpoints", "average_checkpoints.py", "onmt_average_models",
            "sockeye-average", also="average avg average-models average_checkpoints"),
    Renamed("translate", "fairseq-generate fairseq-interactive", "onmt_translate",
            "sockeye-translate", "marian-decoder",
            also="generate interactive decode decoder infer inference predict test"),
    Renamed("score", "fairseq-score", "", "sockeye-evaluate",
            also="bleu sacrebleu eval evaluate chrf"),
    Renamed("rescore", "", "", "sockeye-score", "marian-scorer",
            note="the log-probability of given translations",
            also="scorer perplexity force-decode"),
    # Arguments and options: where, and on what machine.
    Renamed("preprocess RECIPE, train RECIPE", "--config-name", "-config", "--config",
            "--config -c", note="an argument without a name", also="--recipe --yaml"),
    Renamed("translate MODEL, average-checkpoints RUN, report RUN", "--path", "-model",
            "--models -m", "--models -m", note="an argument without a name",
            also="--model --checkpoint --run --run-dir --model-dir --save-dir"),
    Renamed("score HYPOTHESES", "--sys -s", "", "--hypotheses -i",
            note="an argument without a name", also="--hyp --hypothesis --input"),
    Renamed("score REFERENCES", "--ref -r", "", "--references -r",
            note="an argument without a name", also="--reference --refs"),
    Renamed("score --lowercase", "--ignore-case", also="-lc --lc --lower"),
    Renamed("translate --input", "--input", "-src", "--input -i", "--input -i",
            also="-f --file --source --infile --input-file"),
    Renamed("translate --shard", "--num-shards --shard-id", note="both in one value, from 1",
            example="3/16"),
    Renamed("translate --output, average-checkpoints --output, report --output", "", "-output",
            "--output -o", "--output -o", also="--out --outfile --output-file --results-path"),
    Renamed("train --run-dir", "--save-dir", "-save_model", "--output -o", "--model -m",
            also="--output-dir --out --model-dir --checkpoint-dir"),
    Renamed("preprocess --prepared, train --prepared", "--destdir", "-save_data",
            "--prepared-data -d",
            also="--data --data-dir --data-bin --output --output-dir --out -o"),
    Renamed("preprocess --workers", "--workers", "-num_threads", "--max-processes",
            also="--num-workers --threads --jobs -j --processes"),
    Renamed("preprocess --force, average-checkpoints --force, translate --force, report --force",
            "", "-overwrite", also="-f -y --yes --replace"),
    Renamed("train --resume", "--restore-file", "-train_from", also="--continue --continue-from"),
    Renamed("train --init-from", "--finetune-from-model", "-train_from", "--params",
            "--pretrained-model", also="--load --warm-start --finetune --pretrained"),
    Renamed("train --max-time", "--stop-time-hours", "", "--max-seconds", also="--time",
            example="3h30m"),
    Renamed("train --devices", "--distributed-world-size", "-world_size -gpu_ranks",
            "--device-ids", "--devices", note="how many; all GPUs by default",
            also="--gpus --num-gpus --ngpus --n-gpus --nproc-per-node"),
    Renamed("train --device, translate --device", "", "-gpu", "--device-id", "--devices -d",
            also="--gpu --gpus --gpu-id --cuda --device-ids", example="cuda:0",
            ctranslate2="device device_index"),
    Renamed("train --device, translate --device", "--cpu", "", "--use-cpu",
            also="--no-cuda --no-gpu", example="cpu"),
    Renamed("train --threads, translate --threads", "", "", "", "--cpu-threads",
            also="--num-threads --nthreads --cores --workers --num-workers -j",
            ctranslate2="intra_threads"),
    Renamed("train --precision, translate --precision", "--fp16 --bf16", "-model_dtype",
            "--dtype --amp", "--fp16", note="chosen for you", also="--half --mixed-precision",
            example="bf16",
            ctranslate2="compute_type"),
    Renamed("train --max-tokens-per-device", "--max-tokens",
            note="chosen for you; training.tokens_per_step is that of the whole step"),
    Renamed("translate --max-tokens-per-device", "--max-tokens --batch-size", "-batch_size",
            "--batch-size", "--mini-batch",
            note="chosen for you; tokens of all hypotheses in the search", example="4096",
            ctranslate2="max_batch_size"),
    Renamed("average-checkpoints --last", "--num-update-checkpoints --num-epoch-checkpoints", "",
            "-n", also="--num --count --num-checkpoints"),
    Renamed("average-checkpoints --checkpoints", "--inputs", "-models",
            also="--models --input -i"),
    Renamed("translate --n-best", "--nbest", "-n_best", "--nbest-size", note="needs --format",
            ctranslate2="num_hypotheses"),
    Renamed("translate --sample", "--sampling", "", "--sample", "--output-sampling",
            note="--sample-top-k and --sample-top-p limit it"),
    Renamed("translate --temperature", "--temperature", "-random_sampling_temp",
            "--softmax-temperature", also="--temp",
            ctranslate2="sampling_temperature"),
    Renamed("translate --sample-top-k", "--sampling-topk", "-random_sampling_topk",
            also="--top-k",
            ctranslate2="sampling_topk"),
    Renamed("translate --sample-top-p", "--sampling-topp", "-random_sampling_topp",
            also="--top-p --nucleus",
            ctranslate2="sampling_topp"),
    Renamed("translate --min-length", "--min-len", "-min_length", also="--min-output-length",
            ctranslate2="min_decoding_length"),
    Renamed("translate --max-length", "", "-max_length", note="in pieces of the output",
            also="--max-len --max-tokens-out",
            ctranslate2="max_decoding_length"),
    Renamed("translate --no-repeat-ngram", "--no-repeat-ngram-size", "-block_ngram_repeat",
            ctranslate2="no_repeat_ngram_size"),
    Renamed("translate --target-prefix", "--prefix-size", "-tgt_file_prefix",
            note="the same text for all lines", also="--prefix", example="TEXT",
            ctranslate2="target_prefix"),
    Renamed("translate --required", "--constraints", also="--force-words", example="TEXT"),
    Renamed("translate --banned", also="--avoid-list --bad-words", example="TEXT"),
    Renamed("translate --too-long", "--skip-invalid-size-inputs-valid-test", "",
            "--max-input-length", "--max-length-crop",
            note="the limit is the recipe's data.max_length", also="--max-length --truncate",
            example="truncate",
            ctranslate2="max_input_length"),
    Renamed("translate --workers", ctranslate2="inter_threads",
            note="processes of one thread; by default one for each core if the text is long"),
    Renamed("train --quiet, translate --quiet", "", "", "--quiet", "--quiet --quiet-translation",
            also="--silent --no-progress-bar"),
    # Keys of a recipe: what the result depends on.
    Renamed("data.train", "--trainpref", "", "--source --target", "--train-sets",
            also="--train-src --train-tgt --train-data",
            example="[{source: FILE, target: FILE}]"),
    Renamed("data.validation", "--validpref", "", "--validation-source --validation-target",
            "--valid-sets", also="--valid --dev --valid-src --valid-tgt --dev-data",
            example="{source: FILE, target: FILE}"),
    Renamed("data.test", "--testpref", example="{source: FILE, target: FILE}"),
    Renamed("data.source_language", "--source-lang", also="src src_lang source_language"),
    Renamed("data.target_language", "--target-lang", also="tgt tgt_lang trg trg_lang"),
    Renamed("data.max_length", "--max-source-positions --max-target-positions",
            "-src_seq_length -tgt_seq_length", "--max-seq-len", "--max-length",
            note="in pieces; the same for source and target",
            also="max_len max_seq_length max_sentence_length"),
    Renamed("data.filters.min_length", also="min_len min_seq_len min_sentence_length"),
    Renamed("tokenizer.vocabulary_size", "--nwordssrc --nwordstgt",
            "-src_vocab_size -tgt_vocab_size", "--num-words", "--dim-vocabs",
            note="one vocabulary for both languages", also="vocab_size bpe_size num_merges"),
    Renamed("tokenizer.model", "--srcdict --tgtdict", "-src_vocab -tgt_vocab",
            "--source-vocab --target-vocab", "--vocabs",
            note="a SentencePiece file, one for both languages",
            also="spm_model sentencepiece_model bpe_model --vocab", example="FILE"),
    Renamed("tokenizer.sampling", "--sentencepiece-enable-sampling --sentencepiece-alpha",
            "-src_subword_alpha -tgt_subword_alpha", "", "--sentencepiece-alphas",
            note="BPE dropout, or the alpha of unigram models; of both sides",
            also="bpe_dropout subword_regularization", example="0.1"),
    Renamed("model.num_layers", "--encoder-layers --decoder-layers",
            "-layers -enc_layers -dec_layers", "--num-layers", "--enc-depth --dec-depth",
            note="also of the decoder, unless model.decoder_num_layers is given",
            also="n_layers depth"),
    Renamed("model.d_model", "--encoder-embed-dim --decoder-embed-dim",
            "-hidden_size -word_vec_size", "--transformer-model-size", "--dim-emb",
            also="rnn_size embed_dim embedding_dim model_dim emb_size"),
    Renamed("model.d_ff", "--encoder-ffn-embed-dim --decoder-ffn-embed-dim", "-transformer_ff",
            "--transformer-feed-forward-num-hidden", "--transformer-dim-ffn",
            also="ffn ffn_dim ff_size dim_feedforward"),
    Renamed("model.num_heads", "--encoder-attention-heads --decoder-attention-heads", "-heads",
            "--transformer-attention-heads", "--transformer-heads",
            also="n_heads nhead attention_heads num_attention_heads"),
    Renamed("model.dropout", "--dropout", "-dropout", "--transformer-dropout-prepost",
            "--transformer-dropout", also="dropout_rate dropout_prob"),
    Renamed("model.attention_dropout", "--attention-dropout", "-attention_dropout",
            "--transformer-dropout-attention", "--transformer-dropout-attention",
            also="attn_dropout"),
    Renamed("model.relu_dropout", "--activation-dropout", "", "--transformer-dropout-act",
            "--transformer-dropout-ffn", also="act_dropout ffn_dropout"),
    Renamed("model.activation", "--activation-fn", "-pos_ffn_activation_fn", "",
            "--transformer-ffn-activation", example="gelu"),
    Renamed("model.norm", "--encoder-normalize-before --decoder-normalize-before", "",
            "--transformer-preprocess", "--transformer-preprocess", also="pre_norm norm_first",
            example="pre"),
    Renamed("model.positions", "--encoder-learned-pos --decoder-learned-pos",
            "", "--transformer-positional-embedding-type",
            "--transformer-train-position-embeddings", example="learned"),
    Renamed("model.tied_embeddings", "--share-all-embeddings --share-decoder-input-output-embed",
            "-share_embeddings -share_decoder_embeddings", "--weight-tying-type",
            "--tied-embeddings-all --tied-embeddings", example="all"),
    Renamed("training.tokens_per_step", "--max-tokens --batch-size --update-freq",
            "-batch_size -accum_count", "--batch-size --update-interval",
            "--mini-batch --mini-batch-words --optimizer-delay",
            note="tokens of either side in a whole step, over all devices and micro-batches",
            also="--max-sentences bsz batch_tokens accum grad_accum gradient_accumulation_steps",
            example="25000"),
    Renamed("training.max_steps", "--max-update", "-train_steps", "--max-updates",
            "--after-batches", also="num_steps total_steps steps iterations num_updates"),
    Renamed("training.max_epochs", "--max-epoch", "", "--max-num-epochs", "--after-epochs",
            also="epochs num_epochs num_train_epochs"),
    Renamed("training.warmup_steps", "--warmup-updates", "-warmup_steps",
            "--learning-rate-warmup", "--lr-warmup", also="warmup num_warmup_steps"),
    Renamed("training.warmup_start", "--warmup-init-lr", "", "", "--lr-warmup-start-rate"),
    Renamed("training.peak_learning_rate", "--lr", "-learning_rate", "--initial-learning-rate",
            "--learn-rate",
            note="at the end of warm-up; training.learning_rate_factor scales the paper's rate"),
    Renamed("training.adam_betas", "--adam-betas", "-adam_beta1 -adam_beta2", "--optimizer-betas",
            "--optimizer-params", also="betas", example="[0.9, 0.98]"),
    Renamed("training.adam_epsilon", "--adam-eps", "", "--optimizer-epsilon", also="eps"),
    Renamed("training.clip_norm", "--clip-norm", "-max_grad_norm",
            "--gradient-clipping-threshold", "--clip-norm",
            also="grad_clip gradient_clipping max_norm"),
    Renamed("training.ema_decay", "--ema-decay", "-average_decay", "", "--exponential-smoothing",
            note="the share of the average that each step keeps", example="0.999"),
    Renamed("training.seed", also="random_seed"),
    Renamed("validation.every_steps", "--validate-interval-updates", "-valid_steps",
            "--checkpoint-interval", "--valid-freq", also="eval_steps eval_every"),
    Renamed("validation.every_epochs", "--validate-interval"),
    Renamed("validation.patience", "--patience", "-early_stopping",
            "--max-num-checkpoint-not-improved", "--early-stopping", also="early_stop"),
    Renamed("validation.bleu", "--eval-bleu", "", "--decode-and-evaluate", "--valid-metrics",
            example="beam"),
    Renamed("validation.best_by", "--best-checkpoint-metric", "-early_stopping_criteria",
            "--optimized-metric", example="bleu"),
    Renamed("checkpoints.every_steps", "--save-interval-updates", "-save_checkpoint_steps",
            "--checkpoint-interval", "--save-freq", also="save_steps save_every"),
    Renamed("checkpoints.every_epochs", "--save-interval"),
    Renamed("checkpoints.keep_for_average", "--keep-interval-updates --keep-last-epochs",
            "-keep_checkpoint", "--keep-last-params",
            also="keep_last keep_checkpoints save_total_limit"),
    Renamed("decoding.beam_size, translate --beam-size", "--beam", "-beam_size", "--beam-size -b",
            "--beam-size -b", also="beams beam_width num_beams",
            ctranslate2="beam_size"),
    Renamed("decoding.length_penalty, translate --length-penalty", "--lenpen", "-alpha",
            "--length-penalty-alpha", "--normalize",
            note="the paper's ((5 + length) / 6)^0.6, not length^0.6",
            also="lp length_penalty_alpha",
            ctranslate2="length_penalty"),
    Renamed("decoding.max_extra_length", "--max-len-a --max-len-b", "-max_length",
            "--max-output-length",
            note="by how many pieces the output may exceed the input; there is no factor",
            example="50"),
    # What does not exist here, or needs no name.
    Renamed("", "--optimizer --weight-decay --lr-scheduler", "-optim -decay_method",
            "--optimizer --learning-rate-scheduler-type", "--optimizer --lr-decay",
            note="always Adam with the paper's schedule, without weight decay",
            also="wd scheduler"),
    Renamed("", "--arch --task --criterion", "-encoder_type -decoder_type", "--encoder --decoder",
            "--type", note="always the Transformer; its sizes are in the recipe's section model",
            also="-a architecture"),
    Renamed("", "--joined-dictionary", "-share_vocab", "--shared-vocab",
            note="both languages always share one vocabulary"),
    Renamed("", "--remove-bpe --post-process",
            note="pieces are always joined; translate --keep-pieces leaves them",
            also="--detokenize"),
    Renamed("translate --alignments", "--print-alignment", "-report_align", "", "--alignment",
             note="of words, from attention"),
    Renamed("translate --replace-unknown", "--replace-unk", "-replace_unk",
             note="only models of text in pieces write unknown words",
            ctranslate2="replace_unknowns"),
    Renamed("", "--unkpen",
             note="unknown words have no penalty of their own"),
    Renamed("", "--log-interval", "-report_every", "", "--disp-freq",
            note="metrics.jsonl in the run directory records every step",
            also="--log-every --logging-steps"),
    Renamed("", "--tensorboard-logdir", "-tensorboard",
            note="training writes tensorboard/ if TensorBoard is installed",
            also="--wandb-project"),
    Renamed("", "", "", "", "--workspace --mini-batch-fit",
            note="what fits the memory is chosen for you; train --max-tokens-per-device limits it"),
    Renamed("", "", "onmt_server", "", "marian-server",
            note="there is no server; translate reads stdin and writes stdout line by line"),
)
# fmt: on


def renamed(name: str) -> list[Renamed]:
    """Return the rows that hold ``name`` as a name of any toolkit."""
    written = plain(name)
    return [row for row in RENAMED if written in row.names()]


def names_of_keys() -> dict[str, str]:
    """Return the recipe's key for each name that other toolkits give it."""
    return {
        name: key
        for row in reversed(RENAMED)  # the first row that has a name decides
        for key in row.places()
        if "." in key
        for name in row.names()
    }


def missing_here(name: str) -> str:
    """Return why nmt-cli does not have the thing called ``name``; "" if the table lacks it."""
    return next((row.note for row in renamed(name) if not row.here), "")
