"""The SentencePiece models that the user names."""

from nmt_cli.corpus.normalization import Side
from nmt_cli.corpus.sentencepiece_tokenizer import read_usable_model
from nmt_cli.errors import UserError
from nmt_cli.interchange.text_files import TextFiles


def read_named_models(files: TextFiles) -> dict[Side, bytes] | None:
    """Return the SentencePiece model of each side, after trying them out; None without any.

    Raises UserError if only the target's is named, and as ``read_usable_model`` does.
    """
    source, target = files.sentencepiece, files.target_sentencepiece
    if source is None:
        if target is not None:
            raise UserError(
                f"--target-sentencepiece {target} needs --sentencepiece, the model of the source."
            )
        return None
    model = read_usable_model(source)
    other = model if target is None or target == source else read_usable_model(target)
    return {"source": model, "target": other}
