# The kernel's own target with one namespace in memory, on port 4420 of every address. Reads
# /parameters: NQN, DEVICE_MIB, MODEL.

start_kernel_target() {
	mount -t configfs configfs /sys/kernel/config
	nvmet=/sys/kernel/config/nvmet
	subsystem=$nvmet/subsystems/$NQN
	mkdir "$subsystem"
	echo 1 >"$subsystem/attr_allow_any_host"
	echo -n "$MODEL" >"$subsystem/attr_model"
	mkdir "$subsystem/namespaces/1"
	# A block device in front of the file: over a file in memory alone the kernel's target refuses
	# Write Zeroes.
	losetup /dev/loop0 /backing
	echo -n /dev/loop0 >"$subsystem/namespaces/1/device_path"
	echo 1 >"$subsystem/namespaces/1/enable"
	mkdir "$nvmet/ports/1"
	echo tcp >"$nvmet/ports/1/addr_trtype"
	echo ipv4 >"$nvmet/ports/1/addr_adrfam"
	echo 0.0.0.0 >"$nvmet/ports/1/addr_traddr"
	echo 4420 >"$nvmet/ports/1/addr_trsvcid"
	ln -s "$subsystem" "$nvmet/ports/1/subsystems/$NQN"
}

# The backing file as the host prepares it for other targets.
prepare_backing() {
	truncate -s "${DEVICE_MIB}M" /backing
	while read -r file offset length; do
		dd if="/prepared/$file" of=/backing bs=1024 seek="$offset" conv=notrunc 2>/dev/null
	done </prepared/ranges
	for area in 0 16 32 48; do
		for place in 12 14; do
			head -c 262144 /pattern | dd of=/backing bs=4096 conv=notrunc \
				seek="$(((AREAS_MIB + area + place) * 256))" 2>/dev/null
		done
	done
}

. /parameters
step prepare-backing prepare_backing
step kernel-target start_kernel_target
