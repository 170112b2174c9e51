#!/bin/busybox sh
# The first process of the guest: random reads of 4 KiB, one at a time, beside bulk reads of 64 KiB,
# 16 at a time, from the same disk, with and without a real-time I/O priority, and from a disk of a
# local file, in turns; then the same with RocksDB's random reads, where it has keys. Says the results
# over the console, and powers off.
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

# The disk of a local file has this serial number.
local=/dev/vdb disk=/dev/vda
[ "$(cat /sys/block/vdb/serial)" = local ] || { local=/dev/vda disk=/dev/vdb; }

# load NAME DISK ARGUMENT…: one line of fio's for programs.
load() {
	name=$1
	from=$2
	shift 2
	fio --name="$name" --filename="$from" --direct=1 --rw=randread --norandommap --time_based \
		--runtime="$SECONDS_EACH" --output-format=terse --terse-version=3 "$@"
}

# measure NAME DISK COMMAND…: reads per second and their p99 in microseconds, and MiB per second of bulk.
measure() {
	name=$1
	from=$2
	shift 2
	load bulk "$from" --bs=64k --iodepth=16 --ioengine=libaio >/bulk &
	"$@" fio --name=reads --filename="$from" --direct=1 --rw=randread --norandommap --bs=4k \
		--time_based --runtime="$SECONDS_EACH" --output-format=terse --terse-version=3 >/reads
	wait
	p99=$(tr ';' '\n' </reads | sed -n 's/^99\.0*%=//p' | head -n 1)
	echo "RESULT $name $(cut -d';' -f8 /reads) $p99 $(($(cut -d';' -f7 /bulk) / 1024))"
}

# fill NAME DISK: a database in a file system.
fill() {
	mkfs.ext4 -q "$2"
	mkdir -p "/mnt/$1"
	mount -t ext4 "$2" "/mnt/$1"
	db "$1" fillseq >/dev/null
}

# measure_database NAME DISK FILLED COMMAND…: the same of a database that is filled.
measure_database() {
	name=$1
	from=$2
	filled=$3
	shift 3
	load bulk "$from" --bs=64k --iodepth=16 --ioengine=libaio >/bulk &
	bulk=$!
	"$@" sh -c '. /db_bench.sh; db "$@"' db "$filled" readrandom --use_existing_db=1 --duration="$SECONDS_EACH" >/reads
	wait "$bulk"
	echo "RESULT database-$name $(numbers </reads)"
}

for round in $(seq "$RUNS"); do
	measure without "$disk" env
	measure with "$disk" ionice -c 1
	measure local "$local" env
done
if [ "$KEYS" -gt 0 ]; then
	export keys="$KEYS" work=/mnt
	. /db_bench.sh
	fill disk "$disk"
	fill local "$local"
	for round in $(seq "$RUNS"); do
		measure_database without "$disk" disk env
		measure_database with "$disk" disk ionice -c 1
		measure_database local "$local" local env
	done
fi
echo "RESULT end"
