import sys

from tests.benchmarks import commands, report
from tests.benchmarks.commands import Run


def test_time_and_memory_are_those_of_a_command_and_of_what_it_starts(tmp_path):
    source = tmp_path / "in"
    source.write_text("one\ntwo\n")
    code = (
        "import subprocess, sys\n"
        "held = b'x' * (%d << 20)\n"
        "if sys.argv[1:]: subprocess.run([sys.executable, '-c', *sys.argv[1:]])\n"
        "import time; time.sleep(0.2)\n"
        "sys.argv[1:] or sys.stdout.write(sys.stdin.read())"
    )
    small = commands.run([sys.executable, "-c", code % 1], source)
    large = commands.run([sys.executable, "-c", code % 60, code % 40], source)
    assert 100 << 20 < large.memory < small.memory + (140 << 20)
    assert large.seconds > 0.4
    assert (tmp_path / "out").read_text() == "one\ntwo\n"


def test_each_precision_has_a_line_of_the_table_with_its_target(monkeypatch, tmp_path):
    source = tmp_path / "text"
    source.write_text("one\ntwo\n")
    seconds = {"nmt-cli": 2.0, "32": 5.0, "64": 4.0, "128": 6.0}

    def run(command, source):
        name = "nmt-cli" if "translate" in command else command[-1]
        return Run(seconds[name], 3 if name == "nmt-cli" else 2)

    monkeypatch.setattr(commands, "run", run)
    measured = {"S": commands.measure(tmp_path, tmp_path, source, ["fp32", "int8"], rounds=3)}
    text = commands.markdown(measured, report.table)
    assert "| S fp32 | 2.00 | 4.00 | 0.50 met | 0.95 (0.85) |" in text
    assert "| S int8, one line | 2.00 | 4.00 | 0.50 met | 2 (1.5) |" in text
    assert text.count("1.50 **not met** |") == 4
