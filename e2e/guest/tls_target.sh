# The kernel's own target requires TLS.

require_proof() {
	nvmet=/sys/kernel/config/nvmet
	rm "$nvmet/ports/1/subsystems/$NQN"
	echo tls1.3 >"$nvmet/ports/1/addr_tsas"
	echo required >"$nvmet/ports/1/addr_treq"
	ln -s "$nvmet/subsystems/$NQN" "$nvmet/ports/1/subsystems/$NQN"
}

# With this version both derivations of a key have one identity.
step key insert_key sha256 0
step require-proof require_proof
