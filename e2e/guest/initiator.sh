# The kernel's initiator against a target: every line of /targets is "NAME PORT". The layout of the
# namespace is that of src/guest.rs: a file system, prepared ranges, and an area for each digest mode.

. /parameters
. /nvme.sh

refused() {
	if connect "$REFUSED_PORT" "$NQN"; then
		echo "connected to a port where nobody listens"
		return 1
	fi
	dmesg -c | grep nvme
}

discovery() {
	connect "$1" "$discovery_nqn"
	expect state "$(attribute state)" live
	expect type "$(attribute cntrltype)" discovery
	expect subsystem "$(attribute subsysnqn)" "$discovery_nqn"
	nvme discover --device="$(cat /run/controller)" --hostnqn="$HOSTNQN" --hostid="$HOSTID" \
		--transport=tcp --traddr="$TRADDR" --trsvcid="$1" >/tmp/log
	cat /tmp/log
	grep -q "subnqn: *$NQN\$" /tmp/log
	disconnect
}

attributes() {
	expect state "$(attribute state)" live
	expect type "$(attribute cntrltype)" io
	expect subsystem "$(attribute subsysnqn)" "$NQN"
	# Two I/O queues and the admin queue.
	expect queues "$(attribute queue_count)" 3
	expect model "$(attribute model)" "$MODEL"
	[ -n "$(attribute serial)" ]
	echo "serial is '$(attribute serial)', firmware '$(attribute firmware_rev)'"
	expect size "$(cat "/sys/block/$(cat /run/namespace)/size")" "$((DEVICE_MIB * 2048))"
	echo "blocks of $(limit logical_block_size), transfers of $(limit max_hw_sectors_kb) KiB"
}

# read_blocks FILE OFFSET_KIB LENGTH_KIB BLOCK_BYTES
read_blocks() {
	dd if="/dev/$(cat /run/namespace)" of="$1" bs="$4" skip="$(($2 * 1024))" \
		count="$(($3 * 1024 / $4))" iflag=skip_bytes,direct 2>/dev/null
}

# write_blocks FILE OFFSET_KIB LENGTH_KIB BLOCK_BYTES
write_blocks() {
	dd if="$1" of="/dev/$(cat /run/namespace)" bs="$4" seek="$(($2 * 1024))" \
		count="$(($3 * 1024 / $4))" oflag=seek_bytes,direct conv=fsync 2>/dev/null
}

# Every line of /prepared/ranges is "FILE OFFSET_KIB LENGTH_KIB".
prepared() {
	while read -r file offset length; do
		read_blocks /tmp/read "$offset" "$length" 4096
		cmp "/prepared/$file" /tmp/read
		echo "$file as prepared"
	done </prepared/ranges
}

# raw AREA_KIB: whole-pattern writes of 1 MiB, and short ones of 4 KiB and of one block at an odd
# place, each read back with another block size.
raw() {
	block=$(limit logical_block_size)
	write_blocks /pattern "$1" 4096 1048576
	read_blocks /tmp/read "$1" 4096 131072
	cmp /pattern /tmp/read
	write_blocks /pattern "$(($1 + 8196))" 64 4096
	write_blocks /pattern "$(($1 + 8324))" 16 "$block"
	read_blocks /tmp/read "$(($1 + 8196))" 64 65536
	head -c 65536 /pattern | cmp - /tmp/read
	read_blocks /tmp/read "$(($1 + 8324))" 16 4096
	head -c 16384 /pattern | cmp - /tmp/read
}

# zeroes AREA_KIB: what was not zero becomes zero, and nothing beside it.
zeroes() {
	[ "$(limit write_zeroes_max_bytes)" -gt 0 ]
	/usr/sbin/blkdiscard -f -z -o "$((($1 + 12288 + 64) * 1024))" -l 131072 "/dev/$(cat /run/namespace)"
	read_blocks /tmp/read "$(($1 + 12288))" 256 65536
	head -c 131072 /dev/zero >/tmp/zero
	{
		head -c 65536 /pattern
		cat /tmp/zero
		head -c 262144 /pattern | tail -c 65536
	} | cmp - /tmp/read
}

