"""Which of sacreBLEU's tokenizers is taken for a text whose language nobody names."""

import pytest
from sacrebleu.metrics.bleu import BLEU

from nmt_cli.corpus import references
from nmt_cli.corpus.references import FittingTokenizer, fitting_tokenizer

CHINESE = ["天天下雨的地方真多，他每天去那里。", "我喜欢看月亮。"]
JAPANESE = ["月がきれいですね。", "東京タワーへ行きました。"]
KOREAN = ["달이 아름답네요.", "저는 학교에 갑니다."]
THAI = ["พระจันทร์สวยมาก", "ฉันไปโรงเรียน"]


@pytest.fixture(params=[True, False], ids=["with packages", "without packages"])
def has_packages(request, monkeypatch):
    found = object() if request.param else None
    monkeypatch.setattr(references, "find_spec", lambda _: found)
    return request.param


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (CHINESE, "zh"),
        (
            ["他用 PyTorch 训练模型。", "打开 README 看看。"],
            "zh",
        ),  # more Latin letters than Chinese
        (["東京に住む王さんは「今天很好」と言った。"], "ja-mecab"),
        (JAPANESE, "ja-mecab"),
        (["ﾀﾜｰ", "ﾋﾞﾙ"], "ja-mecab"),
        (KOREAN, "ko-mecab"),
        (THAI, "char"),
        (["ພະຈັນງາມຫຼາຍ"], "char"),
        (["ព្រះច័ន្ទស្អាត"], "char"),
        (["လကလှတယ်"], "char"),
        (["Der Mond ist schön.", "Ich gehe zur Schule."], "13a"),
        (["Луна прекрасна."], "13a"),
        (["القمر جميل."], "13a"),
        (["Ay güzel, 月 demek."], "13a"),
        (["", "12:30", "..."], "13a"),
        ([], "13a"),
    ],
)
def test_the_script_of_the_references_decides(has_packages, lines, expected):
    otherwise = {"ja-mecab": "char", "ko-mecab": "13a"}
    tokenize, remark = fitting_tokenizer(lines)
    is_replaced = not has_packages and expected in otherwise
    assert tokenize == (otherwise[expected] if is_replaced else expected)
    assert (remark is not None) == is_replaced
    if remark is not None:
        assert f"pip install 'sacrebleu[{expected[:2]}]'" in remark


@pytest.mark.parametrize(("language", "lines"), [("zh", CHINESE), ("ja", JAPANESE), ("ko", KOREAN)])
@pytest.mark.usefixtures("has_packages")
def test_sacrebleu_takes_the_same_for_the_language(monkeypatch, language, lines):
    monkeypatch.setattr(references, "find_spec", lambda _: object())
    assert BLEU._TOKENIZER_MAP[language] == fitting_tokenizer(lines).tokenize


def test_other_text_without_spaces_gets_a_remark():
    javanese = "ꦱꦸꦒꦼꦁꦲꦼꦚ꧀ꦗꦶꦁꦥꦫꦤꦛꦤ꧀ꦱꦢꦪꦩꦒꦸꦁꦥꦸꦤ꧀"
    tokenize, remark = fitting_tokenizer([javanese, javanese])
    assert tokenize == "13a"
    assert remark is not None
    assert "such as char" in remark
    german = ["Die Donaudampfschifffahrtsgesellschaft fährt auch heute wieder nach Wien."]
    assert fitting_tokenizer(german) == FittingTokenizer("13a")
