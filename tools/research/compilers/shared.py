# SPDX-License-Identifier: Apache-2.0
"""Adds tests/opencl to the import path."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/opencl"))
