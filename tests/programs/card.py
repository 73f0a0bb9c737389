# SPDX-License-Identifier: Apache-2.0
"""card.py TEST_CARD: huggingface_hub reads the cards that TX writes, odd names and all."""
import os
import subprocess
import sys
import tempfile

import oracle  # noqa: F401 (skips the test if a package is missing)

from huggingface_hub import ModelCard

with tempfile.TemporaryDirectory() as folder:
    first, second = os.path.join(folder, "first"), os.path.join(folder, 'no: "quotes" # or [brackets]')
    for path in (first, second):
        os.mkdir(path)
    subprocess.run([sys.argv[1], first, second], check=True)
    card = ModelCard.load(os.path.join(first, "README.md")).data
    assert card.library_name == "transformers" and card.base_model == "openai-community/gpt2"
    assert card.datasets == ["wikitext"] and card.tags == ["generated_from_trainer", "tx"]
    assert card.model_name == "first"
    (result,) = card.eval_results
    assert result.metric_type == "perplexity" and result.metric_value == 25.7903 and result.dataset_name == "wikitext"
    card = ModelCard.load(os.path.join(second, "README.md")).data
    assert card.model_name == 'no: "quotes" # or [brackets]', card.model_name
    (result,) = card.eval_results
    assert result.dataset_name == "no\n: - \x85\u2028\x7f\ufeff\xe9\U0001f600|\\'", repr(result.dataset_name)
print("both cards were read")
