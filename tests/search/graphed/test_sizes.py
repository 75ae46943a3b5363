"""The sizes of searches whose steps are recorded."""

from nmt_cli.search.graphed.model import size_for, size_within


def test_sizes_are_powers_of_two_and_one_and_a_half_times_those():
    sizes = sorted({1, 3} | {m << n for n in range(1, 12) for m in (1, 3)})
    for number in range(1, 2049):
        assert size_for(number) == min(size for size in sizes if size >= number)
        assert size_within(number) == max(size for size in sizes if size <= number)
