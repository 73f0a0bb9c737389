#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs all cases from practice: all.sh BIN-FOLDER TEST-DATA
status=0
for script in "${0%/*}"/*.sh; do
    case $script in */all.sh | */cases.sh) continue ;; esac
    printf '%s: ' "${script##*/}"
    sh "$script" "$@" || status=1
done
exit $status
