# A guest that makes two block devices of its own, by our front end for ublk, over targets outside that
# are killed and started again meanwhile, as are the front ends; each part is stopped for a while, too.
# The test outside acts on the targets when it sees a step end. The two lines of /targets have their ports.

{
	read -r _ port
	read -r _ other_port
} </targets
disks="ublkb3 ublkb6"

# property NAME WANTED: of the block device's queue.
property() {
	expect "$1" "$(cat "/sys/block/$disk/queue/$1")" "$2"
}

attach_remote() {
	attach remote ublk --id 3 --target "$TRADDR:$port" --queues 2 --cores 0-1
}

attach_other() {
	attach other ublk --id 6 --target "$TRADDR:$other_port" --cores 0-1
}

attach_first() {
	attach_other
	attach_remote
	grep -q "^ready: /dev/ublkb3, " /run/remote.out
	disk=ublkb3
	[ "$(cat /sys/block/$disk/size)" -gt 0 ]
	property logical_block_size 4096
	property physical_block_size 4096
	property write_cache "write back"
	property fua 1
	expect ro "$(cat /sys/block/$disk/ro)" 0
	[ "$(ls /sys/block/$disk/mq | wc -l)" = 2 ]
}

# refused PATTERN ARGUMENT…: there is no second one.
refused() {
	pattern=$1
	shift
	if switchyard attach ublk "$@" 2>/run/refused; then
		echo "it is not refused"
		return 1
	fi
	cat /run/refused
	grep -q "$pattern" /run/refused
}

# The copies of data are made by the threads that serve, and not by workers of their rings: only the
# control command that started the device had one.
copies_at_once() {
	pid=$(cat /run/remote.pid)
	if cat /proc/"$pid"/task/*/comm | grep iou-wrk | grep -v "iou-wrk-$pid$"; then
		echo "a worker copies"
		return 1
	fi
	[ "$(grep -h -c ublk /proc/"$pid"/task/*/comm | grep -c 1)" = 2 ]
}

kill_front_end() {
	signal remote KILL
	patiently has_ended remote
}

# On a slow machine the target may be killed only now, while a front end connects: a supervisor would
# start that again, too.
recover() {
	kill_front_end
	signal other KILL
	patiently has_ended other
	patiently attach_remote
	patiently attach_other
	go_on
}

# The front ends stand still, and requests wait.
stop_for_a_while() {
	for name in remote other; do
		signal "$name" STOP
		wait_until stands_still "$(cat "/run/$name.pid")"
	done
	sleep "$STOP_SECONDS"
	for name in remote other; do
		signal "$name" CONT
	done
	go_on
}

make_file_systems() {
	make_ext4 ublkb3
	make_xfs ublkb6
}

check() {
	check_files ublkb3 ext4 e2fsck -f -n
	check_files ublkb6 xfs xfs_repair -n
	signal other TERM
	detached other ublkb6
}

# Another device does not take its place, and leaves the requests for the right one.
recover_the_right_one() {
	kill_front_end
	refused "cannot recover /dev/ublkb3, which another process left: it has .* blocks" --id 3 --null 16M
	refused "cannot recover /dev/ublkb3, which another process left: it has 2 queues" --id 3 --target "$TRADDR:$port" --queues 1
	patiently attach_remote
	go_on
}

# A start that fails once it has taken the block device over leaves it, with its requests, for the next
# one: nothing can be written to /dev/full.
recover_after_a_failure() {
	kill_front_end
	if switchyard attach ublk --id 3 --target "$TRADDR:$port" --queues 2 --cores 0-1 \
		>/dev/full 2>/tmp/full.err; then
		echo "it has not failed"
		return 1
	fi
	cat /tmp/full.err
	grep -q "No space left on device" /tmp/full.err
	[ -e /dev/ublkb3 ]
	# Without enough descriptors it fails earlier.
	for limit in 14 18 22; do
		if (
			ulimit -n $limit
			attach short ublk --id 3 --target "$TRADDR:$port" --queues 2 --cores 0-1
		) >/run/short 2>&1; then
			signal short KILL
			patiently has_ended short
		fi
		echo "$limit: $(cat /run/short)"
	done
	patiently attach_remote
	go_on
}

# Another attachment of the same process does not start, which is nothing to this one.
recover_beside_a_failure() {
	kill_front_end
	cat >/run/attach.toml <<-END
		api = "unix:/run/api.sock"
		[[attachments]]
		name = "remote"
		kind = "ublk"
		id = 3
		target = "$TRADDR:$port"
		queues = 2
		cores = "0-1"
		[[attachments]]
		name = "away"
		kind = "nbd"
		socket = "/run/away.sock"
		target = "127.0.0.1:1"
	END
	patiently attach remote --config /run/attach.toml
	grep -q "^ready: remote: /dev/ublkb3, " /run/remote.out
	go_on
	switchyard attachments --api unix:/run/api.sock | tee /run/attachments
	grep -q "^away .*not started" /run/attachments
	kill_front_end
	patiently attach_remote
	go_on
}

