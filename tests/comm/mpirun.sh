#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun.sh LAUNCHER RANKS PROGRAM...: runs PROGRAM on so many ranks, more than there are cores if need be.
launcher=$1
ranks=$2
shift 2
command -v "$launcher" > /dev/null || {
    echo "$launcher is missing: apt-get install mpich"
    exit 77
}
# Open MPI refuses root and more ranks than cores unless told; versions 4 and 5 read different names.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe TX_TEST_RANKS=$ranks \
    exec "$launcher" -n "$ranks" "$@"
