# A guest with two disks over NBD, of a target that is killed and started again meanwhile: the disk that
# QEMU's own client gives it, and one by the kernel's client. Each part is stopped for a while, too. The
# test outside acts when it sees a step end. The first and only line of /targets has the port of the
# server for the kernel's client.

read -r _ port </targets
disks="vda nbd0"

has_size() {
	[ "$(cat "/sys/block/$1/size")" -gt 0 ]
}

attach() {
	has_size vda
	nbd_keep "$TRADDR" "$port" throughput >/run/nbd_keep 2>&1 </dev/null &
	wait_until has_size nbd0
	cat /sys/block/vda/size /sys/block/nbd0/size
}

make_file_systems() {
	make_ext4 vda
	make_xfs nbd0
}

check() {
	check_files vda ext4 e2fsck -f -n
	check_files nbd0 xfs xfs_repair -n
}

discard() {
	blkdiscard /dev/nbd0
	dd if=/dev/nbd0 bs=1M count=8 iflag=direct | cmp -n 8388608 - /dev/zero
}

# The kernel has been given a new connection after each kill.
detach() {
	cat /run/nbd_keep
	[ "$(grep -c "a new connection" /run/nbd_keep)" -ge "$KILLS" ]
	nbd-client -d /dev/nbd0
}

step attached attach
step made make_file_systems
carry_on
step discarded discard
step detached detach
