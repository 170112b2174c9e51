# A guest with a disk by vhost-user, /dev/vda, over a target that is killed and started again meanwhile,
# as is the disk's back end. The test outside acts when it sees a step end.

attach() {
	[ "$(cat /sys/block/vda/size)" -gt 0 ]
	[ "$(cat /sys/block/vda/queue/logical_block_size)" = 4096 ]
	[ "$(cat /sys/block/vda/serial)" = a-disk ]
	cat /sys/block/vda/size
}

make_file_system() {
	mkfs.ext4 -q -b 4096 /dev/vda
	mkdir -p /mnt/vda
	mount -t ext4 /dev/vda /mnt/vda
}

# Each file is flushed, and read back from the disk.
write_files_again() {
	number=0
	while [ ! -e /run/stop ]; do
		number=$((number + 1))
		at=$((number % 4))
		dd if=/pattern of="/mnt/vda/file$at" bs=1M skip="$at" count=1 conv=fsync || touch /run/differs
		echo 3 >/proc/sys/vm/drop_caches
		dd if=/pattern bs=1M skip="$at" count=1 | cmp - "/mnt/vda/file$at" || touch /run/differs
		echo "$number" >/run/vda.new
		mv /run/vda.new /run/vda
	done
	touch /run/vda-stopped
}

start_load() {
	echo 0 >/run/vda
	write_files_again >/dev/null 2>&1 </dev/null &
}

# more FILE NUMBER
more() {
	[ "$(cat "$1")" -ge "$2" ]
}

# The load goes on: what waits for the target has come through.
go_on() {
	patiently more /run/vda $(($(cat /run/vda) + 2))
	[ ! -e /run/differs ]
}

has_stopped() {
	[ -e /run/vda-stopped ]
}

stop_load() {
	touch /run/stop
	patiently has_stopped
	[ ! -e /run/differs ]
}

# Real-time I/O: these requests, and no others, are of the class of latency.
ask_in_real_time() {
	ionice -c 1 dd if=/dev/vda of=/dev/null bs=4096 count=100 iflag=direct
}

check() {
	umount /mnt/vda
	e2fsck -f -n /dev/vda
	mount -t ext4 /dev/vda /mnt/vda
	for at in 0 1 2 3; do
		dd if=/pattern bs=1M skip="$at" count=1 | cmp - "/mnt/vda/file$at"
	done
	umount /mnt/vda
}

discard() {
	blkdiscard /dev/vda
	dd if=/dev/vda bs=1M count=8 iflag=direct | cmp -n 8388608 - /dev/zero
}

step attached attach
step made make_file_system
step loaded start_load
step before go_on
for round in 1 2 3; do
	step "round-$round" go_on
done
step "back-end-1" go_on
step "back-end-2" go_on
step went-on go_on
step stopped stop_load
step checked check
step real-time ask_in_real_time
step discarded discard
