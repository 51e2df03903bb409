"""Models are loaded from code, configurations and programs."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from tests.workloads.models import Perceptron

from foretell.core.errors import MissingExtraError, NotFoundError, WorkloadError
from foretell.core.workload import StepPhase
from foretell.workloads.api import read_workload, require_torch
from foretell.workloads.model_loading import load_model
from foretell.workloads.step_options import StepOptions, parse_input

FILE = Path(__file__).parent / "models.py"


class TestCode:
    @pytest.mark.parametrize("name", ["build_perceptron", "Perceptron", "READY"])
    def test_a_factory_a_class_and_a_model_are_all_models(self, name: str) -> None:
        loaded = load_model(f"{FILE}:{name}")
        assert type(loaded.model).__name__ == "Perceptron"

    def test_a_model_is_built_without_data(self) -> None:
        model = load_model(f"{FILE}:build_perceptron").model
        assert {each.device.type for each in model.parameters()} == {"meta"}

    def test_it_may_be_built_with_data(self) -> None:
        model = load_model(f"{FILE}:build_perceptron", on_meta=False).model
        assert {each.device.type for each in model.parameters()} == {"cpu"}

    def test_arguments_are_passed_by_name(self) -> None:
        model = load_model(f"{FILE}:build_perceptron", arguments={"classes": 3}).model
        assert model.get_parameter("head.weight").shape == (3, 16)

    def test_a_module_is_imported_from_the_current_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.copy(FILE, tmp_path / "my_models.py")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "my_models", raising=False)
        assert len(read_workload("my_models:build_perceptron", [parse_input("4,16")]).operators) > 10

    def test_code_that_reads_values_while_it_builds_is_built_with_data(self) -> None:
        assert len(read_workload(f"{FILE}:Rates", [parse_input("4,16")]).operators) > 5

    def test_a_batch_replaces_the_inputs_own(self) -> None:
        workload = read_workload(f"{FILE}:Perceptron", [parse_input("4,16")], batch=7)
        assert (workload.batch, workload.operators[0].output) == (7, (7, 16))
        assert workload.name == f"{FILE}:Perceptron"


class TestMistakes:
    def test_an_error_of_the_code_is_shown_with_its_line(self) -> None:
        with pytest.raises(WorkloadError, match=r"models.py:\d+ 'raise KeyError") as error:
            load_model(f"{FILE}:build_broken")
        assert "KeyError: 'no such layer'" in str(error.value)
        assert "\n" not in str(error.value)

    def test_an_error_of_an_import_is_shown_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "wrong.py").write_text("import json\nimport surely_no_such_module\n")
        with pytest.raises(WorkloadError, match=r"wrong.py:2 'import surely_no_such_module'"):
            load_model(f"{tmp_path / 'wrong.py'}:build")

    def test_a_mistake_of_syntax_names_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "wrong.py").write_text("x = 1\ndef build(:\n")
        with pytest.raises(WorkloadError, match=r"wrong.py.*line 2"):
            load_model(f"{tmp_path / 'wrong.py'}:build")

    def test_lazy_modules_are_an_error_until_they_have_shapes(self, tmp_path: Path) -> None:
        lines = (
            "import torch\n\ndef build(called: bool):\n    model = torch.nn.Sequential(torch.nn.LazyLinear(4))\n"
            "    if called:\n        model(torch.zeros(1, 3))\n    return model\n"
        )
        (tmp_path / "lazy.py").write_text(lines, encoding="utf-8")
        source = f"{tmp_path / 'lazy.py'}:build"
        with pytest.raises(WorkloadError, match=r"'0.weight' is of a lazy module.*Call the model once"):
            load_model(source, arguments={"called": False})
        loaded = load_model(source, arguments={"called": True})
        assert [tuple(each.shape) for each in loaded.model.parameters()] == [(4, 3), (4,)]

    def test_code_that_exits_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "ends.py").write_text("raise SystemExit(3)\n")
        with pytest.raises(WorkloadError, match="SystemExit"):
            load_model(f"{tmp_path / 'ends.py'}:build")

    @pytest.mark.parametrize("name", ["build_nothing", "NUMBER"])
    def test_a_value_that_is_not_a_model_is_an_error(self, name: str) -> None:
        with pytest.raises(WorkloadError, match=r"expected an nn\.Module"):
            load_model(f"{FILE}:{name}")

    def test_an_unknown_factory_lists_the_known_ones(self) -> None:
        with pytest.raises(NotFoundError, match=r"Known: .*Perceptron.*build_perceptron"):
            load_model(f"{FILE}:build_percepton")

    def test_an_unknown_argument_shows_the_signature(self) -> None:
        with pytest.raises(WorkloadError, match=r"takes \(width.*no argument 'widht'"):
            load_model(f"{FILE}:build_perceptron", arguments={"widht": 3})

    @pytest.mark.parametrize("source", ["nowhere.py:build", "no.such.module:build", "nowhere.pt2", "nowhere.json"])
    def test_a_missing_source_shows_the_valid_forms(self, source: str) -> None:
        with pytest.raises(NotFoundError, match=r"Expected FILE.py:FACTORY"):
            load_model(source)

    @pytest.mark.parametrize("source", ["model", ":build", "file.py:"])
    def test_a_source_without_a_factory_shows_the_valid_forms(self, source: str) -> None:
        with pytest.raises(WorkloadError, match=r"Expected FILE.py:FACTORY"):
            load_model(source)

    def test_unknown_inputs_are_an_error(self) -> None:
        with pytest.raises(WorkloadError, match="--input"):
            read_workload(f"{FILE}:Perceptron")

    def test_without_the_framework_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'foretell\[torch\]'"):
            require_torch()


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 200,
}
CONFIGURATIONS = {
    "BertForMaskedLM": {"model_type": "bert", **SMALL},
    "BertForSequenceClassification": {"model_type": "bert", **SMALL},
    "GPT2LMHeadModel": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 200},
    "LlamaForCausalLM": {"model_type": "llama", "num_key_value_heads": 2, **SMALL},
    "ViTForImageClassification": {"model_type": "vit", "image_size": 32, "patch_size": 8, **SMALL},
}


class TestConfigurations:
    @pytest.mark.parametrize("name", CONFIGURATIONS)
    def test_a_configuration_is_a_model_with_inputs_and_a_loss(self, name: str, tmp_path: Path) -> None:
        pytest.importorskip("transformers")
        file = tmp_path / "config.json"
        file.write_text(json.dumps({"architectures": [name], **CONFIGURATIONS[name]}))
        workload = read_workload(str(tmp_path if "Bert" in name else file), batch=2)
        assert workload.batch == 2
        kinds = [each.kind for each in workload.operators if each.phase is StepPhase.FORWARD]
        assert kinds.count("scaled_dot_product_attention") == 2
        assert kinds[-1] == "cross_entropy"
        attention = [each for each in workload.operators if each.kind == "scaled_dot_product_attention"]
        assert [each.phase.value for each in attention] == ["forward"] * 2 + ["backward"] * 2
        assert {each.kernels for each in attention} == {1}

    def test_repeated_layers_are_checkpointed(self, tmp_path: Path) -> None:
        pytest.importorskip("transformers")
        configuration = {"architectures": ["LlamaForCausalLM"], **CONFIGURATIONS["LlamaForCausalLM"]}
        (tmp_path / "config.json").write_text(json.dumps(configuration))
        workload = read_workload(str(tmp_path), options=StepOptions(checkpointing=True), batch=2)
        again = [
            layer for each, layer in zip(workload.operators, workload.layers, strict=True) if each.get("recomputed", 0)
        ]
        assert {layer.split(".")[2] for layer in again} == {"0", "1"}

    def test_an_invalid_configuration_is_an_error(self, tmp_path: Path) -> None:
        pytest.importorskip("transformers")
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(WorkloadError, match="is not JSON"):
            load_model(str(tmp_path))
        (tmp_path / "config.json").write_text('{"model_type": "no such type"}')
        with pytest.raises(WorkloadError, match=r"config.json failed"):
            load_model(str(tmp_path))

    def test_without_its_library_it_says_what_to_install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "config.json").write_text("{}")
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtraError, match=r"foretell\[huggingface\]"):
            load_model(str(tmp_path))


class TestPrograms:
    def test_a_saved_program_has_the_operators_of_its_model(self, tmp_path: Path) -> None:
        model = Perceptron()
        program = torch.export.export(model, (torch.zeros(4, 16),))
        torch.export.save(program, tmp_path / "model.pt2")
        workload = read_workload(str(tmp_path / "model.pt2"))
        direct = read_workload(f"{FILE}:Perceptron", [parse_input("4,16")])
        assert [(each.kind, each.inputs) for each in workload.operators] == [
            (each.kind, each.inputs) for each in direct.operators
        ]

    def test_an_invalid_program_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "model.pt2").write_text("nothing")
        with pytest.raises(WorkloadError, match=r"model.pt2 failed"):
            load_model(str(tmp_path / "model.pt2"))
