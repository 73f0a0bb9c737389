# SPDX-License-Identifier: Apache-2.0
# Hosts that can be lost: $hosts processes, or network namespaces if there are more than two; none without $hosts. Sourced
# after ranks.sh.
# shellcheck shell=sh disable=SC2154
name=txl$$

# Hosts that are processes do not read each other's memory: UCX aborts a process whose peer dies meanwhile.
apart="env UCX_TLS=tcp,self TX_COMM_SHM=2"

# await COMMAND...: waits for its success, for at most 100 seconds
await()
{
    tries=0
    until "$@" 2> /dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || { fail "waited for: $*"; return; }
        sleep 0.1
    done
}

# await_line FOLDER STEP: waits until the log has that step
await_line()
{
    await grep -q "^{\"step\": $2, " "$work/$1/log.jsonl"
}

# kill_host FILE: kills the processes whose ids are in the file, with all descendants. Another process may have the id of
# one that has ended, so those are left out that do not have $work in their environment.
kill_host()
{
    victims=
    for process in $(cat "$1"); do
        tr '\0' '\n' 2> /dev/null < "/proc/$process/environ" | grep -qx "TX_TEST_HOST=$work" || continue
        victims="$victims $process"
    done
    found=$victims
    while [ -n "$found" ]; do
        # shellcheck disable=SC2046,SC2086
        found=$(echo $(for process in $found; do ps -o pid= --ppid "$process"; done))
        victims="$victims $found"
    done
    # shellcheck disable=SC2086
    [ -z "$victims" ] || kill -s KILL $victims 2> /dev/null
}

if [ "${hosts:-0}" -eq 2 ]; then
    # The launcher starts a host by this command, instead of ssh.
    cat > "$work/launch" << END
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
host=\$1
shift
[ ! -e $work/down-\$host ] || exit 255
echo \$\$ >> $work/processes-\$host
export TX_TEST_HOST=$work
eval "exec \$*"
END
    chmod +x "$work/launch"
    start_launch()
    {
        $apart timeout -s KILL 300 "$bin/txlaunch" --launcher "$launcher" \
            --launcher_args "-launcher ssh -launcher-exec $work/launch" --hosts 127.0.0.2:2,127.0.0.3:2 "$@"
    }
    lose_host()
    {
        : > "$work/down-127.0.0.$(($1 + 1))"
        kill_host "$work/processes-127.0.0.$(($1 + 1))"
    }
    return_host()
    {
        rm "$work/down-127.0.0.$(($1 + 1))"
    }
elif [ "${hosts:-0}" -gt 2 ]; then
    skip()
    {
        echo "skipped: $*"
        exit 77
    }
    clean()
    {
        for i in $(seq 0 "$hosts") b; do
            # shellcheck disable=SC2046
            kill -s KILL $(ip netns pids "$name$i" 2> /dev/null) 2> /dev/null
            ip netns del "$name$i" 2> /dev/null
        done
        kill "$shell" 2> /dev/null
        rm -rf "$work"
    }
    shell=
    [ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
    command -v ip > /dev/null || skip "ip is missing: apt-get install iproute2"
    command -v unshare > /dev/null || skip "unshare is missing: apt-get install util-linux"
    ip netns add "${name}b" 2> "$work/err" || skip "no network namespaces here: $(cat "$work/err")"
    trap clean EXIT
    trap 'exit 1' INT TERM
    ip -n "${name}b" link add bridge type bridge 2> "$work/err" || skip "no bridges here: $(cat "$work/err")"
    ip -n "${name}b" link set bridge up
    for i in $(seq 0 "$hosts"); do # host 0 only has the launcher
        ip netns add "$name$i"
        ip link add txcable netns "$name$i" type veth peer name "port$i" netns "${name}b"
        ip -n "${name}b" link set "port$i" master bridge up
        ip -n "$name$i" addr add "10.77.95.$((i + 1))/24" dev txcable
        ip -n "$name$i" link set lo up
        ip -n "$name$i" link set txcable up
    done
    list=
    for i in $(seq 1 "$hosts"); do
        list=$list${list:+,}10.77.95.$((i + 1)):2
    done
    command -v python3 > /dev/null || skip "python3 is missing"
    python3 "${0%/*}/shelld.py" serve "$work/shell" &
    shell=$!
    await test -S "$work/shell"
    # Called as ssh would be: [OPTION...] HOST COMMAND...
    cat > "$work/launch" << END
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
host=$name\$((\${1##*.} - 1))
shift
ip -n \$host link show txcable | grep -q 'state UP' || { sleep 30; exit 255; }
exec python3 ${0%/*}/shelld.py run $work/shell "exec ip netns exec \$host unshare --uts sh -c 'hostname \$host; exec \$*'"
END
    chmod +x "$work/launch"
    start_launch()
    {
        timeout -s KILL 400 ip netns exec "${name}0" unshare --uts sh -c 'hostname "$0"; exec "$@"' "${name}0" \
            "$bin/txlaunch" --launcher "$launcher" --launcher_args \
            "-launcher ssh -launcher-exec $work/launch -iface txcable -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES txcable" \
            --hosts "$list" "$@"
    }
    # lose_host HOST WAY: 0: its processes are killed, and the launcher sees its connections closed; 1: its cable is cut,
    # and nobody sees anything
    lose_host()
    {
        if [ "$2" -eq 0 ]; then
            # shellcheck disable=SC2046
            kill -s KILL $(ip netns pids "$name$1")
        fi
        ip -n "$name$1" link set txcable down
        cut=$2
    }
    return_host()
    {
        if [ "$cut" -eq 1 ]; then # it was off
            # shellcheck disable=SC2046
            kill -s KILL $(ip netns pids "$name$1") 2> /dev/null
        fi
        ip -n "$name$1" link set txcable up
    }
fi
