"""The checks of exports, on a machine with a GPU that is not there."""

import pytest

PACKAGES = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}


def check_verified_on_the_cpu(report, program):
    # A tensor that went to the GPU would be an event.
    assert (report.illegal, report.error, report.events) == ([], None, [])
    assert f"Verified with {program}" in report.result["card"]


def test_an_export_is_verified_on_the_cpu_where_a_gpu_is_free(rehearse):
    report = rehearse("export", output_format="huggingface", imitated=True)
    check_verified_on_the_cpu(report, "imitation")


@pytest.mark.slow  # the programs are no dependency of the other tests
@pytest.mark.parametrize("output_format", PACKAGES)
def test_other_programs_verify_an_export_on_the_cpu_where_a_gpu_is_free(output_format, rehearse):
    package = PACKAGES[output_format]
    pytest.importorskip(package, reason=f"{package} is not installed")
    report = rehearse("export", output_format=output_format, imitated=False)
    check_verified_on_the_cpu(report, package)
