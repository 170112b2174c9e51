# A guest with two disks over NBD, of a target that is killed and started again meanwhile: the disk that
# QEMU's own client gives it, and one by the kernel's client. The test outside acts when it sees a step
# end. The first and only line of /targets has the port of the server for the kernel's client.

. /parameters
read -r _ port </targets

has_size() {
	[ "$(cat "/sys/block/$1/size")" -gt 0 ]
}

attach() {
	has_size vda
	nbd-client "$TRADDR" "$port" /dev/nbd0 -N throughput -b 4096 -L
	wait_until has_size nbd0
	cat /sys/block/vda/size /sys/block/nbd0/size
}

make_file_systems() {
	mkfs.ext4 -q -b 4096 /dev/vda
	mkfs.xfs -q -f /dev/nbd0
	mkdir -p /mnt/vda /mnt/nbd0
	mount -t ext4 /dev/vda /mnt/vda
	mount -t xfs /dev/nbd0 /mnt/nbd0
}

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

start_load() {
	for disk in vda nbd0; do
		echo 0 >"/run/$disk"
		write_files_again "$disk" >/dev/null 2>&1 </dev/null &
	done
}

# more FILE NUMBER
more() {
	[ "$(cat "$1")" -ge "$2" ]
}

# Both loads go on: what waits for the target has come through.
go_on() {
	for disk in vda nbd0; do
		patiently more "/run/$disk" $(($(cat "/run/$disk") + 2))
	done
	[ ! -e /run/differs ]
}

has_stopped() {
	[ -e /run/vda-stopped ] && [ -e /run/nbd0-stopped ]
}

stop_load() {
	touch /run/stop
	patiently has_stopped
	[ ! -e /run/differs ]
}

check() {
	umount /mnt/vda
	umount /mnt/nbd0
	e2fsck -f -n /dev/vda
	xfs_repair -n /dev/nbd0
	mount -t ext4 /dev/vda /mnt/vda
	mount -t xfs /dev/nbd0 /mnt/nbd0
	for disk in vda nbd0; do
		for at in 0 1 2 3; do
			dd if=/pattern bs=1M skip="$at" count=1 | cmp - "/mnt/$disk/file$at"
		done
	done
	umount /mnt/vda
	umount /mnt/nbd0
}

discard() {
	blkdiscard /dev/nbd0
	dd if=/dev/nbd0 bs=1M count=8 iflag=direct | cmp -n 8388608 - /dev/zero
}

detach() {
	nbd-client -d /dev/nbd0
}

step attached attach
step made make_file_systems
step loaded start_load
step before go_on
for round in 1 2 3; do
	step "round-$round" go_on
done
step went-on go_on
step stopped stop_load
step checked check
step discarded discard
step detached detach
