# SPDX-License-Identifier: Apache-2.0
"""TX trains and runs transformers on CPUs and OpenCL devices, with the files of Hugging Face.

    import tx

    tx.Trainer(train_file="book.txt", output_dir="out", max_steps=200).train()
    print(tx.LM("out").generate("Once upon a time", max_new_tokens=50, temperature=0.8))

The programs txtrain, txgen and the others are installed too: `txtrain --help`."""
import json as _json
from importlib import metadata as _metadata

from ._library import Error, byref as _byref, c_void_p as _pointer, check as _check, encode as _encode, lib as _lib
from ._library import own_text as _own_text
from ._lm import Embedder, LM
from ._train import Callback, Trainer, TrainOutput

__all__ = ["Callback", "Embedder", "Error", "LM", "TrainOutput", "Trainer", "topology"]
try:
    __version__ = _metadata.version("tx-train")
except _metadata.PackageNotFoundError:  # imported from a source tree
    __version__ = "unknown"


def topology(path=None):
    """The GPUs, NICs and OpenCL devices of this machine and how they are connected, as the dict of txtopo --json; or of
    another machine, from hwloc's XML or the text of nvidia-smi topo -m in a file."""
    made = _pointer()
    _check(_lib.tx_topology_read(_encode(path), _byref(made)) if path else _lib.tx_topology_live(None, _byref(made)))
    try:
        return _json.loads(_own_text(_lib.tx_topology_json(made)))
    finally:
        _lib.tx_topology_free(made)
