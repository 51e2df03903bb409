"""Tables of measured kernels become rows of devices in the catalogue, each from one source."""

import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from benchmarks.gpus import own_steps
from benchmarks.gpus.calibration_choice import choose_kernels
from benchmarks.gpus.command import PARTS, choose_parts
from benchmarks.gpus.product_fits import build_products, choose_sources, find_chip
from benchmarks.gpus.product_rows import COLUMNS, find_layer_products, read_labels, thin_rows
from benchmarks.gpus.progress import follow, show
from benchmarks.gpus.results import judge

from foretell.core.devices import get_device
from foretell.core.errors import ForetellError


def write_table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_of_ones_own_gives_products_of_known_devices(tmp_path: Path) -> None:
    text = "device,precision,rows,columns,inner,seconds\nNVIDIA L40S,bf16,128,256,512,1e-5\nAbacus,bf16,1,1,1,1\n"
    rows = read_labels(write_table(tmp_path / "mine.csv", text))
    assert rows.device.tolist() == ["L40S"]
    (product,) = build_products(rows)
    assert (product.rows, product.columns, product.inner, product.many) == (128, 256, 512, 1)


@pytest.mark.parametrize(
    "text",
    ["device,precision,rows\nL40S,bf16,1\n", "device,precision,rows,columns,inner,seconds\nAbacus,bf16,1,1,1,1\n"],
)
def test_other_tables_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"mine\.csv"):
        read_labels(write_table(tmp_path / "mine.csv", text))


STEPS = "device,model,input,precision,mode,batch,seconds\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('device,model,input,precision,mode,seconds\nH100,timm:resnet18,"8,3,32,32",bf16,training,1\n', "'batch'"),
        (STEPS + 'H100,timm:resnet18,"8,3,32,32",bf16,training,8,-0.1\n', "row 1: seconds is"),
        (STEPS + 'H100,timm:resnet18,"8,3,32,32",bf16,training,8,fast\n', "row 1: seconds is 'fast'"),
        (STEPS + 'H100,timm:resnet18,"8,3,32,32",bf16,training,0,0.1\n', "row 1: batch is"),
        (STEPS + 'Abacus,timm:resnet18,"8,3,32,32",bf16,training,8,0.1\n', "Abacus"),
        (STEPS + 'H100,timm:resnet18,"8,3,32,32",int7,training,8,0.1\n', "int7"),
        (STEPS + 'H100,timm:resnet18,"8,3,32,32",bf16,dreaming,8,0.1\n', "dreaming"),
    ],
)
def test_steps_that_cannot_be_measurements_are_refused(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises((ValueError, ForetellError), match=re.escape(error)):
        list(own_steps.read_labels(write_table(tmp_path / "mine.csv", text)))


def build_rows(source: str, precision: str, count: int) -> pd.DataFrame:
    values = {"device": "H100", "precision": precision, "many": 1, "rows_": range(1, count + 1), "columns_": 8}
    return pd.DataFrame(values | {"inner": 8, "seconds": 1e-5, "source": source})[COLUMNS]


def test_a_device_is_learned_from_one_source_in_each_class_of_precisions() -> None:
    rows = pd.concat(
        [build_rows("vidur", "fp16", 5), build_rows("aiconfigurator", "bf16", 3), build_rows("xla", "tf32", 2)]
    )
    assert choose_sources(rows).source.value_counts().to_dict() == {"aiconfigurator": 3, "xla": 2}


def test_rows_are_thinned_the_same_way_each_time() -> None:
    rows = thin_rows(build_rows("vidur", "fp16", 1000), most=100)
    assert len(rows) == 100
    assert rows.equals(thin_rows(build_rows("vidur", "fp16", 1000), most=100))


def test_calibration_takes_the_rows_nearest_to_what_the_command_measures() -> None:
    sizes = [round(2 ** (place / 2)) for place in range(2, 30)]
    grid = [(rows, columns, 512) for rows in sizes for columns in sizes]
    table = pd.DataFrame(grid, columns=["rows_", "columns_", "inner"])
    table = table.assign(device="H100", precision="bf16", many=1, source="mine", seconds=1e-5)
    chosen, rest = choose_kernels(table, get_device("H100"), build_products)
    assert len(chosen) == len(table) // 5
    assert not set(chosen.index) & set(rest.index)
    assert chosen.columns_.min() >= 45  # the command measures none below 64
    assert (chosen.rows_ >= 128).mean() > 0.6
    slower = table.assign(seconds=range(1, len(table) + 1))
    assert choose_kernels(slower, get_device("H100"), build_products)[0].index.equals(chosen.index)


def test_a_type_that_the_device_lacks_is_calibrated_by_kernels_too() -> None:
    assert len(choose_kernels(build_rows("mine", "bf16", 100), get_device("T4"), build_products)[0]) == 20


def test_boards_of_a_chip_are_one() -> None:
    assert find_chip("A100-PCIe-40") == find_chip("A100-80") != find_chip("A10")


def test_products_of_a_layer_have_the_sizes_of_its_model() -> None:
    layer = SimpleNamespace(
        num_tokens=64, num_tensor_parallel_workers=2, n_embd=4096, n_head=32, n_kv_head=8, n_expanded_embd=14336
    )
    products = find_layer_products(SimpleNamespace(**vars(layer), use_gated_mlp=True))
    sizes = {name: (call.rows, call.columns, call.inner) for name, call in products.items()}
    assert sizes == {
        "attn_pre_proj_ms": (64, (16 + 8) * 128, 4096),
        "attn_post_proj_ms": (64, 4096, 2048),
        "mlp_up_proj_ms": (64, 14336, 4096),
        "mlp_down_proj_ms": (64, 4096, 7168),
    }


def test_parts_of_whole_steps_run_by_default_and_any_that_is_asked_for() -> None:
    steps = choose_parts(None, labels=False)
    assert "whole" in steps
    assert not {"products", "passes"} & set(steps)
    assert choose_parts(None, labels=True) == []
    assert choose_parts(",".join(PARTS), labels=False) == list(PARTS)
    with pytest.raises(ValueError, match="known parts: products"):
        choose_parts("product", labels=False)


def test_long_comparisons_say_on_stderr_how_far_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    results = [show(judge("products", name, [1.1], [1.0])) for name in follow(["H100", "T4"], "products")]
    lines = capsys.readouterr().err.splitlines()
    assert [result.group for result in results] == ["H100", "T4"]
    assert lines[2].startswith("products: T4 (2 of 2)")
    assert "T4: mean 10.0 %" in lines[3]
