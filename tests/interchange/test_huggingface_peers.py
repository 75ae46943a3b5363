"""Random models that Hugging Face's transformers makes and saves compute the same here."""

import json

import pytest
import sentencepiece
import torch

from nmt_cli.saved.model_directory import load_model
from nmt_cli.translating.rescorer import Rescorer
from tests.interchange.conftest import trained
from tests.interchange.test_huggingface_import import exported, pegasus_model, run_import

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = [
    pytest.mark.slow,  # transformers is no dependency of the other tests
    pytest.mark.filterwarnings("default"),  # its own
]
SOURCE, TARGET = "the cat and a dog", "ein Hund auf der Matte"
SIZES = {
    **{"d_model": 24, "encoder_layers": 2, "decoder_layers": 3},
    **{"encoder_ffn_dim": 20, "decoder_ffn_dim": 28, "dropout": 0.0},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 3, "init_std": 0.3},
}
SEPARATE = {"share_encoder_decoder_embeddings": False, "separate": True}
MODELS = [
    {"activation_function": "relu", "scale_embedding": True},
    {"activation_function": "swish", "half": True, "scale_embedding": True},
    {"activation_function": "gelu", **SEPARATE},
    {"activation_function": "gelu_new", **SEPARATE, "tie_word_embeddings": False},
    {"pegasus": True, "scale_embedding": True},
    {"pegasus": True, "activation_function": "relu", "half": True},
    {"pegasus": True, "tie_word_embeddings": False, "learned": True},
    {"pad": 0.4},
]


def write_tokenizer(folder, *, separate):
    folder.mkdir()
    texts = {"source": ["the cat sat on the mat", "a dog and the cat"],
             "target": ["die Katze auf der Matte", "ein Hund und eine"]}  # fmt: skip
    marks, sides = ["</s>", "<unk>"], {}
    for side, lines in texts.items():
        model = trained(folder / side, lines)
        (folder / f"{side}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        sides[side] = processor.id_to_piece(list(range(2, 22 if side == "source" else 24)))
    if separate:
        vocabularies = {"vocab": sides["source"], "target_vocab": sides["target"]}
    else:
        vocabularies = {"vocab": list(dict.fromkeys([*sides["source"], *sides["target"]]))}
    sizes = []
    for name, pieces in vocabularies.items():
        ids = {piece: number for number, piece in enumerate([*marks, *pieces, "<pad>"])}
        (folder / f"{name}.json").write_text(json.dumps(ids))
        sizes.append(len(ids))
    config = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return sizes[0], sizes[-1]


def random_model(folder, options):
    """Save a random model of transformers; return it in fp32."""
    options = dict(options)
    kind = "Pegasus" if options.pop("pegasus", False) else "Marian"
    half, learned = options.pop("half", False), options.pop("learned", False)
    pad = options.pop("pad", 0.0)
    size, of_target = write_tokenizer(folder, separate=options.pop("separate", False))
    start, eos = of_target - 1, 0
    if "rows" in options:  # the ids of Pegasus
        size = of_target = options.pop("rows")
        start, eos = 0, 1
    config = getattr(transformers, f"{kind}Config")(
        **SIZES, vocab_size=size, max_position_embeddings=64, eos_token_id=eos,
        forced_eos_token_id=eos,
        pad_token_id=min(size, of_target) - 1, decoder_start_token_id=start,
        **({"decoder_vocab_size": of_target} if kind == "Marian" else {}), **options,
    )  # fmt: skip
    torch.manual_seed(5)
    name = {"Marian": "MarianMTModel", "Pegasus": "PegasusForConditionalGeneration"}[kind]
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name and parameter.ndim == 1:
                parameter.normal_(std=0.3)
            if learned and "embed_positions" in name:
                parameter.normal_(std=0.3)
        model.final_logits_bias.normal_()
        model.get_decoder().embed_tokens.weight[start] = pad
        model.get_encoder().embed_tokens.weight[size - 1] = pad
    (model.half() if half else model).save_pretrained(folder)
    return model.float()


@torch.no_grad()
def scores_of(model, tokenizer, *, without_start):
    """Return the log-probabilities of the pieces of TARGET and its end."""
    source = tokenizer(SOURCE, return_tensors="pt").input_ids
    target = tokenizer(text_target=TARGET, return_tensors="pt").input_ids[0]
    start = torch.tensor([model.config.decoder_start_token_id])
    read = torch.cat((start, target[:-1]))[None]
    logits = model(input_ids=source, decoder_input_ids=read).logits[0]
    if without_start:  # its logit counts there, and our model has no such piece
        logits[:, start] = -torch.inf
    return logits.log_softmax(1).gather(1, target[:, None]).squeeze(1).tolist()


@pytest.mark.parametrize("options", MODELS, ids=lambda options: "-".join(map(str, options)))
def test_log_probabilities_are_those_of_transformers(tmp_path, options):
    folder = tmp_path / "theirs"
    model = random_model(folder, options)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    expected = scores_of(model, tokenizer, without_start="pad" not in options)
    result = run_import(folder, "--output", tmp_path / "ours")
    assert result.exit_code == 0, result.output
    rescorer = Rescorer.load(tmp_path / "ours", device="cpu", precision="fp32")
    (found,) = rescorer.rescore([(SOURCE, TARGET)])
    assert len(found.token_scores) > 9
    assert found.token_scores == pytest.approx(expected, abs=1e-4)
    loaded = load_model(tmp_path / "ours")
    assert [*loaded.tokenizer.encode(SOURCE), loaded.tokenizer.eos_id] == tokenizer(
        SOURCE
    ).input_ids
    if "share_encoder_decoder_embeddings" in options:
        return  # the export has no class for it
    exported(tmp_path / "ours", "again")
    result = run_import(tmp_path / "again", "--output", tmp_path / "last")
    assert result.exit_code == 0, result.output
    for name in ("model.safetensors", "vocab.json", "config.json"):
        assert (tmp_path / "last" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()


def save_larger(folder, theirs, *, of_old_versions):
    """Save a model with added tokens, padded rows and an output matrix of its own, in parts.

    Return it, with the number of its tokens.
    """
    model = random_model(folder, {"scale_embedding": True})
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    tokenizer.add_tokens([">>nob<<", "<name>"])
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=8)
    assert model.config.vocab_size > len(tokenizer)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(model.config.vocab_size, 24))
    model.config.tie_word_embeddings = False
    padded = torch.zeros(1, model.config.vocab_size)
    padded[:, : len(tokenizer)] = model.final_logits_bias
    if not of_old_versions:
        model.final_logits_bias = padded
    model.save_pretrained(theirs, max_shard_size="8KB")
    model.final_logits_bias = padded  # which transformers forgets to lengthen
    tokenizer.save_pretrained(theirs)
    config = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    if of_old_versions:
        path = theirs / "tokenizer_config.json"
        settings = json.loads(path.read_text())
        added = settings.pop("added_tokens_decoder")
        path.write_text(json.dumps(settings))
        added = {token["content"]: int(row) for row, token in added.items()}
        (theirs / "added_tokens.json").write_text(json.dumps(added))
    return model, len(tokenizer)


