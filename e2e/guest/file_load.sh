# A load of files that is checked, for scenarios that mount disks: $disks are the names of the block
# devices, each mounted at /mnt/NAME.

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
	for name in $disks; do
		echo 0 >"/run/$name"
		write_files_again "$name" >/dev/null 2>&1 </dev/null &
	done
}

# more FILE NUMBER
more() {
	[ "$(cat "$1")" -ge "$2" ]
}

# The load goes on: what waits has come through.
go_on() {
	for name in $disks; do
		patiently more "/run/$name" $(($(cat "/run/$name") + 2))
	done
	[ ! -e /run/differs ]
}

has_stopped() {
	for name in $disks; do
		[ -e "/run/$name-stopped" ] || return 1
	done
}

stop_load() {
	touch /run/stop
	patiently has_stopped
	[ ! -e /run/differs ]
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
