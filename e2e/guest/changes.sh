# What happens to a host while it works: namespaces that come, grow and go, a reset of its controller,
# and a target that is killed and started again. The test outside acts when it sees a step end.

. /parameters
. /nvme.sh
read -r _ port </targets

# patiently COMMAND…: as wait_until, for what a test outside has to do first.
patiently() {
	for _ in $(seq 120); do
		if "$@"; then
			return 0
		fi
		sleep 1
	done
	echo "never became true: $*"
	return 1
}

second() {
	name=$(cat /run/namespace)
	echo "${name%n1}n2"
}

second_is_there() {
	[ -b "/dev/$(second)" ]
}

second_is_gone() {
	[ ! -e "/sys/block/$(second)" ]
}

# second_has MIB
second_has() {
	[ "$(cat "/sys/block/$(second)/size")" = "$(($1 * 2048))" ]
}

use_second() {
	patiently second_is_there
	second_has 8
	dd if=/pattern of="/dev/$(second)" bs=65536 count=16 oflag=direct 2>/dev/null
	dd if="/dev/$(second)" of=/tmp/read bs=65536 count=16 iflag=direct 2>/dev/null
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

# One file after the other, each on stable storage before its number is in /run/count.
write_files() {
	number=0
	while [ ! -e /run/stop ]; do
		number=$((number + 1))
		{
			echo "$number"
			head -c 131072 /pattern
		} >"/mnt/file$((number % 50))"
		sync
		echo "$number" >/run/count.new
		mv /run/count.new /run/count
	done
	touch /run/stopped
}

start_load() {
	device=/dev/$(cat /run/namespace)
	mkfs.ext4 -q -F "$device" "${FILE_SYSTEM_MIB}M"
	mount -t ext4 "$device" /mnt
	echo 0 >/run/count
	write_files >/dev/null 2>&1 </dev/null &
}

# counted NUMBER
counted() {
	[ "$(cat /run/count)" -ge "$1" ]
}

go_on() {
	patiently counted "$(($(cat /run/count) + 3))"
}

has_stopped() {
	[ -e /run/stopped ]
}

compare() {
	touch /run/stop
	patiently has_stopped
	count=$(cat /run/count)
	umount /mnt
	device=/dev/$(cat /run/namespace)
	e2fsck -f -n "$device"
	mount -t ext4 "$device" /mnt
	first=$((count > 50 ? count - 49 : 1))
	for number in $(seq "$first" "$count"); do
		file=/mnt/file$((number % 50))
		expect number "$(head -n 1 "$file")" "$number"
		tail -c 131072 "$file" | cmp -n 131072 - /pattern
	done
	umount /mnt
	echo "$count files"
}

step connected connect_namespace "$port" reconnect_delay=1 keep_alive_tmo=5 ctrl_loss_tmo=300
step added use_second
step resized patiently second_has 4
step removed patiently second_is_gone
step fua fua
step reset reset
step loaded start_load
for round in $(seq 20); do
	step "round-$round" go_on
done
step last-round go_on
step compared compare
step disconnected disconnect
