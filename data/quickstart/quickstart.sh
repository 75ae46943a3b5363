#!/bin/sh
# The main job from text to score on the bundled corpus: "make quickstart" calls this, and every
# line of it can be typed by hand (BIN is the folder of the environment's programs).
set -eu
BIN=${BIN:-.venv/bin}
nmt_cli() {
    echo "\$ nmt-cli $*" >&2
    "$BIN/nmt-cli" "$@"
}

"$BIN/python" data/quickstart/generate.py
nmt_cli preprocess quickstart --force
rm -rf runs/quickstart
nmt_cli train quickstart
nmt_cli average-checkpoints runs/quickstart
nmt_cli translate runs/quickstart --input data/quickstart/test.en \
    --output runs/quickstart/test.de --force
nmt_cli score runs/quickstart/test.de data/quickstart/test.de

echo
echo "Some translations (E the English, T the translation, R the reference):"
paste -d '\n' data/quickstart/test.en runs/quickstart/test.de data/quickstart/test.de |
    awk 'NR <= 15 { printf "%s %s\n", substr("ETR", (NR - 1) % 3 + 1, 1), $0 } NR <= 15 && NR % 3 == 0 { print "" }'
cat <<'END'
Try next:
  echo "The old man reads a book." | .venv/bin/nmt-cli translate runs/quickstart
  .venv/bin/nmt-cli translate runs/quickstart --n-best 3 --format tsv < data/quickstart/test.en | head
  .venv/bin/nmt-cli recipes show multi30k-en-de      # real text; recipes/README.md has its address
Your own text: .venv/bin/nmt-cli init mine TEXT.en TEXT.de (docs/tutorials/your-own-text.md).
END
