# The kernel's TLS with tlshd. Reads /parameters, and /keys with one TLS key per file.

# tlshd reads the keyring of NVMe's keys only in a session that has it.
start_tlshd() {
	mkdir -p /debian13/etc
	printf '[debug]\nloglevel=1\ntls=1\nnl=0\n[authenticate]\nkeyrings=.nvme\n' \
		>/debian13/etc/tlshd.conf
	debian13 /usr/bin/keyctl session - /usr/sbin/tlshd --stderr \
		--config /etc/tlshd.conf >/run/tlshd 2>&1 </dev/null &
	wait_until grep -q "Built from" /run/tlshd
}

# insert_key NAME VERSION: of the identity. It becomes the only key.
insert_key() {
	debian13 /usr/bin/keyctl clear %:.nvme
	debian13 nvme check-tls-key --keydata "$(cat "/keys/$1")" --hostnqn "$HOSTNQN" \
		--subsysnqn "$NQN" --identity "$2" --insert
	debian13 /usr/bin/keyctl show %:.nvme
}

step tlshd start_tlshd