@torch.no_grad()
@pytest.mark.parametrize("of_old_versions", [True, False])
def test_added_tokens_padded_rows_and_parts(tmp_path, of_old_versions):
    theirs = tmp_path / "theirs"
    model, size = save_larger(tmp_path / "first", theirs, of_old_versions=of_old_versions)
    assert (theirs / "model.safetensors.index.json").is_file()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(theirs))
    source = tokenizer(f">>nob<<{SOURCE}", return_tensors="pt").input_ids
    assert source[0, 0] == size - 2
    target = tokenizer(text_target=TARGET, return_tensors="pt").input_ids[0]
    start = torch.tensor([model.config.decoder_start_token_id])
    read = torch.cat((start, target[:-1]))[None]
    logits = model.eval()(input_ids=source, decoder_input_ids=read).logits[0]
    logits[:, start] = -torch.inf
    logits[:, size:] = -torch.inf  # rows that no token has
    expected = logits.log_softmax(1).gather(1, target[:, None]).squeeze(1).tolist()
    result = run_import(theirs, "--output", tmp_path / "ours")
    assert result.exit_code == 0, result.output
    rescorer = Rescorer.load(tmp_path / "ours", device="cpu", precision="fp32")
    (found,) = rescorer.rescore([(f">>nob<< {SOURCE}", TARGET)])
    assert found.token_scores == pytest.approx(expected, abs=1e-4)


def test_the_pieces_of_pegasus_are_those_of_transformers(tmp_path):
    folder = tmp_path / "theirs"
    random_model(folder, {"pegasus": True, "rows": 103 + 18})
    for name in ("vocab.json", "source.spm", "target.spm"):
        (folder / name).unlink()
    (folder / "spiece.model").write_bytes(pegasus_model())
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PegasusTokenizer"}')
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    result = run_import(folder, "--output", tmp_path / "ours")
    assert result.exit_code == 0, result.output
    found = load_model(tmp_path / "ours").tokenizer
    for text in (SOURCE, "a dog on the mat"):
        pieces = found.pieces([*found.encode(text), found.eos_id])
        assert pieces == tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)
        # Our numbers are those without <pad>, which is the first.
        assert [n + 1 for n in found.encode(text)] == tokenizer(text).input_ids[:-1]
