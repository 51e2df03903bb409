import pytest
from benchmarks.memory.cpu_networks import BATCH, Network, Recurrent, UNet, build_encoder
from benchmarks.memory.cpu_peaks import OPTIONS, measure_peaks
from torch import nn

from foretell.memory.pipeline_stages import find_live_peak
from foretell.workloads.memory_capture import capture_memory
from foretell.workloads.step_options import InputSpec

NETWORKS = [
    Network("encoder", "by hand", build_encoder, (InputSpec(shape=(BATCH, 64, 128)),)),
    Network("unet", "by hand", UNet, (InputSpec(shape=(BATCH, 3, 64, 64)),)),
    Network("gru", "by hand", lambda: Recurrent(nn.GRU), (InputSpec(shape=(BATCH, 32, 64)),)),
]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_the_blocks_of_a_step_are_the_tensors_that_live(network: Network) -> None:
    predicted = find_live_peak(capture_memory(network.build(), network.inputs, options=OPTIONS, on_gpu=False))
    tensors, _ = measure_peaks(network)
    assert predicted == pytest.approx(tensors, rel=0.001)
