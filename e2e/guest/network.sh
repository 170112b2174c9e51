# A target in a network namespace, and hosts at the other end of a veth with delay and loss: our own, the
# kernel's, and our own with fixed buffers. The lines before this script set NETEM (arguments of tc's
# netem for each direction, or nothing), RUNS and SECONDS. Reports
# "result LOAD HOST REQUESTS_PER_SECOND IN_FLIGHT SEND_BUFFER RECEIVE_BUFFER": the most bytes in flight,
# the sender's send buffer and the receiver's receive buffer, each the maximum of all samples of ss.

. /parameters
. /nvme.sh

# Busybox has smaller programs of these names.
ip() {
	/usr/sbin/ip "$@"
}

tc() {
	/usr/sbin/tc "$@"
}

on_target() {
	ip netns exec target "$@"
}

make_network() {
	mkdir -p /var/run/netns
	ip netns add target
	ip link add host mtu 9000 type veth peer name target mtu 9000 netns target
	ip address add 192.0.2.2/24 dev host
	on_target /usr/sbin/ip address add "$TRADDR/24" dev target
	ip link set host up
	on_target /usr/sbin/ip link set target up
	# With segmentation offload netem would lose 64 KiB at once.
	case $NETEM in
	*loss*)
		ip link set host gso_max_segs 1
		on_target /usr/sbin/ip link set target gso_max_segs 1
		;;
	esac
	if [ -n "$NETEM" ]; then
		tc qdisc add dev host root netem limit 100000 $NETEM
		on_target /usr/sbin/tc qdisc add dev target root netem limit 100000 $NETEM
	fi
	ping -c 5 -i 0.2 "$TRADDR"
	cat /proc/sys/net/ipv4/tcp_congestion_control /proc/sys/net/ipv4/tcp_rmem \
		/proc/sys/net/ipv4/tcp_wmem
}

listens() {
	grep -q "listening on" /run/serve
}

start_target() {
	cat >/run/target.toml <<-END
		listen = ["$TRADDR:4420"]
		cores = [0]
		[devices.memory]
		type = "ram"
		size = "64M"
		block_size = 4096
		[[subsystems]]
		nqn = "$NQN"
		allow_any_host = true
		[[subsystems.namespaces]]
		nsid = 1
		device = "memory"
	END
	on_target switchyard serve --config /run/target.toml >/run/serve 2>&1 </dev/null &
	wait_until listens || cat /run/serve
	# Memory that was never written reads from one page.
	ours write 128k 32 --prefill >/dev/null
}

# ours RW BLOCK DEPTH [OPTION…]
ours() {
	app=a:rw=rand$1,bs=$2,depth=$3,cpu=1
	shift 3
	switchyard bench --target "$TRADDR:4420" --nqn "$NQN" --app "$app" --seconds "$SECONDS" \
		--warmup 1 --json "$@" | sed -n 's/.*"iops": *\([0-9.]*\).*/\1/p'
}

# The kernel's queue of processor 1 is the second one.
linux() {
	connect_namespace 4420 >&2
	fio --name=a --filename="/dev/$(cat /run/namespace)" --ioengine=libaio --direct=1 --rw="rand$1" \
		--bs="$2" --iodepth="$3" --cpus_allowed=1 --time_based --runtime="$SECONDS" --ramp_time=1 \
		--output-format=terse >/tmp/fio
	awk -F ';' '$1 == 3 { print $8 + $49 }' /tmp/fio
	disconnect >&2
}

# limit_buffers RECEIVE SEND: of both ends, as tcp_rmem and tcp_wmem.
limit_buffers() {
	set_them="cd /proc/sys/net/ipv4; echo $1 >tcp_rmem; echo $2 >tcp_wmem"
	sh -c "$set_them"
	on_target sh -c "$set_them"
}

# The buffers of a fixed SO_SNDBUF and SO_RCVBUF of 4 MiB: net.core.wmem_max and rmem_max, doubled.
fixed() {
	receive=$(cat /proc/sys/net/ipv4/tcp_rmem)
	send=$(cat /proc/sys/net/ipv4/tcp_wmem)
	limit_buffers "4096 425984 425984" "4096 425984 425984"
	ours "$@"
	limit_buffers "$receive" "$send"
}

sample() {
	while [ ! -e /run/sampled ]; do
		ss -tinmH dport = :4420 >>/run/host
		on_target ss -tinmH sport = :4420 >>/run/target
		usleep 400000
	done
	rm /run/sampled
}

# most FILE PATTERN: of the numbers after it, and of their product with the segment size for "unacked:".
most() {
	awk -v pattern="$2" '
		match($0, pattern "[0-9]+") {
			n = substr($0, RSTART, RLENGTH); sub(pattern, "", n)
			if (pattern == "unacked:" && match($0, " mss:[0-9]+")) n *= substr($0, RSTART + 5, RLENGTH - 5)
			if (n + 0 > most) most = n + 0
		}
		END { print most + 0 }' "$1"
}

all_sampled() {
	[ ! -e /run/sampled ]
}

# run LOAD HOST RW BLOCK DEPTH
run() {
	load=$1
	host=$2
	shift 2
	rm -f /run/host /run/target
	if [ "$load" = small ]; then
		echo "result $load $host $($host "$@")"
		return
	fi
	sample &
	rate=$($host "$@")
	touch /run/sampled
	wait_until all_sampled
	sender=/run/target
	receiver=/run/host
	if [ "$load" = write ]; then
		sender=/run/host
		receiver=/run/target
	fi
	echo "result $load $host $rate $(most $sender unacked:) $(most $sender tb) $(most $receiver rb)"
}

step made make_network
step started start_target
for number in $(seq "$RUNS"); do
	for host in ours linux fixed; do
		step "read-$host-$number" run read "$host" read 128k 32
	done
	for host in ours linux fixed; do
		step "write-$host-$number" run write "$host" write 128k 32
	done
	for host in ours linux; do
		step "small-$host-$number" run small "$host" read 4k 1
	done
done
