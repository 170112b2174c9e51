# What happens to a host while it works: namespaces that come, grow and go, a reset of its controller,
# and a target that is killed and started again. The test outside acts when it sees a step end.

. /parameters
. /nvme.sh
read -r _ port </targets

# Namespace 2, which comes and goes.
second_is_there() {
	name_of 2 >/run/second
}

second_is_gone() {
	! second_is_there
}

# second_has MIB
second_has() {
	second_is_there
	[ "$(cat "/sys/block/$(cat /run/second)/size")" = "$(($1 * 2048))" ]
}

use_second() {
	patiently second_is_there
	second_has 8
	dd if=/pattern of="/dev/$(cat /run/second)" bs=65536 count=16 oflag=direct 2>/dev/null
	dd if="/dev/$(cat /run/second)" of=/tmp/read bs=65536 count=16 iflag=direct 2>/dev/null
	head -c 1048576 /pattern | cmp - /tmp/read
}

is_live() {
	[ "$(attribute state)" = live ]
}

# A write that is on stable storage when it returns, by FUA.
fua() {
	expect fua "$(limit fua)" 1
	expect cache "$(limit write_cache)" "write back"
	device=/dev/$(cat /run/namespace)
	block=$(limit logical_block_size)
	nvme write "$device" --start-block=0 --block-count=$((262144 / block - 1)) \
		--data-size=262144 --data=/pattern --force-unit-access
	dd if="$device" of=/tmp/read bs=65536 count=4 iflag=direct 2>/dev/null
	head -c 262144 /pattern | cmp - /tmp/read
}

reset() {
	echo 1 >"/sys/class/nvme/$(cat /run/controller)/reset_controller"
	patiently is_live
	dd if="/dev/$(cat /run/namespace)" of=/tmp/read bs=65536 count=4 iflag=direct 2>/dev/null
	head -c 262144 /pattern | cmp - /tmp/read
}

# The kernel's initiator sends on the thread that submits, and without MSG_NOSIGNAL: who submits as the
# connection is closed gets SIGPIPE, and would die of it.
survive_closed_connections() {
	trap '' PIPE
}

# One file after the other in both file systems, each on stable storage before its number is in
# /run/count.
write_files() {
	number=0
	survive_closed_connections
	trap 'echo "the writer of files ended with $? at $number"' EXIT
	while [ ! -e /run/stop ]; do
		number=$((number + 1))
		for file in "/ext4/file$((number % 50))" "/xfs/file$((number % 50))"; do
			{
				echo "$number"
				head -c 131072 /pattern
			} >"$file"
		done
		sync
		echo "$number" >/run/count.new
		mv /run/count.new /run/count
	done
	touch /run/stopped
}

# Writes with a check sum in each block, read back while others are written and at the end of each
# round, beside the file system that is mounted from the same namespace. Rounds end by themselves: a
# signal can let fio die without a word.
verify_blocks() {
	round=0
	survive_closed_connections
	while [ ! -e /run/stop-verify ]; do
		round=$((round + 1))
		fio --name=verify --filename="/dev/$(cat /run/namespace)" --offset="$((AREAS_MIB << 20))" \
			--size=32m --io_size=4m --direct=1 --ioengine=libaio --thread=1 --iodepth=8 \
			--rw=randwrite --bsrange=4k-128k --rate=1m --randseed="$round" --verify=crc32c \
			--verify_backlog=16 --verify_fatal=1 --allow_mounted_write=1 --output=/run/fio ||
			echo "fio ended with $?" >>/run/verify-failed
	done
	echo "$round rounds" >/run/verify-rounds
}

start_load() {
	mkdir /ext4 /xfs
	device=/dev/$(cat /run/namespace)
	mkfs.ext4 -q -F "$device" "${FILE_SYSTEM_MIB}M"
	mount -t ext4 "$device" /ext4
	mkfs.xfs -q -f "/dev/$(name_of 3)"
	mount -t xfs "/dev/$(name_of 3)" /xfs
	echo 0 >/run/count
	echo 0 >/run/acknowledged
	write_files >/run/files-output 2>&1 </dev/null &
	verify_blocks >/run/verify-output 2>&1 </dev/null &
}

