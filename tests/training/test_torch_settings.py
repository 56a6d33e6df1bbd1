import os
import warnings

import pytest
import torch

import acr
from acr.training.torch_settings import torch_settings


def in_force():
    return (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    )


@pytest.mark.parametrize(("asked", "on_cpu"), [(None, True), (True, True), (False, False)])
def test_on_a_cpu_deterministic_is_the_default_and_is_given_back(asked, on_cpu):
    before = in_force()
    with torch_settings(torch.device("cpu"), 2, asked):
        assert torch.get_num_threads() == 2
        assert torch.are_deterministic_algorithms_enabled() is on_cpu
    assert in_force() == before


def test_it_is_given_back_after_an_error():
    before = in_force()

    def fail():
        with torch_settings(torch.device("cpu"), 2, True):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert in_force() == before


def test_on_a_gpu_it_is_asked_for_and_warns_of_the_cost():
    before = in_force()
    gpu = torch.device("cuda")
    with torch_settings(gpu, None, None):
        assert not torch.are_deterministic_algorithms_enabled()
    with warnings.catch_warnings(record=True) as said, torch_settings(gpu, None, True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert "slower" in str(said[0].message)
    assert in_force() == before


def test_a_run_leaves_the_process_as_it_was_and_the_flag_does_not_change_the_results(tmp_path):
    config = {"method": "er", "epochs": 1, "width": 2, "samples_per_class": 20, "buffer_size": 20, "ood_every": "never"}
    before = in_force()
    one = acr.run(out=tmp_path / "a", threads=1, deterministic=True, **config)
    assert in_force() == before
    other = acr.run(out=tmp_path / "b", threads=1, deterministic=False, **config)
    assert one.config.identity() == other.config.identity()
    assert one.results.stages == other.results.stages