# The file system is mounted: the front end says so, and goes on. A second signal ends it, and leaves
# the block device to another one, which does not end with the mount.
refuse_to_detach() {
	signal remote TERM
	wait_until grep -q "/dev/ublkb3 is in use" /run/remote.log
	cat /run/remote.log
	go_on
	! has_ended remote
	signal remote TERM
	wait_until has_ended remote
	expect "exit code" "$(cat /run/remote.status)" 1
	[ -e /sys/block/ublkb3 ]
	patiently attach_remote
	go_on
	kill_front_end
	patiently attach_remote
	go_on
}

discard() {
	dd if=/pattern of=/dev/ublkb3 bs=1M count=4 oflag=direct
	/usr/sbin/blkdiscard -z -o 1048576 -l 1048576 /dev/ublkb3
	dd if=/dev/ublkb3 bs=1M skip=1 count=1 iflag=direct | cmp -n 1048576 - /dev/zero
	dd if=/pattern bs=1M count=1 >/run/first
	dd if=/dev/ublkb3 bs=1M count=1 iflag=direct | cmp - /run/first
	blkdiscard /dev/ublkb3
	dd if=/dev/ublkb3 bs=1M count=8 iflag=direct | cmp -n 8388608 - /dev/zero
}

# under_way DISK: the kernel waits for requests of it.
under_way() {
	grep -q '[1-9]' "/sys/block/$1/inflight"
}

# The front end leaves the block device, which is open, to the next one.
leave_front_end() {
	signal remote TERM
	wait_until grep -q "/dev/ublkb3 is in use" /run/remote.log
	signal remote TERM
	patiently has_ended remote
}

# The front end is killed, or leaves, with many requests under way, each of which is carried out in the end.
recover_deep() {
	for end in kill leave leave leave; do
		fio --name=c --filename=/dev/ublkb3 --direct=1 --ioengine=libaio --iodepth=64 --rw=randwrite \
			--bs=4k --size=32M --randrepeat=0 --verify=crc32c --verify_fatal=1 --minimal >/run/fio 2>&1 &
		deep=$!
		wait_until under_way ublkb3
		${end}_front_end
		echo "under way: $(cat /sys/block/ublkb3/inflight)"
		patiently attach_remote
		code=0
		wait $deep || code=$?
		cat /run/fio
		expect "exit code of fio" "$code" 0
	done
}

# Other processes take the block device over from running ones, with many requests under way.
take_over() {
	fio --name=c --filename=/dev/ublkb3 --direct=1 --ioengine=libaio --iodepth=64 --rw=randwrite \
		--bs=4k --size=32M --randrepeat=0 --verify=crc32c --verify_fatal=1 --minimal >/run/fio 2>&1 &
	deep=$!
	wait_until under_way ublkb3
	before=remote
	for after in next remote; do
		attach $after ublk --id 3 --target "$TRADDR:$port" --queues 2 --cores 0-1 --take-over
		patiently has_ended $before
		cat /run/$before.log
		expect "exit code" "$(cat /run/$before.status)" 0
		before=$after
	done
	code=0
	wait $deep || code=$?
	cat /run/fio
	expect "exit code of fio" "$code" 0
}

# It ends when the block device is closed.
detach() {
	exec 9</dev/ublkb3
	signal remote TERM
	wait_until grep -q "/dev/ublkb3 is in use" /run/remote.log
	! has_ended remote
	exec 9<&-
	detached remote ublkb3
}

# beside DISK WORDS: reads one after the other of one block device while another one, or the same, has
# many large ones under way.
beside() {
	fio --name=t --filename=/dev/ublkb5 --direct=1 --ioengine=libaio --iodepth=16 --rw=randread --bs=64k \
		--time_based --runtime=8 --minimal >/run/fio-t &
	bulk=$!
	sleep 1
	fio --name=l --filename="/dev/$1" --direct=1 --ioengine=psync --rw=randread --bs=4k \
		--time_based --runtime=5 --minimal >/run/fio-l
	wait $bulk
	p99=$(tr ';' '\n' </run/fio-l | grep -m 1 '^99.000000%=')
	echo "$2: p99 ${p99#*=} µs, $(cut -d';' -f8 /run/fio-l) reads/s beside $(cut -d';' -f8 /run/fio-t) of 64 KiB"
}

