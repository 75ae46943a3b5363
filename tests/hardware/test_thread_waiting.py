import sys

import pytest

from nmt_cli.hardware.cpu import Cpu, read_cpu
from nmt_cli.hardware.thread_waiting import (
    CHOSEN_BY_USERS,
    brief_spinning,
    openmp_libraries,
    spin_briefly,
)

ZEN_4 = Cpu("AuthenticAMD", 25, frozenset())
MAPS = """\
7f1c4a400000-7f1c4a600000 r-xp 00000000 fe:00 1234   /env/lib/libcomposite.so.1
7f1c4a600000-7f1c4a640000 r--p 00000000 fe:00 1235   /env/torch/lib/libgomp.so.1
7f1c4a640000-7f1c4a680000 r-xp 00040000 fe:00 1235   /env/torch/lib/libgomp.so.1
7f1c4b000000-7f1c4b040000 r-xp 00000000 fe:00 1236   /env/s.libs/libgomp-6a29c32d.so.1.0.0
7f1c4c000000-7f1c4c040000 rw-p 00000000 00:00 0
"""


@pytest.fixture
def before_torch(monkeypatch):
    """Look like a process that has not imported torch yet; nothing may import it meanwhile."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.mark.usefixtures("before_torch")
def test_other_variables_leave_the_waiting_to_us():
    environment = {"OMP_NUM_THREADS": "2", "HOME": "/root"}
    spin_briefly(environment)
    assert environment == {"OMP_NUM_THREADS": "2", "HOME": "/root"} | brief_spinning(read_cpu())


@pytest.mark.usefixtures("before_torch")
@pytest.mark.parametrize("name", CHOSEN_BY_USERS)
def test_what_a_user_chose_stays(name):
    environment = {name: "active"}
    spin_briefly(environment)
    assert environment == {name: "active"}


@pytest.mark.parametrize(
    ("cpu", "spins"),
    [
        (ZEN_4, "6000"),
        (Cpu("AuthenticAMD", 26, frozenset()), "1000"),
        (Cpu("GenuineIntel", 25, frozenset()), "1000"),
        (Cpu(None, None, frozenset()), "1000"),
    ],
)
def test_spins_depend_on_the_kind_of_cpu(cpu, spins):
    assert brief_spinning(cpu) == {"GOMP_SPINCOUNT": spins, "KMP_BLOCKTIME": "1"}


def test_users_can_choose_what_we_set():
    assert set(brief_spinning(ZEN_4)) < set(CHOSEN_BY_USERS)


def test_after_torch_nothing_changes(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    environment: dict[str, str] = {}
    spin_briefly(environment)
    assert environment == {}


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        (MAPS, ["libgomp"]),
        (MAPS + "7f-8f r-xp 0 fe:00 9   /opt/intel/libiomp5.so\n", ["libgomp", "libiomp5"]),
        (MAPS.replace("libgomp.so.1", "libomp.so"), ["libomp"]),
        ("", []),
        (None, []),
    ],
)
def test_openmp_libraries_are_found_by_name(tmp_path, maps, expected):
    path = tmp_path / "maps"
    if maps is not None:
        path.write_text(maps)
    assert openmp_libraries(path) == expected


def test_torch_has_loaded_an_openmp_library():
    import torch

    assert openmp_libraries() or not torch.backends.openmp.is_available()
