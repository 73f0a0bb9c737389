# SPDX-License-Identifier: Apache-2.0
# Start of the tests of txtrain on a device, with the arguments BIN-FOLDER LAUNCHER DEVICE (LAUNCHER "": no ranks).
# Sourced.
# shellcheck shell=sh
bin=$1
launcher=$2
device=$3
. "${0%/*}/../program.sh"
need_device