# discard AREA_KIB: accepted, and nothing beside it changes.
discard() {
	[ "$(limit discard_max_bytes)" -gt 0 ]
	/usr/sbin/blkdiscard -f -o "$((($1 + 14336 + 64) * 1024))" -l 131072 "/dev/$(cat /run/namespace)"
	read_blocks /tmp/read "$(($1 + 14336))" 64 65536
	head -c 65536 /pattern | cmp - /tmp/read
	read_blocks /tmp/read "$(($1 + 14336 + 192))" 64 65536
	head -c 262144 /pattern | tail -c 65536 | cmp - /tmp/read
}

make_file_system() {
	device=/dev/$(cat /run/namespace)
	mkfs.ext4 -q -F "$device" "${FILE_SYSTEM_MIB}M"
	mount -t ext4 "$device" /mnt
	for file in 1 2 3; do
		{
			echo "$1 $file"
			cat /pattern
		} >"/mnt/file$file"
	done
	mkdir /mnt/folder
	for file in $(seq 50); do
		echo "$1 $file" >"/mnt/folder/small$file"
	done
	sync
	(cd /mnt && find . -type f -exec sha256sum {} + | sort >/run/sums)
	echo "$(wc -l </run/sums) files"
	umount /mnt
}

compare_file_system() {
	device=/dev/$(cat /run/namespace)
	e2fsck -f -n "$device"
	mount -t ext4 "$device" /mnt
	(cd /mnt && find . -type f -exec sha256sum {} + | sort) >/run/sums-now
	cmp /run/sums /run/sums-now
	expect files "$(wc -l </run/sums-now)" 53
	umount /mnt
}

# administer: what other people's tool makes of the controller's answers.
administer() {
	controller=/dev/$(cat /run/controller)
	namespace=/dev/$(cat /run/namespace)
	nvme id-ctrl "$controller"
	nvme id-ns "$namespace"
	nvme list-ns "$controller"
	nvme ns-descs "$namespace"
	nvme smart-log "$controller"
	nvme error-log "$controller" --log-entries=1
	nvme fw-log "$controller"
	nvme effects-log "$controller" --csi=0
	nvme get-feature "$controller" --feature-id=7
	nvme flush "$namespace"
} 

# More commands than the kernel's own target knows.
command_sets() {
	namespace=/dev/$(cat /run/namespace)
	block=$(limit logical_block_size)
	start=$(($1 * 1024 / block))
	count=$((65536 / block - 1))
	nvme verify "$namespace" --start-block="$start" --block-count="$count"
	nvme compare "$namespace" --start-block="$start" --block-count="$count" \
		--data-size=65536 --data=/pattern
	if nvme compare "$namespace" --start-block="$start" --block-count="$count" \
		--data-size=65536 --data=/other; then
		echo "different data compared as equal"
		return 1
	fi
}

# session NAME PORT AREA_KIB FILES [OPTION…]
session() {
	name=$1
	port=$2
	area=$3
	files=$4
	shift 4
	step "$name-connect" connect_namespace "$port" "$@"
	step "$name-attributes" attributes
	step "$name-prepared" prepared
	step "$name-raw" raw "$area"
	step "$name-zeroes" zeroes "$area"
	step "$name-discard" discard "$area"
	if [ "$files" = files ]; then
		step "$name-administer" administer
		if [ "$COMMAND_SETS" = all ]; then
			step "$name-command-sets" command_sets "$area"
		fi
		step "$name-make-file-system" make_file_system "$name"
		step "$name-disconnect" disconnect
		step "$name-reconnect" connect_namespace "$port" "$@"
		step "$name-compare-file-system" compare_file_system
	fi
	step "$name-disconnect-last" disconnect
}

step refused refused
while read -r target port; do
	step "$target-discovery" discovery "$port"
	session "$target-plain" "$port" "$((AREAS_MIB * 1024))" files
	session "$target-header" "$port" "$(((AREAS_MIB + 16) * 1024))" raw hdr_digest
	session "$target-data" "$port" "$(((AREAS_MIB + 32) * 1024))" raw data_digest
	session "$target-both" "$port" "$(((AREAS_MIB + 48) * 1024))" files hdr_digest data_digest
done </targets