# counted NUMBER
counted() {
	[ "$(cat /run/count)" -ge "$1" ]
}

# reach NUMBER
reach() {
	if ! patiently counted "$1"; then
		cat /run/files-output
		ps -o pid,ppid,stat,time,args
		return 1
	fi
}

go_on() {
	reach "$(($(cat /run/count) + 3))"
}

# round: some more since the last one, which the check of its copy leaves time for. What is acknowledged
# when it ends is in whatever the kill that follows leaves.
round() {
	reach "$(($(cat /run/acknowledged) + 4))"
	cp /run/count /run/acknowledged
	cat /run/acknowledged
}

# copy_is_there ROUND
copy_is_there() {
	name_of "$((100 + $1))" >/run/copy
}

# check_xfs ROUND: a copy of the file system, as the kill after that round has left it. Its log is
# replayed by the mount, and only then is the rest of it what the log says.
check_xfs() {
	patiently copy_is_there "$1"
	copy=/dev/$(cat /run/copy)
	mkdir -p /copy
	mount -t xfs -o nouuid "$copy" /copy
	file=/copy/file$(($(cat /run/acknowledged) % 50))
	# The load may have come round to the same file, and have begun it again.
	[ "$(cat /run/count)" -ge "$(($(cat /run/acknowledged) + 40))" ] || has_number "$file"
	umount /copy
	xfs_repair -n "$copy"
}

# has_number FILE: of the round, with all that was written behind it.
has_number() {
	expect number "$(head -n 1 "$1")" "$(cat /run/acknowledged)"
	tail -c 131072 "$1" | cmp -n 131072 - /pattern
}

# The same check of the same copy, with an allocation group's header lost.
find_damage() {
	copy=/dev/$(cat /run/copy)
	dd if=/dev/zero of="$copy" bs=4096 seek=1 count=3 oflag=direct
	if xfs_repair -n "$copy"; then
		echo "it is taken for whole"
		return 1
	fi
}

has_stopped() {
	[ -e /run/stopped ]
}

# compare_files FOLDER: what was acknowledged last.
compare_files() {
	count=$(cat /run/count)
	first=$((count > 50 ? count - 49 : 1))
	for number in $(seq "$first" "$count"); do
		file=$1/file$((number % 50))
		expect number "$(head -n 1 "$file")" "$number"
		tail -c 131072 "$file" | cmp -n 131072 - /pattern
	done
	echo "$count files"
}

compare() {
	touch /run/stop
	patiently has_stopped
	ext4=/dev/$(cat /run/namespace)
	xfs=/dev/$(name_of 3)
	umount /ext4 /xfs
	e2fsck -f -n "$ext4"
	xfs_repair -n "$xfs"
	mount -t ext4 "$ext4" /ext4
	mount -t xfs "$xfs" /xfs
	compare_files /ext4
	compare_files /xfs
	umount /ext4 /xfs
}

verify_has_stopped() {
	[ -e /run/verify-rounds ]
}

verified() {
	touch /run/stop-verify
	patiently verify_has_stopped
	cat /run/verify-rounds
	if [ -e /run/verify-failed ]; then
		cat /run/verify-failed /run/verify-output /run/fio
		return 1
	fi
	grep "err= 0" /run/fio
}

step connected connect_namespace "$port" reconnect_delay=1 keep_alive_tmo=5 ctrl_loss_tmo=300
step added use_second
step resized patiently second_has 4
step removed patiently second_is_gone
step fua fua
step reset reset
step loaded start_load
for round in $(seq 20); do
	step "round-$round" round
	step "xfs-$round" check_xfs "$round"
done
step damage-found find_damage
step last-round go_on
step went-on go_on
step verified verified
step compared compare
step disconnected disconnect
