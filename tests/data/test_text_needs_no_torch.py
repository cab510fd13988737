"""Help pages, reports and tokenization start fast: the torch-free modules of data leave torch out."""

import subprocess
import sys

import pytest

MODULES = [
    *("config", "corpus", "dataset", "documents", "inputs", "opening", "orders", "standard_library"),
    *("text_stream", "token_file", "tokenization", "tokenizers"),
]


def test_modules_without_tensors_import_neither_torch_nor_transformers():
    code = f"import sys; [__import__('everlong.data.' + name) for name in {MODULES}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "tokenizers", "datasets", "pyarrow", "zstandard"} & set(loaded)


def test_the_configuration_defaults_to_text_that_needs_no_download():
    from everlong.data.config import DataConfig

    config = DataConfig()
    assert (config.data, config.held_out, config.tokenizer, config.text_column) == ((), (), None, "text")
    with pytest.raises(AttributeError):
        config.data = ("a.txt",)  # pyright: ignore[reportAttributeAccessIssue]
