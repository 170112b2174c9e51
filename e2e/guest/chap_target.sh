# The kernel's own target requires DH-HMAC-CHAP of one host, with the secrets of /keys.

require_proof() {
	nvmet=/sys/kernel/config/nvmet
	mkdir "$nvmet/hosts/$HOSTNQN"
	cat /keys/host >"$nvmet/hosts/$HOSTNQN/dhchap_key"
	cat /keys/controller >"$nvmet/hosts/$HOSTNQN/dhchap_ctrl_key"
	echo ffdhe2048 >"$nvmet/hosts/$HOSTNQN/dhchap_dhgroup"
	echo 0 >"$nvmet/subsystems/$NQN/attr_allow_any_host"
	ln -s "$nvmet/hosts/$HOSTNQN" "$nvmet/subsystems/$NQN/allowed_hosts/$HOSTNQN"
}

step require-proof require_proof
