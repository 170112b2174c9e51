# A load of files that is checked, for scenarios that mount disks: $disks are the names of the block
# devices, each mounted at /mnt/NAME. $KILLS is how often each part is killed, and $STOP_SECONDS for how
# long it is stopped.

. /parameters
kills=$(seq "$KILLS")

# write_files_again DISK: each is flushed, and read back from the disk.
write_files_again() {
	number=0
	while [ ! -e /run/stop ]; do
		number=$((number + 1))
		at=$((number % 4))
		dd if=/pattern of="/mnt/$1/file$at" bs=1M skip="$at" count=1 conv=fsync || touch /run/differs
		echo 3 >/proc/sys/vm/drop_caches
		dd if=/pattern bs=1M skip="$at" count=1 | cmp - "/mnt/$1/file$at" || touch /run/differs
		echo "$number" >"/run/$1.new"
		mv "/run/$1.new" "/run/$1"
	done
	touch "/run/$1-stopped"
}

# exercise_again DISK: by fsx, which compares each byte that it reads with what it wrote.
exercise_again() {
	seed=0
	while [ ! -e /run/stop ]; do
		seed=$((seed + 1))
		fsx -q -f /fsx.toml -N "$FSX_OPERATIONS" -S "$seed" -P /tmp "/mnt/$1/exercised" >"/run/$1-fsx.log" 2>&1 || {
			touch /run/differs
			break
		}
		echo "$seed" >"/run/$1-fsx.new"
		mv "/run/$1-fsx.new" "/run/$1-fsx"
	done
	touch "/run/$1-fsx-stopped"
}

# Two loads of each disk have a count in /run.
start_load() {
	for name in $disks; do
		echo 0 | tee "/run/$name" >"/run/$name-fsx"
		write_files_again "$name" >/dev/null 2>&1 </dev/null &
		exercise_again "$name" >/dev/null 2>&1 </dev/null &
	done
}

loads() {
	for name in $disks; do
		echo "$name" "$name-fsx"
	done
}

# more FILE NUMBER: or it will never be.
more() {
	[ -e /run/differs ] || [ "$(cat "$1")" -ge "$2" ]
}

no_difference() {
	if [ -e /run/differs ]; then
		cat /run/*-fsx.log
		return 1
	fi
}

# The loads go on: what waits has come through.
go_on() {
	for name in $(loads); do
		patiently more "/run/$name" $(($(cat "/run/$name") + 2))
	done
	no_difference
}

has_stopped() {
	for name in $(loads); do
		[ -e "/run/$name-stopped" ] || return 1
	done
}

stop_load() {
	touch /run/stop
	patiently has_stopped
	for name in $(loads); do
		echo "$name: $(cat "/run/$name") runs"
	done
	no_difference
}

# verify DISK SIZE SMALLEST: requests of many sizes at once, from this one on, where each block is written
# once, and read; and then reads and writes of 4 KiB.
verify() {
	for sizes in "--rw=randwrite --bsrange=$3-2M --fsync=16 --size=$2" "--rw=randrw --bs=4k --size=16M"; do
		# shellcheck disable=SC2086
		fio --name=v --filename="/dev/$1" --direct=1 --ioengine=libaio --iodepth=32 $sizes \
			--randrepeat=0 --verify=crc32c --verify_fatal=1 --minimal >/run/fio
	done
}

# make_ext4 DISK
make_ext4() {
	mkfs.ext4 -q -b 4096 "/dev/$1"
	mkdir -p "/mnt/$1"
	mount -t ext4 "/dev/$1" "/mnt/$1"
}

# make_xfs DISK
make_xfs() {
	mkfs.xfs -q -f "/dev/$1"
	mkdir -p "/mnt/$1"
	mount -t xfs "/dev/$1" "/mnt/$1"
}

# check_files DISK TYPE CHECKER…: the file system is whole by this command, and so are its files.
check_files() {
	name=$1 type=$2
	shift 2
	umount "/mnt/$name"
	"$@" "/dev/$name"
	mount -t "$type" "/dev/$name" "/mnt/$name"
	for at in 0 1 2 3; do
		dd if=/pattern bs=1M skip="$at" count=1 | cmp - "/mnt/$name/file$at"
	done
	umount "/mnt/$name"
}

# The load goes on while the target and the front end are killed, and each part is stopped; then the
# file systems are whole, as the scenario's `check` finds.
carry_on() {
	step loaded start_load
	step before go_on
	for round in $kills; do
		step "round-$round" go_on
	done
	for round in $kills; do
		step "front-end-$round" go_on
	done
	step target-stops go_on
	step front-end-stops go_on
	step machine-stops go_on
	step went-on go_on
	step stopped stop_load
	step checked check
}
