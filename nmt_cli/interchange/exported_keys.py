"""The keys of ``model`` that exports carry over; a model with another one cannot be exported."""

from collections.abc import Iterator

from nmt_cli.recipe.model_config import ModelConfig

# The keys of ``model`` that concern training only, or that each export carries over or refuses for
# a reason of its own. A model that uses another key is refused until its export is written.
EXPORTED_KEYS = frozenset(
    {
        *("num_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"),
        *("dropout", "attention_dropout", "relu_dropout"),
        *("positions", "max_positions", "norm", "tied_embeddings"),
        *("activation", "attention_biases", "feed_forward_biases", "norm_epsilon"),
        *("embedding_norm", "scale_embeddings", "output_bias"),
        *("sinusoid_frequencies", "first_position", "decoder_start", "source_eos"),
        *("decoder_num_layers", "decoder_d_ff", "decoder_num_heads", "source_vocabulary_size"),
    }
)


def keys_not_exported(architecture: ModelConfig) -> Iterator[str]:
    """Yield a reason for each key that has another value than its default, and is not exported."""
    for name, field in type(architecture).model_fields.items():
        value = getattr(architecture, name)
        if name not in EXPORTED_KEYS and value != field.default:
            yield f"model.{name} {value} cannot be exported yet"
