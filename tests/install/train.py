# SPDX-License-Identifier: Apache-2.0
# Fine-tunes a model from Python: train.py LIBTX MODEL TEXT OUTPUT_DIR
import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_void_p

tx = ctypes.CDLL(sys.argv[1])
tx.tx_error.restype = c_char_p
tx.tx_job_set.argtypes = [c_void_p, c_char_p, c_char_p]
tx.tx_job_result.argtypes = [c_void_p, c_char_p, POINTER(c_double)]
tx.tx_job_run.argtypes = tx.tx_job_free.argtypes = [c_void_p]


def check(status):
    if status:
        sys.exit("train.py: " + tx.tx_error().decode())


class Listener(ctypes.Structure):
    names = "begin step log evaluation saved results note warn progress stop save".split()
    _fields_ = [("size", c_size_t), ("context", c_void_p)] + [(name, CFUNCTYPE(c_int, c_void_p, c_char_p))
                                                              for name in names]


job = c_void_p()
check(tx.tx_job_create(byref(job)))
options = {"model_name_or_path": sys.argv[2], "train_file": sys.argv[3], "output_dir": sys.argv[4],
           "learning_rate": 1e-3, "max_steps": 4}
for name, value in options.items():
    check(tx.tx_job_set(job, name.encode(), str(value).encode()))
listener = Listener(size=ctypes.sizeof(Listener))
listener.note = Listener._fields_[8][1](lambda context, line: print(line.decode()) or 0)
check(tx.tx_job_listen(job, byref(listener)))
check(tx.tx_job_run(job))
loss = c_double()
check(tx.tx_job_result(job, b"train_loss", byref(loss)))
print(f"train_loss {loss.value:.6f}")
tx.tx_job_free(job)
