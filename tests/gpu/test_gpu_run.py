import torch

from tests.gpu import run


def test_without_a_gpu_it_is_one_line_and_status_1(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run.main() == 1
    assert capsys.readouterr() == ("", "make gpu needs a CUDA device, and torch finds none.\n")


def test_all_parts_together_take_eight_minutes_at_most():
    for parts in (run.PARTS, run.MORE):
        assert sum(part.seconds for part in parts.values()) <= 480


def test_a_part_that_takes_too_long_is_stopped_and_its_output_kept():
    endless = "import time; print('begun', flush=True); time.sleep(60)"
    how, output = run.run_part(run.Part("endless", ("-c", endless), 1.0))
    assert (how, output) == ("was stopped at its limit after 1 s", "begun")


def test_each_part_is_recorded_in_one_file(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    good = run.Part("Good", ("-c", "print(7)"), 60)
    bad = run.Part("Bad", ("-c", "raise OSError"), 60)
    monkeypatch.setattr(run, "PARTS", {"good": good, "bad": bad})
    monkeypatch.setattr(run, "find_spec", lambda name: None if name == "pydantic" else name)
    assert run.main() == 1
    (written,) = tmp_path.iterdir()
    text = written.read_text()
    assert written.name.endswith("-gpu-a-gpu.md")
    assert "## Good\n\nEnded well after" in text
    assert "failed (1)" in text.lower()
    assert text.startswith("Packages that are missing: pydantic.\n\n# A GPU, ")
    assert text == capsys.readouterr().out
    assert run.main(["--part", "good"]) == 0  # is added to the file
    assert "## Good" in written.read_text().removeprefix(text)
