"""What a user of CTranslate2 writes: peer_command.py EXPORT SENTENCEPIECE TYPE BATCH < in > out."""

import sys

import ctranslate2
import sentencepiece

export, pieces, compute_type, batch_size = sys.argv[1:]
tokenizer = sentencepiece.SentencePieceProcessor(model_file=pieces)
model = ctranslate2.Translator(export, compute_type=compute_type, inter_threads=2, intra_threads=1)
sentences = tokenizer.encode(sys.stdin.read().splitlines(), out_type=str)
found = model.translate_batch(sentences, beam_size=4, max_batch_size=int(batch_size))
sys.stdout.writelines(f"{tokenizer.decode(each.hypotheses[0])}\n" for each in found)
