#!/bin/busybox sh
# The first process of the guest: random reads of 4 KiB, one at a time, beside bulk reads of 64 KiB,
# 16 at a time, from the same disk, with and without a real-time I/O priority, in turns. Says the
# results over the console, and powers off.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
trap 'poweroff -n -f' EXIT
for module in $(cat /modules/order); do
	insmod "/modules/$module"
done
. /parameters

# load NAME ARGUMENT…: one line of fio's for programs.
load() {
	name=$1
	shift
	fio --name="$name" --filename=/dev/vda --direct=1 --rw=randread --norandommap --time_based \
		--runtime="$SECONDS_EACH" --output-format=terse --terse-version=3 "$@"
}

# measure NAME COMMAND…: reads per second and their p99 in microseconds, and MiB per second of bulk.
measure() {
	name=$1
	shift
	load bulk --bs=64k --iodepth=16 --ioengine=libaio >/bulk &
	"$@" fio --name=reads --filename=/dev/vda --direct=1 --rw=randread --norandommap --bs=4k \
		--time_based --runtime="$SECONDS_EACH" --output-format=terse --terse-version=3 >/reads
	wait
	p99=$(tr ';' '\n' </reads | sed -n 's/^99\.0*%=//p' | head -n 1)
	echo "RESULT $name $(cut -d';' -f8 /reads) $p99 $(($(cut -d';' -f7 /bulk) / 1024))"
}

for round in $(seq "$RUNS"); do
	measure without env
	measure with ionice -c 1
done
echo "RESULT end"