# Two block devices over one namespace, one for each class.
attach_twice() {
	attach l ublk --id 4 --class L --target "$TRADDR:$port" --cores 0
	attach t ublk --id 5 --class T --target "$TRADDR:$port" --cores 0
	dd if=/pattern of=/dev/ublkb4 bs=64k count=16 oflag=direct
	dd if=/dev/ublkb5 bs=64k count=16 iflag=direct | cmp -n 1048576 - /pattern
	beside ublkb4 "a device of class L"
	beside ublkb5 "the same device of class T"
	for name in l t; do
		signal $name TERM
	done
	detached l ublkb4
	detached t ublkb5
}

# ticks NAME: hundredths of a second that the front end has used.
ticks() {
	set -- $(cut -d' ' -f14,15 "/proc/$(cat "/run/$1.pid")/stat")
	echo $(($1 + $2))
}

read_only() {
	attach ro ublk --ram 16M --block-size 512 --read-only
	disk=ublkb0
	grep -q "^ready: /dev/$disk, 16.00 MiB" /run/ro.out
	property logical_block_size 512
	expect ro "$(cat /sys/block/$disk/ro)" 1
	expect size "$(cat /sys/block/$disk/size)" 32768
	if dd if=/pattern of=/dev/$disk bs=512 count=1 oflag=direct; then
		echo "it was written to"
		return 1
	fi
	# An idle one uses next to no processor: a loop would use all 300, and emulation makes little more.
	sleep 1
	before=$(ticks ro)
	sleep 3
	used=$(($(ticks ro) - before))
	echo "used $used hundredths of a second in 3 s"
	[ "$used" -lt 100 ]
	signal ro TERM
	detached ro ublkb0
}

# A device with small blocks.
verify_small_blocks() {
	attach ram ublk --ram 48M --block-size 512 --queues 2
	verify ublkb0 48M 512
}

# has_opened PROCESS FILE: as its standard input.
has_opened() {
	[ "$(readlink "/proc/$1/fd/0")" = "$2" ]
}

# A process has it open: the first signal says so, and the second removes it all the same, because its
# content is lost with the front end.
force() {
	sleep 1000 </dev/ublkb0 &
	reader=$!
	wait_until has_opened $reader /dev/ublkb0
	signal ram TERM
	wait_until grep -q "/dev/ublkb0 is in use by process $reader" /run/ram.log
	signal ram TERM
	detached ram ublkb0 1
	kill $reader
}

# stands_still PROCESS: none of its threads runs any more, which takes a moment after the signal.
stands_still() {
	! grep -h '^State:' "/proc/$1"/task/*/status | grep -q -v 'T (stopped)'
}

# A target that does not answer any more: requests wait, and are given up ten seconds after it is
# detached by force.
give_up() {
	switchyard serve --listen 127.0.0.1:4420 --ram 16M >/run/serve 2>&1 </dev/null &
	serve=$!
	wait_until grep -q "listening on" /run/serve
	attach lost ublk --target 127.0.0.1:4420 --api unix:/run/lost.sock
	kill -STOP $serve
	wait_until stands_still $serve
	dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct >/run/dd 2>&1 &
	reader=$!
	wait_until under_way ublkb0
	! switchyard detach ublk --api unix:/run/lost.sock
	switchyard detach ublk --force --api unix:/run/lost.sock
	detached lost ublkb0
	code=0
	wait $reader || code=$?
	expect "exit code of the reader" "$code" 1
	kill -KILL $serve
	# The error was meant.
	dmesg -c | grep "I/O error, dev ublkb0"
}

# Without enough descriptors a start fails at each of its steps in turn, and leaves nothing.
fail_and_clean_up() {
	for limit in 11 12 13 14 15 16 17 18 19 20; do
		code=0
		(
			ulimit -n $limit
			attach short ublk --ram 16M --queues 2 --cores 0-1
		) >/run/short 2>&1 || code=$?
		echo "$limit: $(cat /run/short)"
		if [ "$code" = 0 ]; then
			signal short TERM
			patiently has_ended short
		fi
		if ls /dev/ublk[bc]*; then
			echo "it is left"
			return 1
		fi
	done
	expect "exit code of the last one" "$code" 0
}

step attached attach_first
step taken refused "ublkb3 is served by process" --id 3 --null 16M
step made make_file_systems
step loaded start_load
step before go_on
step at-once copies_at_once
for round in $kills; do
	step "round-$round" go_on
done
step after go_on
for round in $kills; do
	step "recovered-$round" recover
done
step target-stops go_on
step front-end-stopped stop_for_a_while
step machine-stops go_on
step went-on go_on
step right-one recover_the_right_one
step after-failure recover_after_a_failure
step beside-failure recover_beside_a_failure
step in-use refuse_to_detach
step stopped stop_load
step checked check
step discarded discard
step recovered-deep recover_deep
step taken-over take_over
step detached detach
step twice attach_twice
step read-only read_only
step verified verify_small_blocks
step forced force
step given-up give_up
step cleaned-up fail_and_clean_up
