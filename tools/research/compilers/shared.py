# SPDX-License-Identifier: Apache-2.0
"""Lets scripts of this folder import those of tests/opencl."""
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/opencl"))
