# The kernel's initiator by nvme-cli. The first and only line of /targets has the target's port.

. /nvme.sh
read -r _ port </targets

# connect_by_tool [OPTION…]
connect_by_tool() {
	debian13 nvme connect -t tcp -a "$TRADDR" -s "$port" -n "$NQN" --hostnqn "$HOSTNQN" \
		--hostid "$HOSTID" --nr-io-queues 2 "$@" >/run/connected 2>&1
}

# connects [OPTION…]
connects() {
	connect_by_tool "$@" || {
		cat /run/connected /run/tlshd
		return 1
	}
	sed -n 's/.*\(nvme[0-9]*\)$/\1/p' /run/connected >/run/controller
	wait_until find_namespace
}

# refused [OPTION…]
refused() {
	if connect_by_tool "$@"; then
		return 1
	fi
	cat /run/connected
}

use() {
	disk=/dev/$(cat /run/namespace)
	dd if=/pattern of="$disk" bs=1M oflag=direct 2>&1
	dd if="$disk" bs=1M count=4 iflag=direct 2>/dev/null | cmp - /pattern
	fio --name=verify --filename="$disk" --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite \
		--bsrange=4k-128k --offset=8M --size=8M --verify=crc32c --minimal >/tmp/fio
}
