#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_cards.sh BIN: txtopo --watch and log.jsonl have the measurements of a made-up /sys: an AMD card, an Intel card
# that only counts energy, one whose driver reports nothing, and broken files.
bin=$1
. "${0%/*}/../program.sh"
export TX_SYS_ROOT="$work/root"
pci=$work/root/sys/devices/pci0000:00
drm=$work/root/sys/class/drm

# card N BUS DRIVER: a card whose driver reports nothing yet
card()
{
    mkdir -p "$pci/$2/hwmon/hwmon$(($1 + 7))" "$drm/card$1" "$work/root/sys/bus/pci/drivers/$3"
    ln -s "../../../devices/pci0000:00/$2" "$drm/card$1/device"
    ln -s "../../../bus/pci/drivers/$3" "$pci/$2/driver"
}

card 0 0000:00:02.0 quiet
"$bin/txtopo" --watch 0 > "$work/out" 2> "$work/err"
[ $? -eq 1 ] && grep -q "no driver reports" "$work/err" || fail "a card that reports nothing is shown"
card 1 0000:03:00.0 amdgpu
echo 17163091968 > "$pci/0000:03:00.0/mem_info_vram_total"
echo 4294967296 > "$pci/0000:03:00.0/mem_info_vram_used"
echo 37 > "$pci/0000:03:00.0/gpu_busy_percent"
echo 56000 > "$pci/0000:03:00.0/hwmon/hwmon8/temp1_input"
echo 120250000 > "$pci/0000:03:00.0/hwmon/hwmon8/power1_average"
card 3 0000:06:00.0 xe
echo 5000000 > "$pci/0000:06:00.0/hwmon/hwmon10/energy1_input"
echo Unknown > "$pci/0000:06:00.0/gpu_busy_percent"
: > "$pci/0000:06:00.0/mem_info_vram_total"

"$bin/txtopo" --watch 0 > "$work/out" 2> "$work/err" || fail "--watch 0"
printf '%s\n' "card1   0000:03:00.0     4.0 of   16.0 GiB   37.0 %   56.0 C   120.2 W" \
    "card3   0000:06:00.0       -         -          -        -         -" > "$work/wanted"
sed -i 's/ *$//' "$work/out" "$work/wanted"
diff "$work/wanted" "$work/out" || fail "--watch 0"
"$bin/txtopo" --watch 0 --json > "$work/out"
printf '%s' '[{"card": "card1", "bus": "0000:03:00.0", "memory": 17163091968, "memory_used": 4294967296, ' \
    '"use": 0.37, "celsius": 56, "watts": 120.25}, {"card": "card3", "bus": "0000:06:00.0"}]' > "$work/wanted"
tr -d '\n' < "$work/out" | cmp -s - "$work/wanted" || fail "--watch 0 --json"

# 10 J in about half a second are about 20 W.
timeout 5 "$bin/txtopo" --watch 0.5 > "$work/out" &
watching=$!
sleep 0.25
echo 15000000 > "$pci/0000:06:00.0/hwmon/hwmon10/energy1_input"
sleep 0.6
kill $watching
wait $watching 2> /dev/null
awk '$1 == "card3" && $(NF) == "W" && $(NF - 1) > 5 && $(NF - 1) < 25 { found = 1 } END { exit !found }' "$work/out" ||
    fail "no power from energy: $(cat "$work/out")"
for wrong in -1 x 99999; do
    "$bin/txtopo" --watch=$wrong > "$work/out" 2> "$work/err"
    [ $? -eq 2 ] || fail "--watch=$wrong"
done

# fdinfo: an integrated GPU, whose memory is the host's, with two clients. One of them has two descriptors. Its busiest
# engine computes for about 0.3 of 0.6 s, on two engines of that name. xe counts cycles.
card 4 0000:00:03.0 i915
client() # PROCESS DESCRIPTOR ID BUS LINE...
{
    mkdir -p "$work/root/proc/$1/fd" "$work/root/proc/$1/fdinfo"
    ln -sf /dev/dri/renderD128 "$work/root/proc/$1/fd/$2"
    printf 'pos:\t0\ndrm-driver:\ti915\ndrm-client-id:\t%s\ndrm-pdev:\t%s\n' "$3" "$4" > "$work/root/proc/$1/fdinfo/$2"
    process=$1 descriptor=$2
    shift 4
    printf '%s\n' "$@" >> "$work/root/proc/$process/fdinfo/$descriptor"
}
client 17 3 5 0000:00:03.0 "drm-resident-system0: 1048576 KiB" "drm-memory-system0: 1048576 KiB" \
    "drm-engine-render: 1000000000 ns" "drm-engine-capacity-render: 2"
client 17 4 5 0000:00:03.0 "drm-resident-system0: 1048576 KiB"
client 18 9 6 0000:00:03.0 "drm-resident-system0: 512 MiB" "drm-resident-stolen: nonsense"
client 19 3 1 0000:06:00.0 "drm-resident-gtt: 7 GiB" "drm-resident-vram0: 2048 MiB" "drm-cycles-rcs: 100" \
    "drm-total-cycles-rcs: 1000"
client 20 3 1 9999:06:00.0 "drm-resident-vram0: 2048 MiB"
mkdir -p "$work/root/proc/self/fd" "$work/root/proc/21/fd"
ln -s /dev/null "$work/root/proc/21/fd/1"
"$bin/txtopo" --watch 0 | grep "card4 .* 1.5 of" > "$work/out" || fail "memory by fdinfo"
timeout 5 "$bin/txtopo" --watch 0.6 > "$work/out" &
watching=$!
sleep 0.3
client 17 3 5 0000:00:03.0 "drm-resident-system0: 1048576 KiB" "drm-engine-render: 1600000000 ns" \
    "drm-engine-capacity-render: 2" "drm-engine-copy: 5 ns"
client 19 3 1 0000:06:00.0 "drm-resident-vram0: 2048 MiB" "drm-cycles-rcs: 350" "drm-total-cycles-rcs: 2000"
sleep 0.7
kill $watching
wait $watching 2> /dev/null
awk '$1 == "card4" && $7 == "%" && $6 > 25 && $6 <= 51 { one = 1 } $1 == "card3" && $3 == "2.0" && $6 == "25.0" { two = 1 }
    END { exit !(one && two) }' "$work/out" || fail "no use by fdinfo: $(cat "$work/out")"

# A run on a device other than the cpu logs them; one on the cpu does not.
write_small_text
for device in cpu opencl; do
    [ $device = cpu ] || "$bin/txtrain" --list_devices | grep -q "^opencl" || continue
    "$bin/txtrain" --config_overrides n_layer=1,n_embd=16,n_head=2,n_positions=32 --train_file "$work/text" \
        --max_steps 2 --threads 1 --device $device --output_dir "$work/$device" > "$work/out" 2> "$work/err" ||
        fail "a run on $device"
done
! grep -q cards "$work/cpu/log.jsonl" || fail "a run on the cpu logs GPUs"
if [ -d "$work/opencl" ]; then
    grep -q '"step": 1, "cards": \[{"card": "card1".*"watts": 120.25}' "$work/opencl/log.jsonl" ||
        fail "log.jsonl has no measurements: $(cat "$work/opencl/log.jsonl")"
    "$bin/txplot" "$work/opencl" -o "$work/page" > "$work/out" 2> "$work/err" || fail "txplot"
fi
verdict ""
