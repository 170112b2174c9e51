# A guest with two disks by vhost-user, each over a target that is killed and started again meanwhile,
# as is the disk's back end; each of them, and the machine itself, is stopped for a while, too. The test
# outside acts when it sees a step end.

disks="vda vdb"

attach() {
	for name in $disks; do
		[ "$(cat /sys/block/$name/size)" -gt 0 ]
		[ "$(cat /sys/block/$name/queue/logical_block_size)" = 4096 ]
		cat /sys/block/$name/size
	done
	[ "$(cat /sys/block/vda/serial)" = a-disk ]
	[ "$(cat /sys/block/vdb/serial)" = b-disk ]
}

make_file_systems() {
	make_ext4 vda
	make_xfs vdb
}

check() {
	check_files vda ext4 e2fsck -f -n
	check_files vdb xfs xfs_repair -n
}

# Real-time I/O: these requests, and no others, are of the class of latency.
ask_in_real_time() {
	ionice -c 1 dd if=/dev/vda of=/dev/null bs=4096 count=100 iflag=direct
}

discard() {
	blkdiscard /dev/vda
	dd if=/dev/vda bs=1M count=8 iflag=direct | cmp -n 8388608 - /dev/zero
}

step attached attach
step verified verify vda 32M 4k
step made make_file_systems
carry_on
step real-time ask_in_real_time
step discarded discard
