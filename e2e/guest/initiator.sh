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

# An address that says "this machine" in the log of a target outside means that machine from here on.
loopback_is_outside() {
	if [ "$TRADDR" = 127.0.0.1 ]; then
		return
	fi
	for interface in /sys/class/net/e*; do :; done
	interface=${interface##*/}
	ip address del 127.0.0.1/8 dev lo
	echo 1 >"/proc/sys/net/ipv4/conf/$interface/route_localnet"
	ip route add 127.0.0.1 via "$TRADDR" dev "$interface"
}

# connect_all PORT: to everything that discovery names.
connect_all() {
	nvme connect-all --transport=tcp --traddr="$TRADDR" --trsvcid="$1" --hostnqn="$HOSTNQN" \
		--hostid="$HOSTID" --nr-io-queues=2
	wait_until find_namespace
	says "^/dev/$(cat /run/namespace) .* $MODEL +1 +[0-9.]+ +MB / +[0-9.]+ +MB " nvme list
	says "^ \+- nvme[0-9]+ tcp traddr=.*,trsvcid=$1.* live" nvme list-subsys
	says "NQN:$NQN disconnected 1 controller" nvme disconnect --nqn="$NQN"
	wait_until no_namespace
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

# Whether the namespace has a volatile write cache.
caches() {
	[ "$(limit write_cache)" = "write back" ]
}

# verified: blocks from one to 1 MiB at depths from 1 to 64, with a check sum in each.
verified() {
	block=$(limit logical_block_size)
	cat >/tmp/verified.fio <<-END
		[global]
		filename=/dev/$(cat /run/namespace)
		direct=1
		ioengine=libaio
		thread=1
		rw=randwrite
		verify=crc32c
		verify_fatal=1
		[single]
		bs=$block
		size=64k
		iodepth=1
		[small]
		bs=$block
		offset=1m
		size=512k
		iodepth=64
		[stable]
		bs=4k
		offset=2m
		size=64k
		sync=dsync
		[mixed]
		bsrange=$block-1m
		offset=8m
		size=8m
		iodepth=16
		[large]
		bs=1m
		offset=32m
		size=8m
		iodepth=64
	END
	# The write of "stable" has the bit of Force Unit Access, where there is a cache.
	fua=0x4000
	caches || fua=0x0
	sends "nvme_cmd_write slba=.* ctrl=$fua" fio --output=/tmp/fio /tmp/verified.fio
	grep -E "err=|io=" /tmp/fio
	expect jobs "$(grep -c "err= 0" /tmp/fio)" 5
}

# zeroes AREA_KIB: what was not zero becomes zero, and nothing beside it.
zeroes() {
	[ "$(limit write_zeroes_max_bytes)" -gt 0 ]
	sends nvme_cmd_write_zeroes /usr/sbin/blkdiscard -f -z -o "$((($1 + 12288 + 64) * 1024))" -l 131072 "/dev/$(cat /run/namespace)"
	read_blocks /tmp/read "$(($1 + 12288))" 256 65536
	head -c 131072 /dev/zero >/tmp/zero
	{
		head -c 65536 /pattern
		cat /tmp/zero
		head -c 262144 /pattern | tail -c 65536
	} | cmp - /tmp/read
}

# discard AREA_KIB: accepted, and nothing beside it changes. At our targets it reads as zeroes.
discard() {
	[ "$(limit discard_max_bytes)" -gt 0 ]
	sends nvme_cmd_dsm /usr/sbin/blkdiscard -f -o "$((($1 + 14336 + 64) * 1024))" -l 131072 "/dev/$(cat /run/namespace)"
	read_blocks /tmp/read "$(($1 + 14336))" 64 65536
	head -c 65536 /pattern | cmp - /tmp/read
	read_blocks /tmp/read "$(($1 + 14336 + 192))" 64 65536
	head -c 262144 /pattern | tail -c 65536 | cmp - /tmp/read
	if [ "$COMMAND_SETS" = all ]; then
		read_blocks /tmp/read "$(($1 + 14336 + 64))" 128 65536
		head -c 131072 /dev/zero | cmp - /tmp/read
	fi
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
	says "^mn +: $MODEL *\$" nvme id-ctrl "$controller"
	grep -q "^subnqn *: $NQN\$" /tmp/said
	expect sn "$(sed -n 's/^sn *: *\([^ ].*[^ ]\) *$/\1/p' /tmp/said)" "$(attribute serial)"
	delay=$(sed -n 's/^crdt1 *: *//p' /tmp/said)
	says "^nsze +: $(printf 0x%x $((DEVICE_MIB * 1048576 / $(limit logical_block_size))))\$" \
		nvme id-ns "$namespace"
	says "^\[ +0\]:0x1\$" nvme list-ns "$controller"
	says "^(uuid|nguid|eui64) *: [0-9a-f-]+\$" nvme ns-descs "$namespace"
	says "^critical_warning\s+: 0\$" nvme smart-log "$controller"
	says "^error_count\s+: [0-9]+\$" nvme error-log "$controller" --log-entries=1
	says "^afi +: " nvme fw-log "$controller"
	says "^ACS6 +\[Identify +\] 0000[0-9a-f]{3}1" nvme effects-log "$controller" --csi=0
	grep -Eq "^IOCS1 +\[Write +\] 0000[0-9a-f]{3}3" /tmp/said
	says "Number of Queues.*, Current value:0x[0-9a-f]+\$" feature 7
	if caches; then
		says "Volatile Write Cache.*, Current value:0x0*1\$" feature 6
	fi
	says "Async Event Configuration.*, Current value:0x[0-9a-f]+\$" feature 0xb
	says "Keep Alive Timer.*, Current value:0x0*1388\$" feature 0xf
	# The kernel's own target has no retry delay. The kernel enables one that there is.
	if [ "$COMMAND_SETS" = all ]; then
		expect crdt1 "$delay" 1
		says "Host Behavior Support: True\$" feature 0x16 --human-readable
	fi
	nvme flush "$namespace"
}

# feature NUMBER [OPTION…]
feature() {
	number=$1
	shift
	nvme get-feature "/dev/$(cat /run/controller)" --feature-id="$number" "$@"
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
		step "$name-verified" verified
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
step loopback loopback_is_outside
while read -r target port; do
	step "$target-discovery" discovery "$port"
	step "$target-connect-all" connect_all "$port"
	session "$target-plain" "$port" "$((AREAS_MIB * 1024))" files
	session "$target-header" "$port" "$(((AREAS_MIB + 16) * 1024))" raw hdr_digest
	session "$target-data" "$port" "$(((AREAS_MIB + 32) * 1024))" raw data_digest
	session "$target-both" "$port" "$(((AREAS_MIB + 48) * 1024))" files hdr_digest data_digest
done </targets
