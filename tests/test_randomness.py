import torch

from acr.randomness import generator, key_to_seed, keyed_global


def test_same_key_same_draws_and_other_keys_others():
    a = torch.rand(5, generator=generator(1, "x", 2))
    assert torch.equal(a, torch.rand(5, generator=generator(1, "x", 2)))
    for other in [(1, "x", 3), (2, "x", 2), (1, "y", 2), (1, "x"), (1, "x2", ""), ("1", "x", 2)]:
        assert not torch.equal(a, torch.rand(5, generator=generator(*other)))


def test_seeds_are_spread():
    seeds = [key_to_seed(0, "retrieve", 0, 0, step) for step in range(2000)]
    assert len(set(seeds)) == 2000
    bits = torch.tensor([[s >> b & 1 for b in range(63)] for s in seeds], dtype=torch.float64)
    assert (bits.mean(0) - 0.5).abs().max() < 0.06


def test_global_generator_is_left_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with keyed_global(0, "init"):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with keyed_global(0, "init"):
        assert torch.equal(torch.rand(3), first)
