"""Libraries of OpenMP, by the files that a process has mapped."""

import pytest
import torch

from nmt_cli.hardware.undocumented import gnu_openmp, openmp_libraries

MAPS = """\
7f1c4a400000-7f1c4a600000 r-xp 00000000 fe:00 1234   /env/lib/libcomposite.so.1
7f1c4a600000-7f1c4a640000 r--p 00000000 fe:00 1235   /my env/torch/lib/libgomp.so.1
7f1c4a640000-7f1c4a680000 r-xp 00040000 fe:00 1235   /my env/torch/lib/libgomp.so.1
7f1c4b000000-7f1c4b040000 r-xp 00000000 fe:00 1236   /env/s.libs/libgomp-6a29c32d.so.1.0.0
7f1c4c000000-7f1c4c040000 rw-p 00000000 00:00 0
"""


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        (MAPS, {"libgomp": "/my env/torch/lib/libgomp.so.1"}),
        (
            MAPS + "7f-8f r-xp 0 fe:00 9   /opt/intel/libiomp5.so\n",
            {"libgomp": "/my env/torch/lib/libgomp.so.1", "libiomp5": "/opt/intel/libiomp5.so"},
        ),
        (MAPS.replace("libgomp.so.1", "libomp.so"), {"libomp": "/my env/torch/lib/libomp.so"}),
        ("", {}),
        (None, {}),
    ],
)
def test_openmp_libraries_are_found_by_name(tmp_path, maps, expected):
    path = tmp_path / "maps"
    if maps is not None:
        path.write_text(maps)
    assert openmp_libraries(path) == expected


def test_a_preloaded_library_is_not_gnus(tmp_path):
    path = tmp_path / "maps"
    path.write_text(MAPS + "7f-8f r-xp 0 fe:00 9   /opt/intel/libiomp5.so\n")
    assert gnu_openmp(path) is None


def test_torch_has_loaded_an_openmp_library():
    assert openmp_libraries() or not torch.backends.openmp.is_available()
